"""Layers as products with batch norm in their weights, against the plain layers: on a GPU in bf16, else interpreted."""

import itertools
import os
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported, which only a GPU does otherwise
pytest.importorskip("triton")

from runoff.torch import NetworkInNetwork, networks  # noqa: E402
from runoff.torch.kernels import matmul_norm_relu, norm_relu_pool  # noqa: E402
from runoff.torch.networks import Block, choose_kernels  # noqa: E402

# In bf16, signs of what is next to nothing flip: one in a thousand, which is three percent of a gradient.
DTYPE, CLOSE, SLOPE = (torch.bfloat16, 1e-2, 0.1) if DEVICE == "cuda" else (torch.float32, 2e-6, 1e-5)


def error(given, expected):
    given, expected = given.detach().double(), expected.detach().double()
    return float((given - expected).norm() / expected.norm())


def layer(n_in, n_out, seed):
    """Return weights and a norm with both signs, and the same in double precision."""
    draws = torch.Generator().manual_seed(seed)
    weight = torch.randn(n_out, n_in, generator=draws) / n_in**0.5
    norm, double = nn.BatchNorm2d(n_out), nn.BatchNorm1d(n_out).double()
    with torch.no_grad():
        norm.weight.copy_(torch.randn(n_out, generator=draws))
        norm.bias.copy_(torch.randn(n_out, generator=draws))
    double.load_state_dict(norm.state_dict())
    return (
        weight.to(DEVICE).requires_grad_(),
        norm.to(DEVICE),
        weight.detach().double().to(DEVICE).requires_grad_(),
        double.to(DEVICE),
    )


@pytest.mark.parametrize(
    ("n_rows", "widths"),
    [(300, (104, 192, 160, 96)), (70, (40, 96, 64, 48)), (64, (32, 32, 32, 32)), (129, (56, 40, 72, 192))],
)
def test_three_layers(n_rows, widths):
    """Two products and the following layers; x may have both signs for the first product only."""
    x = (2 * torch.randn(n_rows, widths[0], generator=torch.Generator().manual_seed(0)) + 1).to(DEVICE, DTYPE)
    layers = [layer(n_in, n_out, i) for i, (n_in, n_out) in enumerate(itertools.pairwise(widths))]
    given, expected = x, x.double()
    for weight, norm, their_weight, their_norm in layers[:2]:
        given = matmul_norm_relu.norm_act(given, weight, norm)
        expected = F.relu(their_norm(expected @ their_weight.t()))
        assert given.dtype == DTYPE
        assert error(given, expected) < CLOSE
    given, expected = matmul_norm_relu.masked_product(given, layers[2][0]), expected @ layers[2][2].t()
    assert error(given, expected) < CLOSE
    along = torch.randn(expected.shape, generator=torch.Generator().manual_seed(9)).double().to(DEVICE)
    (given.double() * along).sum().backward()
    (expected * along).sum().backward()
    for weight, norm, their_weight, their_norm in layers[:2]:
        assert error(weight.grad, their_weight.grad) < SLOPE
        assert error(norm.weight.grad, their_norm.weight.grad) < SLOPE
        assert error(norm.bias.grad, their_norm.bias.grad) < SLOPE
        assert error(norm.running_mean, their_norm.running_mean) < max(1e-6, CLOSE / 10)
        assert error(norm.running_var, their_norm.running_var) < max(1e-6, CLOSE / 10)
    assert error(layers[2][0].grad, layers[2][2].grad) < max(CLOSE, 1e-5)


@pytest.mark.parametrize("many_rows", [2**15, 2**20])
def test_sums_over_many_blocks(monkeypatch, many_rows):
    monkeypatch.setattr(matmul_norm_relu, "MANY_ROWS", many_rows)
    x = torch.randn(2**15, 32, generator=torch.Generator().manual_seed(0)).to(DEVICE, DTYPE)
    given = matmul_norm_relu._sums(x, x)
    expected = torch.cat([x.double().t() @ x.double(), x.double().sum(0)[None]])
    assert error(given, expected) < 1e-5
    assert error(given[-1], expected[-1]) < 1e-5


