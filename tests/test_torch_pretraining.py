"""Procedural images and contrastive pretraining, at a tiny scale."""

import hashlib
import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors import safe_open
from torch.nn import functional as F

from runoff.cli import main
from runoff.torch import building, pretraining, procedural, starting
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
    assert Pretraining(steps=100, warm_up=10).rate(0) == pytest.approx(2e-4)
    assert Pretraining(steps=100, warm_up=10).rate(99) < 1e-6


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
        assert file.metadata()["command"].startswith("runoff pretrain --steps 2 --batch 2 --network small --seed 0")
    # With the images that it was pretrained on, a network of its own starts from it.
    state = starting.get(out, "small").state
    shape = (pretraining.VIEW, pretraining.VIEW, 3)
    module = building.build(starting.start("small", out), shape, 10, np.random.SeedSequence(0))
    assert torch.equal(module.features[0].weight, state["features.0.weight"])
    assert torch.isfinite(F.softmax(module(torch.rand(2, 3, 32, 32)), dim=1)).all()
    told = CliRunner().invoke(main, ["pretrain", "--out", str(out), "--network", "resnet"])
    assert told.exit_code == 2
    assert "'resnet' is not one of 'nin', 'small'" in told.output
