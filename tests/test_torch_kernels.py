"""The fused kernels against the plain layers: on a GPU if there is one, else in Triton's interpreter."""

import os

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported, which only a GPU does otherwise
pytest.importorskip("triton")

from runoff.torch import NetworkInNetwork, Recipe  # noqa: E402
from runoff.torch.kernels import batch_and_head, norm_relu_pool  # noqa: E402
from runoff.torch.networks import Block  # noqa: E402
from runoff.torch.training import augment, random_draws  # noqa: E402


def error(given, expected):
    given, expected = given.detach().double(), expected.detach().double()
    return float((given - expected).norm() / expected.norm())


def back(given, expected):
    """Send the same gradients back through both."""
    weights = torch.randn_like(expected)
    (given * weights.float()).sum().backward()
    (expected * weights).sum().backward()


def pooled(x, pool):
    if pool == "max":
        return F.max_pool2d(x, 3, 2, 1)
    return F.avg_pool2d(x, 3, 2, 1) if pool == "avg" else x


@pytest.mark.parametrize("pool", [None, "max", "avg"])
@pytest.mark.parametrize("shape", [(3, 40, 7, 7), (2, 96, 8, 6), (2, 64, 12, 5), (5, 192, 3, 3), (2, 32, 28, 28)])
def test_batch_norm_relu_and_pools(pool, shape):
    torch.manual_seed(sum(shape))
    ours, theirs = nn.BatchNorm2d(shape[1]).to(DEVICE), nn.BatchNorm2d(shape[1]).to(DEVICE).double()
    nn.init.normal_(ours.weight)  # of either sign: the largest before is the smallest after
    nn.init.normal_(ours.bias)
    theirs.load_state_dict(ours.state_dict())
    x = 2 * torch.randn(shape, device=DEVICE) + 1
    a, b = x.clone().requires_grad_(), x.double().requires_grad_()
    given, expected = norm_relu_pool.norm_act(a, ours, pool, True), pooled(F.relu(theirs(b)), pool)
    assert given.shape == expected.shape
    assert error(given, expected) < 1e-6
    back(given, expected)
    assert error(a.grad, b.grad) < 1e-5
    assert error(ours.weight.grad, theirs.weight.grad) < 1e-5
    assert error(ours.bias.grad, theirs.bias.grad) < 1e-5
    assert error(ours.running_mean, theirs.running_mean) < 1e-5
    assert error(ours.running_var, theirs.running_var) < 1e-5
    given = norm_relu_pool.norm_act(x, ours.eval(), pool, False)
    assert error(given, pooled(F.relu(theirs.eval()(x.double())), pool)) < 1e-5


def test_ties_and_negative_windows_go_as_in_pytorch():
    """Windows of equal values, and windows without positive values: no gradient is counted twice or lost."""
    x = torch.zeros(1, 32, 4, 4, device=DEVICE)
    x[:, :16, 1, 1] = x[:, :16, 1, 2] = 1.0
    ours, theirs = nn.BatchNorm2d(32).to(DEVICE), nn.BatchNorm2d(32).to(DEVICE)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    (norm_relu_pool.norm_act(a, ours, "max", True)).sum().backward()
    pooled(F.relu(theirs(b)), "max").sum().backward()
    torch.testing.assert_close(ours.bias.grad, theirs.bias.grad)
    torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("n_in", "size"), [(3, 9), (1, 7), (4, 6), (2, 5), (5, 5)])
def test_the_first_convolution(n_in, size):
    torch.manual_seed(n_in)
    x = torch.randn(2, n_in, size, size + 1, device=DEVICE).to(memory_format=torch.channels_last)
    ours = torch.randn(24, n_in, 5, 5, device=DEVICE, requires_grad=True)
    theirs = ours.detach().double().requires_grad_()
    given, expected = batch_and_head.first_convolution(x, ours), F.conv2d(x.double(), theirs, padding=2)
    assert error(given, expected) < 1e-5
    back(given, expected)
    assert error(ours.grad, theirs.grad) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n_in", [1, 2, 3, 6])