def test_weights_and_gradients_as_views():
    """Transposed weights, and the gradient of a part of the columns."""
    weight, norm, their_weight, their_norm = layer(64, 48, 0)
    turned = weight.detach().t().contiguous().t().requires_grad_()
    last = torch.randn(48, 32, device=DEVICE).t().requires_grad_()
    x = torch.randn(90, 64, device=DEVICE).to(DTYPE)
    for training in (True, False):
        norm.train(training)
        their_norm.train(training)
        given, expected = matmul_norm_relu.norm_act(x, turned, norm), F.relu(their_norm(x.double() @ their_weight.t()))
        assert error(given, expected) < CLOSE
    norm.train()
    their_norm.train()
    along = torch.randn(32, 90, device=DEVICE).t()
    out = matmul_norm_relu.masked_product(matmul_norm_relu.norm_act(x, turned, norm), last)
    (out.float() * along).sum().backward()
    hidden = F.relu(their_norm(x.double() @ their_weight.t()))
    theirs = last.detach().double().requires_grad_()
    ((hidden @ theirs.t()) * along.double()).sum().backward()
    assert error(turned.grad, their_weight.grad) < SLOPE
    assert error(last.grad, theirs.grad) < max(CLOSE, 1e-5)
    masked = (along @ last.detach()).to(DTYPE).t().contiguous().t()  # not one row after the other
    given = torch.autograd.grad(matmul_norm_relu.norm_act(x, turned, norm), turned, masked * (hidden > 0))
    expected = torch.autograd.grad(hidden_again(x, their_weight, their_norm), their_weight, masked.double())
    assert error(given[0], expected[0]) < SLOPE


def hidden_again(x, weight, norm):
    return F.relu(norm(x.double() @ weight.t()))


def test_statistics_at_rest():
    weight, norm, their_weight, their_norm = layer(104, 96, 0)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    their_norm.load_state_dict(norm.state_dict())
    x = torch.randn(77, 104, device=DEVICE).to(DTYPE)
    with torch.no_grad():
        given = matmul_norm_relu.norm_act(x, weight, norm.eval())
    assert error(given, F.relu(their_norm.eval()(x.double() @ their_weight.t()))) < CLOSE


def test_gradients_are_nothing_where_a_relu_gave_nothing():
    x = torch.randn(90, 64, device=DEVICE).relu().to(DTYPE).requires_grad_()
    weight, norm, *_ = layer(64, 48, 0)
    for out in (matmul_norm_relu.masked_product(x, weight), matmul_norm_relu.norm_act(x, weight, norm)):
        x.grad = None
        (out.float() * torch.randn(90, 48, device=DEVICE) * (out > 0)).sum().backward()
        assert (x.grad[x == 0] == 0).all()
        assert (x.grad[x > 0] != 0).any()


def test_a_column_that_never_changes():
    """Without variance, the result is beta, and only beta gets a gradient."""
    weight, norm, *_ = layer(32, 32, 0)
    x = torch.ones(64, 32, device=DEVICE, dtype=DTYPE)
    out = matmul_norm_relu.norm_act(x, weight, norm)
    assert torch.allclose(out[0].float(), F.relu(norm.bias), atol=2e-2)
    (out * (out > 0)).sum().backward()
    assert torch.isfinite(weight.grad).all()
    assert torch.equal(norm.bias.grad, 64.0 * (out[0] > 0))


def test_a_column_of_large_numbers_that_never_changes():
    """Rounding can make a variance of zero negative."""
    weight, norm, *_ = layer(32, 32, 0)
    out = matmul_norm_relu.norm_act(torch.full((640, 32), 1000.3, device=DEVICE).to(DTYPE), weight, norm)
    assert torch.isfinite(out).all()
    assert torch.isfinite(norm.running_var).all()


def test_widths_that_there_are_tiles_for():
    assert matmul_norm_relu.fits(32, 192)
    assert not any(matmul_norm_relu.fits(n, 64) or matmul_norm_relu.fits(64, n) for n in (24, 36, 100, 200))


def test_the_same_bits_every_time():
    def run():
        torch.manual_seed(0)
        x = torch.randn(700, 64, device=DEVICE).relu().to(DTYPE).requires_grad_()
        weight, norm, *_ = layer(64, 160, 0)
        out = matmul_norm_relu.norm_act(x, weight, norm)
        out.float().square().sum().backward()
        return out, x.grad, weight.grad, norm.weight.grad, norm.running_var

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))


