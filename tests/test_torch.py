"""Recipes, networks, augmentation, checkpoints and the estimator, on the CPU."""

import dataclasses
import json
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits
from torch import nn
from torch.nn import functional as F

import runoff
from helpers import rehash
from runoff.errors import CheckpointError, DeviceError, InputError, MemberError, StorageError
from runoff.isolation import seeds_of
from runoff.torch import (
    RECIPES,
    Checkpoints,
    Job,
    NetworkInNetwork,
    Recipe,
    TorchClassifier,
    Trainer,
    building,
    devices,
    networks,
)
from runoff.torch.identities import Identities
from runoff.torch.training import augment, jobs, random_draws, slots

X, Y = load_digits(return_X_y=True)
X = X.reshape(-1, 8, 8).astype(np.uint8)
TEST = np.arange(len(Y)) % 5 == 0
TRAIN_X, TRAIN_Y, TEST_X, TEST_Y = X[~TEST], Y[~TEST], X[TEST], Y[TEST]
SHORT = Recipe(epochs=2, batch_size=32, lr=0.05)


def classifier(**settings):
    kept = {"n_partitions": 4, "classes": range(10), "device": "cpu", "recipe": SHORT}
    return TorchClassifier(**kept | settings)


# -- recipes and draws -------------------------------------------------------------------------------------------------


def test_the_papers_recipe():
    recipe = RECIPES["paper"]
    assert (recipe.batch_of(1000), recipe.steps_of(1000)) == (128, 1562)
    rates, epochs = recipe.rates(1000), np.arange(1562) * 128 // 1000
    for first, last, rate in ((0, 59, 0.1), (60, 119, 0.02), (120, 159, 0.004), (160, 199, 0.0008)):
        np.testing.assert_allclose(rates[(epochs >= first) & (epochs <= last)], rate, rtol=1e-6)
    assert not RECIPES["paper-no-flip"].flip
    # Members below a batch take about one step an epoch.
    for n in (2, 9, 20, 44, 50, 61, 127):
        batch = recipe.batch_of(n)
        assert batch >= 16
        assert batch % 8 == 0
        assert n < 20 or abs(batch - n) <= 4
        assert recipe.steps_of(n) == max(1, round(200 * n / batch))


def test_draws_are_whole_epochs_in_one_stream_and_each_purpose_has_its_own_numbers():
    source = seeds_of(0, 7, 1)[0]
    recipe = dataclasses.replace(RECIPES["paper"], epochs=9)
    drawn = random_draws.draw(recipe, 300, (32, 32, 3), source)
    assert drawn.rows.shape == (recipe.steps_of(300), 128)
    stream = drawn.rows.reshape(-1)
    for start in range(0, len(stream) - 300, 300):
        assert sorted(stream[start : start + 300]) == list(range(300))
    assert drawn.shifts.min() == 0
    assert drawn.shifts.max() == 8
    assert 0.45 < drawn.flips.mean() < 0.55
    more = random_draws.draw(dataclasses.replace(recipe, jitter=0.4, cutout=8, mixup=1.0), 300, (32, 32, 3), source)
    for name in ("rows", "shifts", "flips", "seeds"):
        np.testing.assert_array_equal(getattr(more, name), getattr(drawn, name))
    assert abs(more.jitter - 1).max() <= 0.4
    other = random_draws.draw(recipe, 300, (32, 32, 3), seeds_of(0, 8, 1)[0])
    assert (other.rows != drawn.rows).any()


@pytest.mark.parametrize(
    ("n", "batch", "sizes"), [(300, 128, [128, 128, 44]), (257, 128, [128, 128, 1]), (50, 50, [50])]
)
def test_with_leftover_each_epoch_is_cut_on_its_own(n, batch, sizes):
    recipe = dataclasses.replace(RECIPES["paper-literal"], epochs=9, milestones=(2, 5))
    drawn = random_draws.draw(recipe, n, (32, 32, 3), seeds_of(0, 7, 1)[0])
    assert recipe.batch_of(n) == batch
    assert len(drawn.rows) == len(drawn.rates) == len(drawn.shifts) == recipe.steps_of(n) == 9 * len(sizes)
    step = 0
    for epoch in range(9):
        seen = []
        for size in sizes:
            assert (drawn.size_of(step) or batch) == size
            assert drawn.rates[step] == np.float32(0.1 * 0.2 ** ((epoch >= 2) + (epoch >= 5)))
            seen += drawn.rows[step, :size].tolist()
            step += 1
        assert sorted(seen) == list(range(n))
    full = random_draws.draw(RECIPES["paper"], 300, (32, 32, 3), seeds_of(0, 7, 1)[0])
    assert {full.size_of(step) for step in range(len(full.rates))} == {None}