def test_patches_are_copies(n_in, dtype):
    x = torch.randn(2, n_in, 5, 6, device=DEVICE).to(memory_format=torch.channels_last)
    x = x.bfloat16().float()  # Triton's interpreter cuts off where a GPU rounds
    given = batch_and_head.patches(x, 3, dtype)
    channels = 1 << (n_in - 1).bit_length()
    rows = given[:, : 9 * channels].view(2, 30, 9, channels)
    expected = F.unfold(x, 3, padding=1).view(2, n_in, 9, 30).permute(0, 3, 2, 1)
    assert torch.equal(rows[..., :n_in].float(), expected)
    assert not rows[..., n_in:].any()
    assert not given[:, 9 * channels :].any()


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("shape", [(9, 7, 3), (6, 6, 1), (20, 17, 2)])
@pytest.mark.parametrize(("crop", "flip"), [(2, True), (0, True), (3, False), (0, False)])
def test_the_batch_has_the_bits_of_plain_augmentation(crop, flip, shape, dtype):
    recipe = Recipe(epochs=3, batch_size=4, crop=crop, flip=flip)
    draws = np.random.default_rng(sum(shape))
    images = augment.padded(torch.from_numpy(draws.integers(0, 256, (11, *shape)).astype(dtype)), recipe).to(DEVICE)
    labels = torch.from_numpy(draws.integers(0, 9, 11)).to(DEVICE)
    mean, std = torch.rand(shape[-1], device=DEVICE) * 99, torch.rand(shape[-1], device=DEVICE) + 40
    drawn = random_draws.draw(recipe, 11, shape, np.random.SeedSequence(1))
    tables = {name: torch.from_numpy(value).to(DEVICE) for name, value in drawn.tables().items()}
    for step in (0, len(drawn.rows) - 1):
        clock = torch.tensor([step], device=DEVICE)
        given, batch_labels, rate = batch_and_head.batch(images, labels, clock, tables, recipe, mean, std)
        row = {name: table[step] for name, table in tables.items()}
        assert torch.equal(given, augment.batch(images, row, recipe, mean, std))
        assert torch.equal(batch_labels, labels[row["rows"]])
        assert torch.equal(rate, row["rates"])


@pytest.mark.parametrize(("size", "n_channels", "n_classes"), [((8, 8), 192, 10), ((3, 5), 40, 43), ((1, 1), 16, 2)])
def test_the_last_mean_and_linear_layer(size, n_channels, n_classes):
    torch.manual_seed(n_classes)
    x = torch.randn(37, n_channels, *size, device=DEVICE, requires_grad=True)
    linear = nn.Linear(n_channels, n_classes).to(DEVICE)
    linear.weight = nn.Parameter(linear.weight.detach().t().contiguous().t())  # as some parametrizations leave it
    theirs = [value.detach().double().requires_grad_() for value in (x, linear.weight, linear.bias)]
    given = batch_and_head.head(x, linear.weight, linear.bias)
    expected = F.linear(theirs[0].mean((2, 3)), *theirs[1:])
    assert error(given, expected) < 1e-5
    back(given, expected)
    for ours, their in zip((x, linear.weight, linear.bias), theirs, strict=True):
        assert error(ours.grad, their.grad) < 1e-5


def test_sums_over_many_rows_of_few_channels():
    torch.manual_seed(0)
    ours, theirs = nn.BatchNorm2d(32).to(DEVICE), nn.BatchNorm2d(32).to(DEVICE).double()
    x = torch.randn(1, 32, 257, 259, device=DEVICE)
    assert norm_relu_pool._sum_grid(257 * 259, 32) != norm_relu_pool._sum_grid(257 * 2, 32)
    a, b = x.clone().requires_grad_(), x.double().requires_grad_()
    given, expected = norm_relu_pool.norm_act(a, ours, None, True), F.relu(theirs(b))
    assert error(given, expected) < 1e-6
    back(given, expected)
    assert error(a.grad, b.grad) < 1e-5
    assert error(ours.weight.grad, theirs.weight.grad) < 1e-5