@pytest.fixture
def chosen(monkeypatch):
    monkeypatch.setattr(matmul_norm_relu, "precision", lambda _: DTYPE)
    monkeypatch.setattr(norm_relu_pool, "usable", lambda *_: True)
    monkeypatch.setattr(networks, "ROWS", 20)  # 2 x 4 x 4 is more, 2 x 2 x 2 is not
    return monkeypatch


def test_which_blocks_are_products(chosen):
    network, x = NetworkInNetwork(3, 7), torch.zeros(2, 3, 8, 8)
    blocks = list(network.blocks)
    assert choose_kernels(blocks, x) == ["product", "product", "masked", None, "product", "masked", None, None, None]
    assert choose_kernels(blocks, x[:1]) == ["product", "product", "masked", *[None] * 6]
    assert choose_kernels(blocks, x.requires_grad_()) == [
        None,
        "product",
        "masked",
        None,
        "product",
        "masked",
        None,
        None,
        None,
    ]
    network.eval()
    assert choose_kernels(blocks, x.detach()) == ["product", "product", None, None, "product", None, None, None, None]
    chosen.setattr(matmul_norm_relu, "precision", lambda _: None)
    assert choose_kernels(blocks, x) == [None] * 9


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize(
    "hook",
    [
        lambda block: block.register_forward_hook(lambda *_: None),
        lambda block: block.register_forward_pre_hook(lambda *_: None),
        lambda block: block.register_full_backward_hook(lambda *_: None),
        lambda block: block.register_full_backward_pre_hook(lambda *_: None),
    ],
)
def test_blocks_with_hooks(hook):
    """The effect of a hook between two blocks would not be masked."""
    blocks, x = list(NetworkInNetwork(3, 7).blocks), torch.zeros(2, 3, 8, 8)
    handle = hook(blocks[1])
    assert choose_kernels(blocks, x) == [None] * 9
    handle.remove()
    assert choose_kernels(blocks, x)[0] == "product"


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize(
    "convolution",
    [
        nn.Conv2d(192, 160, (1, 3), padding=(0, 1), bias=False),
        nn.Conv2d(192, 160, 1, padding=1, bias=False),
        nn.Conv2d(192, 160, 1, stride=2, bias=False),
        nn.Conv2d(192, 160, 1, groups=2, bias=False),
        nn.Conv2d(192, 160, 1),
        nn.Conv2d(192, 160, 3, padding=1, padding_mode="circular", bias=False),
        nn.Conv2d(192, 160, 3, padding=2, dilation=2, bias=False),
    ],
)
def test_other_convolutions_in_a_block(convolution):
    torch.manual_seed(0)
    network = NetworkInNetwork(3, 7).to(DEVICE)
    network.blocks[1].convolution = convolution.to(DEVICE)
    x = torch.randn(2, 3, 8, 8, device=DEVICE)
    assert not network.blocks[1].fused(x)
    expected = x
    for block in network.blocks:
        expected = F.relu(block.norm(block.convolution(expected)))
        if block.pool:
            pool = F.max_pool2d if block.pool == "max" else F.avg_pool2d
            expected = pool(expected, 3, stride=2, padding=1)
    # Few pixels leave room for rounding; another convolution would be off by half.
    assert error(network(x), network.head(expected.mean((2, 3)))) < 1e-2


@pytest.mark.usefixtures("chosen")
def test_blocks_whose_gradients_would_not_be_masked():
    """The last block, blocks before a pool or a wide convolution, and widths without tiles."""
    x = torch.zeros(9, 3, 10, 10)
    assert choose_kernels([Block(3, 64, 5)], x) == [None]
    assert choose_kernels([Block(3, 64, 5, pool="max"), Block(64, 64, 1), Block(64, 64, 3)], x) == [None, None, None]
    assert choose_kernels([Block(3, 64, 5), Block(64, 300, 1)], x) == [None, None]
    assert choose_kernels([Block(3, 64, 5), Block(64, 64, 1)], x) == ["product", "masked"]
    assert choose_kernels([Block(6, 64, 5), Block(64, 64, 1)], torch.zeros(9, 6, 10, 10)) == [None, None]