def test_networks_that_cannot_be_trained_on_one_sample_are_rejected_whatever_is_left():
    rows = X.reshape(-1, 64)
    recipe = dataclasses.replace(SHORT, leftover=True)
    with pytest.raises(ValueError, match="network must accept a batch of one sample in training"):
        classifier(recipe=recipe).fit(rows[:200], Y[:200])


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (
            lambda n: (nn.Flatten(), nn.Linear(128, n)),
            r"network must score inputs of shape \(1, 8, 8\), but it raised Run",
        ),
        (lambda n: (nn.Flatten(), nn.Linear(64, n + 1)), r"network must return one score per class, \(2, 10\) for 2"),
    ],
)
def test_networks_of_another_form_are_explained(layers, message):
    def network(shape, n_classes):  # noqa: ARG001
        return nn.Sequential(*layers(n_classes))

    with pytest.raises(InputError, match=message):
        classifier(network=network).fit(TRAIN_X[:40], TRAIN_Y[:40])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schedule": "linear"}, "schedule must be one of"),
        ({"optimizer": "lion"}, "optimizer must be one of"),
        ({"precision": "fp8"}, "precision must be one of"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"lr": float("nan")}, "lr must be a number of at least 0, got nan"),
        ({"jitter": 1.5}, "jitter must be at most 1"),
    ],
)
def test_an_invalid_recipe(change, told):
    with pytest.raises(ValueError, match=told):
        dataclasses.replace(SHORT, **change)
    with pytest.raises(ValueError, match="recipe must be a Recipe or one of 'paper'"):
        classifier(recipe="papr").fit(TRAIN_X, TRAIN_Y)


def test_recipes_are_data():
    for recipe in RECIPES.values():
        assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    with pytest.raises(dataclasses.FrozenInstanceError):
        RECIPES["paper"].epochs = 3


# -- augmentation, against loops over pixels ---------------------------------------------------------------------------


def test_crops_flips_and_holes_against_loops():
    draws = np.random.default_rng(0)
    images = draws.integers(1, 256, (5, 6, 7, 3), dtype=np.uint8)
    recipe = Recipe(epochs=1, crop=2, flip=True, cutout=3)
    mean, std = jobs.statistics(images)
    rows, flips = np.array([4, 0, 2]), np.array([True, False, True])
    shifts, holes = np.array([[0, 4], [2, 2], [3, 1]]), np.array([[0, 6], [3, 3], [5, 0]])
    tables = {"rows": rows, "flips": flips, "shifts": shifts, "holes": holes}
    given = augment.batch(
        augment.padded(torch.from_numpy(images), recipe),
        {name: torch.from_numpy(value) for name, value in tables.items()},
        recipe,
        torch.from_numpy(mean),
        torch.from_numpy(std),
    )
    assert given.shape == (3, 3, 6, 7)
    for i in range(3):
        for h in range(6):
            for w in range(7):
                y = h + shifts[i, 0] - 2
                x = (6 - w if flips[i] else w) + shifts[i, 1] - 2
                pixel = images[rows[i], y, x] if 0 <= y < 6 and 0 <= x < 7 else np.zeros(3)
                expected = (pixel - mean) / std
                if -1 <= h - holes[i, 0] <= 1 and -1 <= w - holes[i, 1] <= 1:
                    expected = np.zeros(3)
                np.testing.assert_allclose(given[i, :, h, w], expected, rtol=1e-5, atol=1e-6)


def test_jitter_of_nothing_is_nothing_and_a_gray_image_has_no_colour_to_change():
    x = torch.rand(2, 4, 4, 3)
    torch.testing.assert_close(augment.jittered(x, torch.ones(2, 3)), x)
    gray = torch.rand(2, 4, 4, 1).expand(-1, -1, -1, 3)
    torch.testing.assert_close(augment.jittered(gray, torch.tensor([[1.0, 1.0, 0.6], [1.0, 1.0, 1.4]])), gray)
    darker = augment.jittered(x, torch.tensor([[0.5, 1.0, 1.0]] * 2))
    torch.testing.assert_close(darker, x / 2)


def test_statistics_are_exact_and_leave_constant_channels_alone():
    images = np.random.default_rng(0).integers(0, 256, (50, 9, 9, 3), dtype=np.uint8)
    images[..., 2] = 7
    mean, std = jobs.statistics(images)
    np.testing.assert_allclose(mean, images.reshape(-1, 3).mean(0), rtol=1e-6)
    np.testing.assert_allclose(std[:2], images.reshape(-1, 3).std(0)[:2], rtol=1e-6)
    assert std[2] == 1


def test_statistics_of_many_pixels_do_not_overflow():
    images = np.zeros((1, 5000, 5000, 1), np.uint8)  # as many pixels as 24,400 images of CIFAR-10
    images[:, :2500] = 255
    mean, std = jobs.statistics(images)
    assert mean.tolist() == std.tolist() == [127.5]


