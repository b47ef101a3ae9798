"""Procedural images and contrastive pretraining, at a tiny scale."""

import hashlib
import json
import math
import subprocess
import sys
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open
from torch import nn
from torch.nn import functional as F

from runoff.cli import main
from runoff.torch import building, networks, pretraining, procedural, starting
from runoff.torch.pretraining import Pretrainer, Pretraining
from runoff.torch.procedural import Draws

TINY = Pretraining(steps=3, batch=4, warm_up=2, renewed=2)
CPU = torch.device("cpu")


def pretrained(settings=TINY, network="small"):
    pretrainer = Pretrainer(network, settings, "cpu")
    losses = [float(loss) for loss in pretrainer.run()]
    return losses, pretrainer.state()


@pytest.mark.parametrize("kind", procedural.KINDS)
def test_textures_are_around_zero_and_differ(kind):
    made = procedural.textures(Draws(0, CPU), 8, (kind,))
    assert made.shape == (8, 3, procedural.TEXTURE, procedural.TEXTURE)
    assert torch.isfinite(made).all()
    assert abs(float(made.mean())) < 0.1
    assert 0.1 < float(made.std()) < 0.3
    assert len({hashlib.sha256(one.numpy().tobytes()).hexdigest() for one in made}) == 8


def test_scenes_are_images_with_leaves_and_strokes_that_follow_from_the_seed():
    def drawn(seed, strokes=0.3):
        draws = Draws(seed, CPU)
        return procedural.scenes(draws, 4, procedural.textures(draws, 8), strokes)

    one = drawn(1)
    assert one.shape == (4, 3, procedural.SIZE, procedural.SIZE)
    assert 0 <= float(one.min()) < float(one.max()) <= 1
    assert torch.equal(one, drawn(1))
    assert not torch.equal(one, drawn(2))
    assert not torch.equal(drawn(1, 1.0), drawn(1, 0.0))
    layers, light = procedural._leaves(Draws(0, CPU), 8)
    assert set(layers.unique().tolist()) <= set(range(procedural.LEAVES + 1))
    assert (light[layers == 0] == 1).all()
    assert 0.1 < float((layers > 0).float().mean()) < 0.9