def test_only_what_fits_into_32_bits(monkeypatch):
    monkeypatch.setattr(norm_relu_pool, "available", lambda _: True)
    assert norm_relu_pool.usable(torch.empty(512, 3, 147, 147, device="meta"), 192)
    assert not norm_relu_pool.usable(torch.empty(512, 3, 148, 148, device="meta"), 192)
    assert not Block(3, 192, 5).fused(torch.empty(512, 3, 146, 146, device="meta"))  # 200 columns of patches


def test_bits_that_an_environment_decides(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "0")
    before = norm_relu_pool.version()
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    assert before != norm_relu_pool.version()


@pytest.mark.parametrize("block", [Block(3, 16, 4), Block(3, 16, 5).eval(), Block(9, 16, 3).eval()])
def test_blocks_that_have_no_kernels_of_their_own(block, monkeypatch):
    """Even sizes, and gradients in evaluation mode, as in fine-tuning."""
    torch.manual_seed(0)
    block = block.to(DEVICE)
    x = torch.randn(2, block.convolution.in_channels, 8, 8, device=DEVICE)
    answers = []
    for there in (False, True):
        monkeypatch.setattr(norm_relu_pool, "available", lambda _, there=there: there)
        block.zero_grad()
        out = block(x)
        out.square().sum().backward()
        answers.append((out, block.convolution.weight.grad.clone(), block.norm.weight.grad.clone()))
    for given, expected in zip(*answers, strict=True):
        assert given.shape == expected.shape
        assert error(given, expected) < 1e-4


class Doubling(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("change", ["a layer more", "no bias", "another head"])
def test_networks_that_were_changed(change, monkeypatch):
    torch.manual_seed(0)
    network = NetworkInNetwork(3, 7).to(DEVICE).eval()
    if change == "a layer more":
        network.blocks.insert(3, nn.Upsample(scale_factor=2))
    elif change == "no bias":
        network.head = nn.Linear(192, 7, bias=False).to(DEVICE)
    else:
        network.head = Doubling(192, 7).to(DEVICE)
    x = torch.randn(2, 3, 8, 8, device=DEVICE)
    answers = []
    for there in (False, True):
        monkeypatch.setattr(norm_relu_pool, "available", lambda _, there=there: there)
        with torch.no_grad():
            answers.append(network(x))
    assert error(*answers) < 1e-4


@pytest.mark.parametrize("training", [True, False])
def test_the_whole_network(training, monkeypatch):
    torch.manual_seed(0)
    plain, fused = NetworkInNetwork(3, 7).to(DEVICE).double(), NetworkInNetwork(3, 7).to(DEVICE)
    fused.load_state_dict(plain.state_dict())
    fused = fused.to(memory_format=torch.channels_last).train(training)
    x, y = torch.randn(4, 3, 10, 10, device=DEVICE), torch.tensor([0, 3, 6, 2], device=DEVICE)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(norm_relu_pool, "usable", lambda *_: False)
    expected = plain.train(training)(x.double())
    F.cross_entropy(expected, y).backward()
    monkeypatch.setattr(norm_relu_pool, "usable", lambda *_: True)
    given = fused(x.to(memory_format=torch.channels_last))
    assert error(given, expected) < 1e-4
    if training:
        F.cross_entropy(given, y).backward()
        gradients = dict(plain.named_parameters())
        for name, parameter in fused.named_parameters():
            assert error(parameter.grad, gradients[name].grad) < 2e-2, name
        buffers = dict(plain.named_buffers())
        for name, buffer in fused.named_buffers():
            if "running" in name:
                assert error(buffer, buffers[name]) < 1e-4, name


def test_the_same_bits_every_time():
    def run():
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(64).to(DEVICE)
        x = torch.randn(3, 64, 9, 9, device=DEVICE, requires_grad=True)
        out = norm_relu_pool.norm_act(x, norm, "max", True)
        out.square().sum().backward()
        return out, x.grad, norm.weight.grad, norm.running_var

    assert all(torch.equal(a, b) for a, b in zip(run(), run(), strict=True))