# -- networks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "n_classes"), [((3, 32, 32), 10), ((1, 28, 28), 10), ((3, 48, 48), 43)])
def test_network_in_network_is_the_papers(shape, n_classes):
    network = networks.network_in_network(shape, n_classes)
    assert network(torch.randn(2, *shape)).shape == (2, n_classes)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert [(c.kernel_size[0], c.out_channels) for c in convolutions] == [
        (5, 192), (1, 160), (1, 96), (5, 192), (1, 192), (1, 192), (3, 192), (1, 192), (1, 192)
    ]  # fmt: skip
    weights = sum(c.weight.numel() for c in convolutions) + 2 * sum(c.out_channels for c in convolutions)
    assert sum(p.numel() for p in network.parameters()) == weights + 193 * n_classes


def plain_optimizer(network, recipe):
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(network.parameters(), weight_decay=recipe.weight_decay)
    return torch.optim.SGD(
        network.parameters(), momentum=recipe.momentum, nesterov=recipe.nesterov, weight_decay=recipe.weight_decay
    )


def plain_loop(job, recipe, n_classes=10):
    """Train one network in the usual way: a module, an optimiser, a loop."""
    images = job.images()
    mean, std = jobs.statistics(images)
    drawn = random_draws.draw(recipe, len(images), images.shape[1:], job.source)
    network = building.build(networks.small, images.shape[1:], n_classes, random_draws.initial_seed(job.source))
    optimizer = plain_optimizer(network, recipe)
    sizes = np.full(len(drawn.rates), drawn.rows.shape[1]) if drawn.sizes is None else drawn.sizes
    for rows, shifts, flips, rate, size in zip(drawn.rows, drawn.shifts, drawn.flips, drawn.rates, sizes, strict=True):
        rows = rows[:size]
        batch = np.zeros((len(rows), *images.shape[1:]), np.float32)
        for i, row in enumerate(rows):
            image = np.pad(images[row], ((1, 1), (1, 1), (0, 0)))[shifts[i, 0] :, shifts[i, 1] :][:8, :8]
            batch[i] = ((image[:, ::-1] if flips[i] else image) - mean) / std
        for group in optimizer.param_groups:
            group["lr"] = float(rate)
        loss = F.cross_entropy(network(torch.from_numpy(batch).permute(0, 3, 1, 2)), torch.from_numpy(job.labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network


@pytest.mark.parametrize(
    "change",
    [
        {}, {"nesterov": False}, {"nesterov": False, "momentum": 0.0}, {"optimizer": "adamw", "lr": 1e-3},
        {"leftover": True},
    ],
)  # fmt: skip
def test_training_is_what_a_plain_loop_does(change):
    recipe = Recipe(epochs=4, batch_size=32, schedule="steps", milestones=(1, 3), crop=1, flip=True)
    recipe = dataclasses.replace(recipe, **change)
    rows = np.arange(100)
    job = Job(3, 0, seeds_of(0, 3, 1)[0], X[..., None], rows, Y[rows])
    trainer = Trainer(networks.small, recipe, (8, 8, 1), 10, device="cpu")
    (ours,) = trainer.train([job])
    theirs = plain_loop(job, recipe).state_dict()
    for name, value in theirs.items():
        torch.testing.assert_close(ours.state[name], value, rtol=2e-3, atol=2e-4)


# -- the estimator -----------------------------------------------------------------------------------------------------


def test_three_lines():
    fitted = TorchClassifier(n_partitions=10, classes=range(10), device="cpu").fit(TRAIN_X, TRAIN_Y)
    certificates = fitted.certify(TEST_X)
    np.testing.assert_array_equal(fitted.predict(TEST_X), certificates.prediction)
    accuracy = runoff.certified_accuracy(certificates, TEST_Y, [0, 2])
    assert accuracy[0] > 0.85
    assert accuracy[1] > 0.4
    assert runoff.certify(fitted.scores(TEST_X)).radius.tolist() == certificates.radius.tolist()


def test_rows_of_numbers_tensors_and_labels_of_any_kind():
    rows, labels = load_breast_cancer(return_X_y=True)
    names = np.array(["malignant", "benign"])[labels]
    fitted = TorchClassifier(n_partitions=5, classes=["benign", "malignant"], device="cpu").fit(rows[:400], names[:400])
    assert (fitted.predict(rows[400:]) == names[400:]).mean() > 0.85
    a = classifier().fit(TRAIN_X, TRAIN_Y).scores(TEST_X).values
    tensor = torch.from_numpy(TRAIN_X)[:, None]
    b = classifier().fit(tensor, torch.from_numpy(TRAIN_Y)).scores(torch.from_numpy(TEST_X)[:, None]).values
    np.testing.assert_array_equal(a, b)
    lists = classifier().fit(list(TRAIN_X), TRAIN_Y.tolist()).scores(list(TEST_X)).values
    np.testing.assert_array_equal(a, lists)


def test_scores_of_a_member_are_the_mean_of_its_networks_logits():
    fitted = classifier(n_seeds=3).fit(TRAIN_X, TRAIN_Y)
    trainer = fitted.trainer()
    for m in fitted.members_:
        states = list(enumerate(m.fitted))
        logits = dict(trainer.score(states, TEST_X[..., None]))
        network = networks.small((1, 8, 8), 10)
        own = {n: v for n, v in m.fitted[0].items() if not n.startswith("runoff:")}
        network.load_state_dict(own)
        x = (torch.from_numpy(TEST_X[..., None]).float() - m.fitted[0][slots.MEAN]) / m.fitted[0][slots.STD]
        with torch.no_grad():
            torch.testing.assert_close(
                torch.from_numpy(logits[0]), network.eval()(x.permute(0, 3, 1, 2)), rtol=1e-4, atol=1e-4
            )
        mean = np.mean([logits[s].astype(np.float64) for s in range(3)], axis=0)
        np.testing.assert_array_equal(fitted.scores(TEST_X).values[:, m.index], mean.astype(np.float32))


def test_seeds_added_later_and_scores_kept_from_the_fit():
    one = classifier().fit(TRAIN_X, TRAIN_Y, score=TEST_X)
    first = [m.fitted[0] for m in one.members_]
    one.add_seeds(1)
    assert one.n_seeds == 2
    assert all(m.fitted[0] is state for m, state in zip(one.members_, first, strict=True))
    two = classifier(n_seeds=2).fit(TRAIN_X, TRAIN_Y)
    np.testing.assert_array_equal(one.scores(TEST_X).values, two.scores(TEST_X).values)
    one.trainer = None  # nothing needs to be scored again
    with pytest.raises(TypeError):
        one.scores(TEST_X[1:])
    one.scores(TEST_X)


@pytest.mark.filterwarnings("ignore:.*members learn nothing:UserWarning")
def test_parts_that_are_empty_or_of_one_class_vote_by_their_shares():
    labels = np.full(12, 4)
    labels[0] = 7
    fitted = classifier(n_partitions=12).fit(TRAIN_X[:12], labels)
    assert any(not m.fitted for m in fitted.members_)
    scores = fitted.scores(TEST_X[:3]).values
    assert np.isfinite(scores).all()
    for m, size in zip(fitted.members_, fitted.member_sizes_, strict=True):
        if not m.fitted:
            np.testing.assert_array_equal(scores[:, m.index], np.tile(m.shares, (3, 1)).astype(np.float32))
            assert size == 0 or m.shares.max() == 1


def test_a_member_whose_loss_is_no_number_is_named_and_votes_by_its_shares():
    rows = np.random.default_rng(0).normal(size=(80, 5))
    labels = (rows[:, 0] > 0).astype(int)
    rows[3] = 1e300  # infinite in single precision
    fitted = classifier(classes=[0, 1], recipe="quick")
    with pytest.warns(UserWarning, match=r"member (\d+) votes by its class shares.*its loss became infinite or NaN"):
        fitted.fit(rows, labels)
    bad = int(fitted.partition_.spread[fitted._buckets[3], 0])
    assert [m.index for m in fitted.members_ if m.refused] == [bad]
    np.testing.assert_array_equal(fitted.scores(rows).values[0, bad], fitted.members_[bad].shares.astype(np.float32))


@pytest.mark.parametrize("network", ["small", "nin"])
def test_a_forged_shape_of_samples_takes_no_memory(tmp_path, network):
    path = tmp_path / "model"
    classifier(network=network, n_partitions=2).fit(TRAIN_X, TRAIN_Y).save(path)
    rehash(path, lambda manifest: manifest.update(width=["dense", [8, 8, 10**9]]))
    with pytest.raises(StorageError, match=r"networks for samples of another shape than \(8, 8, 1000000000\)"):
        TorchClassifier.load(path, device="cpu")

    def forget_networks(manifest):
        manifest["files"] = {name: known for name, known in manifest["files"].items() if not name.startswith("members")}
        manifest.update(networks=[0, 0])

    rehash(path, forget_networks)
    with pytest.raises(StorageError, match="networks for samples of another shape"):
        TorchClassifier.load(path, device="cpu")


def test_save_and_load(tmp_path):
    fitted = classifier(n_seeds=2, spread=2, hash_key=runoff.new_key()).fit(TRAIN_X, TRAIN_Y)
    fitted.save(tmp_path / "model")
    loaded = TorchClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(fitted.scores(TEST_X).values, loaded.scores(TEST_X).values)
    assert loaded.certify(TEST_X).radius.tolist() == fitted.certify(TEST_X).radius.tolist()
    assert loaded.recipe == SHORT
    with pytest.raises(ValueError, match="has no training samples"):
        loaded.update(add=(TEST_X[:1], TEST_Y[:1]))
    with pytest.raises(FileExistsError, match="already exists"):
        fitted.save(tmp_path / "model")
    with pytest.raises(StorageError, match="saved with a different network"):
        TorchClassifier.load(tmp_path / "model", network=wide, device="cpu")
    file = next((tmp_path / "model" / "members").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    with pytest.raises(StorageError, match="does not match the SHA-256"):
        TorchClassifier.load(tmp_path / "model", device="cpu")


def wide(shape, n_classes):
    return networks.SmallNetwork(shape, n_classes, width=8)


def test_a_network_of_ones_own_is_given_again_to_load(tmp_path):
    fitted = classifier(network=wide).fit(TRAIN_X, TRAIN_Y)
    fitted.save(tmp_path / "model")
    with pytest.raises(StorageError, match="custom networks: pass their function"):
        TorchClassifier.load(tmp_path / "model", device="cpu")
    loaded = TorchClassifier.load(tmp_path / "model", network=wide, device="cpu")
    np.testing.assert_array_equal(fitted.scores(TEST_X).values, loaded.scores(TEST_X).values)


def test_checkpoints_are_complete_and_errors_name_the_cause(tmp_path):
    fitted = classifier(checkpoints=tmp_path).fit(TRAIN_X, TRAIN_Y)
    files = sorted(tmp_path.iterdir())
    assert [f.name for f in files] == [f"member-{m:06d}-seed-0000.safetensors" for m in range(4)]
    again = classifier(checkpoints=tmp_path, network="small").fit(TRAIN_X, TRAIN_Y)
    np.testing.assert_array_equal(fitted.scores(TEST_X).values, again.scores(TEST_X).values)
    data = files[2].read_bytes()
    seconds = re.compile(rb'"seconds":"[0-9]').sub(b'"seconds":"x', data)
    for bad, told in (
        (data[:-1] + bytes([data[-1] ^ 1]), "altered or damaged"), (data[:99], "cannot be read"),
        (seconds, "the network of member 2 was altered"),
    ):  # fmt: skip
        files[2].write_bytes(bad)
        with pytest.raises(CheckpointError, match=told):
            classifier(checkpoints=tmp_path).fit(TRAIN_X, TRAIN_Y)
    files[2].unlink()
    classifier(checkpoints=tmp_path).fit(TRAIN_X, TRAIN_Y)
    assert files[2].read_bytes() == data or files[2].stat().st_size == len(data)


def test_checkpoints_of_scores_alone(tmp_path):
    trainer = Trainer(networks.small, SHORT, (8, 8, 1), 10, device="cpu")
    rows = np.arange(60)
    job = Job(0, 0, seeds_of(0, 0, 1)[0], X[..., None], rows, Y[rows])
    (trained,) = trainer.train([job], TEST_X[..., None])
    kept, identity = Checkpoints(tmp_path, weights=False, half=True), Identities(trainer).identity(job)
    kept.put(trained, identity)
    found = kept.get(job, identity, trained.inputs)
    assert not found.state
    np.testing.assert_array_equal(found.scores, trained.scores.astype(np.float16).astype(np.float32))
    assert kept.get(job, identity, "other inputs") is None
    assert kept.get(job, "other", trained.inputs) is None
    assert sum(f.stat().st_size for f in tmp_path.iterdir()) < 3 * trained.scores.size + 1000


class Fragile(nn.Module):
    """Raise an error on batches of a certain size: one of the machine, or of its own code."""

    size, error = 0, OSError

    def __init__(self, shape, n_classes):
        super().__init__()
        self.layer = nn.Linear(int(np.prod(shape)), n_classes)

    def forward(self, x):
        if self.training and len(x) == Fragile.size:
            raise Fragile.error("out of luck")
        return self.layer(x.flatten(1))


def test_finished_members_are_kept_when_another_fails():
    buckets = classifier(network=Fragile, n_partitions=3).fit(TRAIN_X, TRAIN_Y)._buckets
    rows = np.concatenate([np.flatnonzero(buckets == m)[:n] for m, n in enumerate((30, 30, 25))])
    few, labels = TRAIN_X[rows], TRAIN_Y[rows]
    fitted = classifier(network=Fragile, n_partitions=3, in_flight=1).fit(few, labels)
    whole = fitted.scores(TEST_X).values
    sizes = [SHORT.batch_of(n) for n in fitted.member_sizes_]
    assert sizes.index(sizes[2]) == 2
    fitted = classifier(network=Fragile, n_partitions=3, in_flight=1)
    Fragile.size = sizes[2]
    try:
        with pytest.raises(MemberError, match=r"member 2 could not be trained on its \d+ samples: .*out of luck"):
            fitted.fit(few, labels)
    finally:
        Fragile.size = 0
    assert sorted(t.member for t in fitted._store._networks.values()) == [0, 1]
    np.testing.assert_array_equal(fitted.fit(few, labels).scores(TEST_X).values, whole)


class Choosy(nn.Module):
    """Raise an error on a certain pixel, in training or in scoring."""

    def __init__(self, shape, n_classes):
        super().__init__()
        self.layer = nn.Linear(int(np.prod(shape)), n_classes)

    def forward(self, x):
        if self.training:
            assert not (x > 50).any(), "too bright"
        elif (x > 50).any():
            raise ValueError("too\nbright")
        return self.layer(x.flatten(1))


@pytest.mark.parametrize("leftover", [False, True])
def test_a_sample_on_which_a_network_raises_an_error_costs_its_member_only(leftover):
    recipe = dataclasses.replace(SHORT, leftover=leftover)
    settings = {"network": Choosy, "n_partitions": 5, "recipe": recipe}
    x, y = TRAIN_X.astype(np.float32), TRAIN_Y
    before = classifier(**settings).fit(x, y)
    bright = x[:1].copy()
    bright[0, 0, 0] = 1e6
    with pytest.warns(
        UserWarning, match="votes by its class shares, .* could not be trained: AssertionError: too bright"
    ):
        after = classifier(**settings).fit(np.concatenate([x, bright]), np.concatenate([y, y[:1]]))
    touched = int(after._buckets[-1])
    one, other = before.scores(TEST_X).values, after.scores(TEST_X).values
    np.testing.assert_array_equal(np.delete(one, touched, 1), np.delete(other, touched, 1))
    shares = np.bincount(np.searchsorted(after.classes_, np.append(y, y[:1])[after._buckets == touched]), minlength=10)
    np.testing.assert_allclose(other[:, touched], np.tile(shares / shares.sum(), (len(TEST_X), 1)), rtol=1e-6)


def test_inputs_on_which_a_network_raises_an_error_are_voted_on_by_class_shares(caplog):
    fitted = classifier(network=Choosy, n_partitions=5).fit(TRAIN_X.astype(np.float32), TRAIN_Y)
    inputs = TEST_X[:70].astype(np.float32)
    plain = fitted.scores(inputs).values
    inputs[[3, 69], 0, 0] = 1e6
    with caplog.at_level("WARNING", "runoff"):
        scores = fitted.scores(inputs).values
    np.testing.assert_array_equal(np.delete(scores, [3, 69], 0), np.delete(plain, [3, 69], 0))
    for member, network in enumerate(fitted.members_):
        np.testing.assert_allclose(scores[[3, 69], member], np.tile(network.shares, (2, 1)), rtol=1e-6)
    assert (
        "could not score 1 input, for which its member votes by its class shares: ValueError: too bright" in caplog.text
    )


def test_settings_that_change_the_bits_of_a_gpu_are_part_of_its_description(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "A GPU")
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    assert devices.describe(torch.device("cuda")) == "A GPU"
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    assert devices.describe(torch.device("cuda")) == "A GPU NVIDIA_TF32_OVERRIDE=1"


def test_members_whose_images_a_recipe_cannot_use_refuse_them():
    fitted = classifier(recipe=Recipe(epochs=1, jitter=0.1))
    with pytest.warns(
        UserWarning, match=r"no member could be trained, .* its images do not have 8 bits, which jitter requires"
    ):
        fitted.fit(TRAIN_X / 16, TRAIN_Y)
    with pytest.raises(MemberError, match="there is nothing to certify, since no member could be trained"):
        fitted.certify(TEST_X / 16)


@pytest.mark.parametrize(
    ("settings", "data", "told"),
    [
        ({"classes": None}, (TRAIN_X, TRAIN_Y), "classes must be given, such as"),
        ({"classes": range(9)}, (TRAIN_X, TRAIN_Y), "y must hold labels from classes=.* got 9"),
        ({"network": "resnet"}, (TRAIN_X, TRAIN_Y), "network must be one of 'nin', 'small'"),
        ({"network": nn.Linear(64, 10)}, (TRAIN_X, TRAIN_Y), "cannot be created again for each member"),
        ({"network": "nin"}, (X.reshape(-1, 64), Y), "network 'nin' is for images"),
        ({"device": "gpu"}, (TRAIN_X, TRAIN_Y), "device must be 'cpu', 'cuda' or 'cuda:N', got 'gpu'"),
        ({"device": "mps"}, (TRAIN_X, TRAIN_Y), "promise no fixed order of sums"),
        ({"recipe": RECIPES["paper"]}, (X.reshape(-1, 64), Y), "the recipe's crop is for images"),
        ({}, ([TRAIN_X[0], TRAIN_X[1][:7]], [0, 1]), r"one size, got \(8, 8\) for sample 0 and \(7, 8\) for sample 1"),
        ({}, (np.zeros((4, 3, 8, 8)), [0, 1, 2, 3]), "looks like channels first"),
        ({}, (np.full((2, 8, 8), np.nan), [0, 1]), "X must be finite, got NaN or infinity in sample 0"),
        ({}, (TRAIN_X, TRAIN_Y[:9]), "X and y must be of the same length"),
        ({}, (np.array([["a"]]), [0]), "X must hold numbers"),
        ({}, (np.zeros((0, 8, 8)), []), "at least one sample"),
    ],
)
def test_bad_input_gets_a_sentence(settings, data, told):
    with pytest.raises(ValueError, match=told):
        classifier(**settings).fit(*data)


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_a_missing_gpu():
    with pytest.raises(DeviceError, match="PyTorch sees no CUDA GPU; use device='cpu'"):
        classifier(device="cuda").fit(TRAIN_X, TRAIN_Y)


def test_a_tensor_on_another_device():
    with pytest.raises(DeviceError, match="X must be on cpu or on the host, got a tensor on meta: move it"):
        classifier().fit(torch.zeros(4, 1, 8, 8, device="meta"), [0, 1, 2, 3])


def test_frames_and_half_precision_are_the_same_samples():
    rows, labels = X.reshape(-1, 64)[:200], Y[:200]
    plain = classifier().fit(rows, labels).scores(rows[:9]).values
    frame = pd.DataFrame(rows.astype(np.int64))
    np.testing.assert_array_equal(classifier().fit(frame, pd.Series(labels)).scores(frame[:9]).values, plain)
    half = torch.tensor(rows).bfloat16()  # exact for numbers up to 256
    np.testing.assert_array_equal(classifier().fit(half, torch.tensor(labels)).scores(half[:9]).values, plain)
    with pytest.raises(ValueError, match="X must hold numbers, got dtype object"):
        classifier().fit(pd.DataFrame({"a": ["x", "y"], "b": [1, 2]}), [0, 1])


def test_inputs_of_another_shape():
    fitted = classifier().fit(TRAIN_X, TRAIN_Y)
    with pytest.raises(ValueError, match=r"samples of shape \(8, 8, 1\) as in fit, got \(7, 8, 1\)"):
        fitted.predict(TEST_X[:, :7])


def test_it_is_a_scikit_learn_estimator():
    estimator = classifier(hash_key=runoff.new_key())
    copy = clone(estimator)
    assert copy.get_params()["recipe"] == SHORT
    assert "secret" in repr(estimator)
    assert clone(estimator).set_params(n_seeds=3).n_seeds == 3


def test_progress_goes_to_stderr(capfd):
    classifier(progress=True).fit(TRAIN_X, TRAIN_Y)
    told = capfd.readouterr()
    assert "training networks" in told.err
    assert not told.out


def test_importing_runoff_does_not_import_torch():
    code = "import sys, runoff, runoff.classifier; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_torch_a_sentence_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\ntry:\n import runoff.torch\nexcept ImportError as e: print(e)"
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.strip() == "runoff.torch needs torch. Install it with: pip install 'runoff[torch]'"


def test_network_in_network_learns_on_the_cpu():
    recipe = Recipe(epochs=20, batch_size=32, lr=0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = classifier(network="nin", n_partitions=2, recipe=recipe).fit(TRAIN_X[:300], TRAIN_Y[:300])
    assert isinstance(fitted.trainer().network((1, 8, 8), 10), NetworkInNetwork)
    scores = fitted.scores(TEST_X).values
    assert (scores.argmax(-1) == TEST_Y[:, None]).mean() > 0.5


# -- state after a failed call, and mix-ups ----------------------------------------------------------------------------


def test_a_fit_that_fails_leaves_the_classifier_as_it_was():
    fitted = classifier().fit(TRAIN_X, TRAIN_Y, score=TEST_X)
    before = fitted.scores(TEST_X).values
    other = 16 - TEST_X
    expected = fitted.scores(other).values
    with pytest.raises(ValueError, match="same length"):
        fitted.fit(TRAIN_X, TRAIN_Y[:-1], score=other)
    with pytest.raises(ValueError, match="at least one sample"):
        fitted.fit(TRAIN_X[:0, :4], TRAIN_Y[:0])
    np.testing.assert_array_equal(fitted.scores(TEST_X).values, before)
    np.testing.assert_array_equal(fitted.scores(other).values, expected)
    new = classifier(network=Fragile)
    Fragile.size = 32
    try:
        with pytest.raises(MemberError):
            new.fit(TRAIN_X, TRAIN_Y)
    finally:
        Fragile.size = 0
    with pytest.raises(ValueError, match="not fitted yet"):
        new.scores(TEST_X)


def leaning(slope):
    class Leaning(nn.Module):
        def __init__(self, shape, n_classes):
            super().__init__()
            self.layer = nn.Linear(int(np.prod(shape)), n_classes)
            self.slope = slope

        def forward(self, x):
            return F.leaky_relu(self.layer(x.flatten(1)), self.slope)

    return Leaning


def half_frozen(shape, n_classes):
    network = networks.small(shape, n_classes)
    network.features.requires_grad_(False)
    return network


def first_zero(shape, n_classes):
    network = networks.small(shape, n_classes)
    nn.init.zeros_(network.head.weight)
    return network


@pytest.mark.parametrize(
    ("one", "other"), [(leaning(0.0), leaning(0.9)), (networks.small, half_frozen), (networks.small, first_zero)]
)
def test_a_network_that_does_something_else_is_another_one(tmp_path, one, other):
    classifier(network=one, checkpoints=tmp_path).fit(TRAIN_X, TRAIN_Y)
    again = classifier(network=other, checkpoints=tmp_path).fit(TRAIN_X, TRAIN_Y)
    fresh = classifier(network=other).fit(TRAIN_X, TRAIN_Y)
    np.testing.assert_array_equal(again.scores(TEST_X).values, fresh.scores(TEST_X).values)


def test_settings_changed_after_fit_wait_for_the_next_one():
    fitted = classifier(network=leaning(0.0)).fit(TRAIN_X, TRAIN_Y)
    before = fitted.scores(TEST_X).values
    fitted.set_params(network=leaning(0.9), recipe="paper")
    np.testing.assert_array_equal(fitted.scores(TEST_X).values, before)


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_seeds_that_are_no_number(n):
    fitted = classifier().fit(TRAIN_X, TRAIN_Y)
    with pytest.raises(ValueError, match="whole number of at least 1"):
        fitted.add_seeds(n)
    assert fitted.n_seeds == 1


def test_labels_changed_in_place_stay_what_they_were_and_what_is_removed_is_forgotten():
    labels = TRAIN_Y.copy()
    fitted = classifier().fit(TRAIN_X, labels)
    labels[:] = 0
    fitted.update(remove=(TRAIN_X[:1], TRAIN_Y[:1]))
    fresh = classifier().fit(TRAIN_X[1:], TRAIN_Y[1:])
    np.testing.assert_array_equal(fitted.scores(TEST_X).values, fresh.scores(TEST_X).values)
    assert len(fitted._store._networks) == 4


def test_whatever_mode_pytorch_is_in_around_us():
    expected = classifier().fit(TRAIN_X, TRAIN_Y).scores(TEST_X).values
    for mode in (torch.no_grad, torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)):
        with mode():
            given = classifier().fit(TRAIN_X, TRAIN_Y).scores(TEST_X).values
        np.testing.assert_array_equal(given, expected)


def test_scores_in_half_precision_are_what_is_read_back(tmp_path):
    trainer = Trainer(networks.small, SHORT, (8, 8, 1), 10, device="cpu")
    job = Job(0, 0, seeds_of(0, 0, 1)[0], X[..., None], np.arange(60), Y[:60])
    (trained,) = trainer.train([job], TEST_X[..., None])
    kept = Checkpoints(tmp_path, half=True)
    given = kept.put(trained, "name")
    np.testing.assert_array_equal(given.scores, kept.get(job, "name", trained.inputs).scores)


@pytest.mark.parametrize(
    "hurt",
    [
        lambda state: state.pop(slots.MEAN),
        lambda state: state.update({"head.bias": state["head.bias"][:5].clone()}),
        lambda state: state.update({"head.bias": state["head.bias"].to(torch.int8)}),
        lambda state: state.update({"more": torch.zeros(1)}),
    ],
)
def test_an_invalid_saved_network(tmp_path, hurt):
    import hashlib

    from safetensors.torch import load, save

    classifier().fit(TRAIN_X, TRAIN_Y).save(tmp_path / "model")
    file = tmp_path / "model" / "members" / "000001-0000.safetensors"
    state = load(file.read_bytes())
    hurt(state)
    file.write_bytes(save(state))
    manifest = json.loads((tmp_path / "model" / "manifest.json").read_text())
    manifest["files"]["members/000001-0000.safetensors"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (tmp_path / "model" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StorageError, match="is not one of these networks"):
        TorchClassifier.load(tmp_path / "model", device="cpu")
    manifest["settings"]["checkpoints"] = "/elsewhere"
    (tmp_path / "model" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StorageError, match="has invalid settings"):
        TorchClassifier.load(tmp_path / "model", device="cpu")