def test_views_of_a_scene_are_normalised_and_differ():
    draws = Draws(0, CPU)
    images = procedural.scenes(draws, 6, procedural.textures(draws, 16))
    one, other = (pretraining.view(draws, images) for _ in range(2))
    assert one.shape == (6, 3, pretraining.VIEW, pretraining.VIEW)
    torch.testing.assert_close(one.mean((0, 2, 3)), torch.zeros(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(one.std((0, 2, 3)), torch.ones(3), rtol=0, atol=1e-2)
    assert not torch.equal(one, other)


def test_the_loss_against_a_loop():
    z = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    unit = (z / z.norm(dim=1, keepdim=True)).double()
    total = 0.0
    for i in range(8):
        near = [float(unit[i] @ unit[j]) / 0.2 if j != i else -np.inf for j in range(8)]
        total -= near[(i + 4) % 8] - np.log(np.exp(near).sum())
    assert float(pretraining.contrast(z, 0.2)) == pytest.approx(total / 8, rel=1e-5)
    assert float(pretraining.contrast(torch.eye(4).repeat(2, 1), 0.01)) == pytest.approx(0, abs=1e-6)


def test_the_same_settings_give_the_same_weights_and_the_last_layer_stays_out():
    losses, state = pretrained()
    again, same = pretrained()
    assert losses == again
    assert all(torch.equal(state[name], same[name]) for name in state)
    other = pretrained(Pretraining(steps=3, batch=4, warm_up=2, renewed=2, seed=1))[1]
    assert not torch.equal(state["features.0.weight"], other["features.0.weight"])
    assert not any(name.startswith("head") or "batches" in name for name in state)
    assert state["features.0.weight"].dtype == torch.float16
    expected = pretraining.NORM * math.sqrt(len(state["features.0.weight"]) / 3)
    assert float(state["features.0.weight"].float().norm()) == pytest.approx(expected, rel=1e-3)
    assert Pretraining(steps=100, warm_up=10).rate(0) == pytest.approx(2e-4)
    assert Pretraining(steps=100, warm_up=10).rate(99) < 1e-6


def test_the_same_settings_give_the_same_file_in_every_process(tmp_path):
    code = (
        "import sys; from pathlib import Path; from runoff.torch.pretraining import Pretrainer, Pretraining; "
        "p = Pretrainer('small', Pretraining(steps=1, batch=2, stock=2), 'cpu'); list(p.run()); "
        "p.write(Path(sys.argv[1]), 'a command')"
    )
    files = [tmp_path / name for name in ("one", "other", "third")]
    for file in files:
        subprocess.run([sys.executable, "-c", code, str(file)], check=True)
    assert len({file.read_bytes() for file in files}) == 1


@pytest.mark.parametrize("name", ["nin", "small"])
def test_scaled_convolutions_compute_the_same_and_have_one_norm(name):
    module = building.build(networks.get(name), (32, 32, 3), 10, np.random.SeedSequence(0)).eval()
    x = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.copy_(torch.randn(len(layer.running_mean)))
                layer.running_var.copy_(torch.rand(len(layer.running_var)) + 0.5)
                layer.eps = 0.0
        before = module(x)
        pretraining.scale_convolutions(module)
        assert torch.allclose(module(x), before, rtol=1e-3, atol=1e-4)
    convolutions = [layer.weight for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convolutions) == {"nin": 9, "small": 2}[name]
    for weight in convolutions:
        fresh = torch.empty_like(weight)
        nn.init.kaiming_uniform_(fresh, a=math.sqrt(5))  # what PyTorch starts with
        assert float(weight.detach().norm() / fresh.norm()) == pytest.approx(pretraining.NORM, rel=0.05)


def test_scenes_are_drawn_several_times_and_replaced_little_by_little():
    pretrainer = Pretrainer("small", Pretraining(steps=9, batch=8, stock=3, uses=4), "cpu")
    pretrainer._images(0)
    first = pretrainer.stock.clone()
    for step in range(1, 5):
        drawn = pretrainer._images(step)
        assert drawn.shape == (8, 3, procedural.SIZE, procedural.SIZE)
        assert all(any(torch.equal(image, scene / 255) for scene in pretrainer.stock) for image in drawn)
    changed = (pretrainer.stock != first).flatten(1).any(1)
    assert changed.tolist() == [False] * 2 + [True] * 8 + [False] * 14  # a quarter of a batch in each step


def test_a_captured_step_runs_once_for_each_input(monkeypatch):
    """With a graph that runs nothing while it is captured, and the step again when it is replayed."""
    done, capturing = [], []

    class Stream:
        def wait_stream(self, _):
            pass

    class Graph:
        def replay(self):
            captured.loss.copy_(step(captured.x))

    @contextmanager
    def capture(graph, stream):
        assert (graph, stream) == (captured.graph, captured.stream)
        capturing.append(True)
        yield
        capturing.pop()

    def step(x):
        if capturing:
            return torch.zeros(())
        done.append(x.clone())
        return x.sum()

    for name, fake in (("Stream", Stream), ("CUDAGraph", Graph), ("current_stream", Stream), ("graph", capture)):
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    captured = pretraining._Captured(step)
    given = [torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last) for _ in range(7)]
    losses = [captured(x) for x in given]
    assert [float(loss) for loss in losses] == [float(x.sum()) for x in given]
    assert all(torch.equal(x, y) for x, y in zip(done, given, strict=True))
    assert captured.x.is_contiguous(memory_format=torch.channels_last)


def test_pretraining_learns_to_tell_scenes_apart():
    settings = Pretraining(steps=40, batch=8, warm_up=5, renewed=20)
    losses, _ = pretrained(settings)
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1


def test_the_command_writes_weights_that_members_start_from(tmp_path):
    out, sheet = tmp_path / "w.safetensors", tmp_path / "sheet.png"
    options = ["--steps", "2", "--batch", "2", "--network", "small", "--device", "cpu", "--json"]
    result = CliRunner().invoke(main, ["pretrain", "--out", str(out), "--sheet", str(sheet), *options])
    assert result.exit_code == 0, result.output
    given = json.loads(result.output)
    assert given["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert sheet.read_bytes().startswith(b"\x89PNG")
    with safe_open(out, framework="pt") as file:
        about = json.loads(file.metadata()["runoff"])
    assert about["command"].startswith("runoff pretrain --steps 2 --batch 2 --network small --seed 0")
    assert about["weights"] == "random"
    # With the images that it was pretrained on, a network of its own starts from it.
    state = starting.get(out, "small").state
    shape = (pretraining.VIEW, pretraining.VIEW, 3)
    module = building.build(starting.start("small", out), shape, 10, np.random.SeedSequence(0))
    assert torch.equal(module.features[0].weight, state["features.0.weight"])
    assert torch.isfinite(F.softmax(module(torch.rand(2, 3, 32, 32)), dim=1)).all()
    further = tmp_path / "further.safetensors"
    result = CliRunner().invoke(main, ["pretrain", "--out", str(further), "--weights", str(out), *options])
    assert result.exit_code == 0, result.output
    with safe_open(further, framework="pt") as file:
        about = json.loads(file.metadata()["runoff"])
    assert about["weights"] == given["sha256"]
    assert about["command"].endswith(f"--weights {out} --out further.safetensors")
    told = CliRunner().invoke(main, ["pretrain", "--out", str(out), "--network", "resnet"])
    assert told.exit_code == 2
    assert "'resnet' is not one of 'nin', 'small'" in told.output