@pytest.mark.parametrize(("training", "n_channels", "frozen"), [(True, 3, ()), (True, 1, (0, 5)), (False, 3, ())])
def test_the_whole_network(training, n_channels, frozen, chosen):
    torch.manual_seed(0)
    plain, fused = NetworkInNetwork(n_channels, 7).to(DEVICE).double(), NetworkInNetwork(n_channels, 7).to(DEVICE)
    for i in frozen:
        for network in (plain, fused):
            network.blocks[i].convolution.requires_grad_(False)
            network.blocks[i + 1].norm.requires_grad_(False)
    fused.load_state_dict(plain.state_dict())
    fused = fused.to(memory_format=torch.channels_last).train(training)
    x, y = torch.randn(2, n_channels, 8, 8, device=DEVICE), torch.tensor([3, 6], device=DEVICE)
    chosen.setattr(norm_relu_pool, "usable", lambda *_: False)
    expected = plain.train(training)(x.double())
    F.cross_entropy(expected, y).backward()
    chosen.setattr(norm_relu_pool, "usable", lambda *_: True)
    with torch.autocast("cuda", torch.bfloat16, enabled=DEVICE == "cuda"), torch.set_grad_enabled(training):
        given = fused(x.to(memory_format=torch.channels_last))
    assert error(given, expected) < 10 * CLOSE
    if training and DEVICE == "cpu":  # so few pixels leave too little of a gradient in bf16
        F.cross_entropy(given, y).backward()
        gradients, buffers = dict(plain.named_parameters()), dict(plain.named_buffers())
        for name, parameter in fused.named_parameters():
            if not parameter.requires_grad:
                assert parameter.grad is None
                continue
            assert parameter.grad.dtype == torch.float32
            assert error(parameter.grad, gradients[name].grad) < 1e-4, name
        for name, buffer in fused.named_buffers():
            if "running" in name:
                assert error(buffer, buffers[name]) < 1e-5, name


@pytest.mark.parametrize(
    ("version", "major", "memory", "obstacle"),
    [
        ("3.6.0", 9, 232448, None),
        ("3.6.0", 9, 166912, "they need 227 KiB of shared memory"),
        ("3.6.0", 8, 232448, "they are for GPUs of compute capability 9, such as the H100, and this one has 8"),
        ("3.6.0+git1234", 9, 232448, None),
        # compilers whose machine code has not been checked
        ("3.6.1", 9, 232448, "tested with Triton 3.6.0 only, and 3.6.1 is installed"),
        ("3.7.0", 9, 232448, "tested with Triton 3.6.0 only, and 3.7.0 is installed"),
    ],
)
def test_only_where_it_has_been_seen_to_work_and_the_log_says_once_why_not(
    version, major, memory, obstacle, monkeypatch, caplog
):
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    properties = types.SimpleNamespace(major=major, shared_memory_per_block_optin=memory)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    monkeypatch.setattr(matmul_norm_relu._kernels().triton, "__version__", version)
    matmul_norm_relu._supported.cache_clear()
    try:
        for _ in range(3):
            assert matmul_norm_relu._supported(0) is (obstacle is None)
        assert len(caplog.messages) == (obstacle is not None)
        assert all("so steps on cuda:0 take longer" in said and obstacle in said for said in caplog.messages)
        matmul_norm_relu._supported.cache_clear()
        monkeypatch.setenv("TRITON_PTXAS_PATH", "another")
        assert not matmul_norm_relu._supported(0)
        assert obstacle or "TRITON_PTXAS_PATH names another" in caplog.messages[-1]
    finally:
        matmul_norm_relu._supported.cache_clear()


def test_the_log_says_once_that_there_is_no_triton(monkeypatch, caplog):
    monkeypatch.setattr(norm_relu_pool, "_kernels", lambda: None)
    norm_relu_pool._imported.cache_clear()
    try:
        for _ in range(3):
            assert not norm_relu_pool.available(types.SimpleNamespace(is_cuda=True))
        assert caplog.messages == [
            "networks on GPUs train without fused kernels, so steps take longer: Triton cannot be imported"
        ]
        assert not norm_relu_pool.available(torch.zeros(1))
    finally:
        norm_relu_pool._imported.cache_clear()


def test_only_in_bf16(monkeypatch):
    monkeypatch.setattr(matmul_norm_relu, "_supported", lambda _: True)
    x = torch.zeros(1, device=DEVICE)
    assert matmul_norm_relu.precision(x) is None
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    assert matmul_norm_relu.precision(x) is torch.bfloat16
