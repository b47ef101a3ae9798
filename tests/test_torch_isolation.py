"""A network depends only on its samples, seeds and recipe: its bits are the same whatever is trained beside it."""

import dataclasses
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from runoff.isolation import seeds_of
from runoff.torch import Job, Recipe, TorchClassifier, Trainer, networks

X, Y = load_digits(return_X_y=True)
X = X.reshape(-1, 8, 8).astype(np.uint8)
TEST = np.arange(len(Y)) % 5 == 0
TRAIN_X, TRAIN_Y, TEST_X, TEST_Y = X[~TEST], Y[~TEST], X[TEST][:70], Y[TEST][:70]

ALL = Recipe(
    epochs=3, batch_size=32, lr=0.05, crop=1, flip=True, jitter=0.3, cutout=2, mixup=1.0, label_smoothing=0.1,
    test_flip=True,
)  # fmt: skip
PLAIN = Recipe(epochs=2, batch_size=32, lr=0.05)
PARTS = [np.arange(i, 900, 12)[: 12 + 8 * i] for i in range(8)]  # of different sizes, some below a batch


class Dropping(nn.Module):
    """Layers that draw from global random numbers while training."""

    def __init__(self, shape, n_classes):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(int(np.prod(shape)), 32),
            nn.BatchNorm1d(32),
            nn.Dropout(0.5),
            nn.Linear(32, n_classes),
        )

    def forward(self, x):
        return self.layers(x)


class Hidden(nn.Module):
    """State that is not in the state_dict: non-persistent or replaced buffers, and a counter in Python."""

    def __init__(self, shape, n_classes):
        super().__init__()
        self.layer = nn.Linear(int(np.prod(shape)), n_classes)
        self.register_buffer("left_out", torch.zeros(()), persistent=False)
        self.register_buffer("replaced", torch.zeros(()))
        self.count = 0

    def forward(self, x):
        x = x.flatten(1)
        if self.training:
            self.left_out += x.abs().mean()
            self.replaced = 0.9 * self.replaced + x.max()
            self.count += 1
        return self.layer(x) * (1 + 0.1 * self.left_out.detach() + 0.01 * self.replaced.detach() + 0.001 * self.count)


class Drawing(nn.Module):
    """Layers that draw from the random numbers of NumPy or Python, or from their own generator."""

    def __init__(self, shape, n_classes):
        super().__init__()
        self.layer = nn.Linear(int(np.prod(shape)), n_classes)
        self.generator = torch.Generator().manual_seed(3)

    def forward(self, x):
        x = self.layer(x.flatten(1))
        if self.training:
            noise = torch.rand(x.shape, generator=self.generator)
            x = x * (1 + noise) * np.random.rand() * (1 + random.random())  # noqa: NPY002, S311
        return x


def jobs(members, samples=X[..., None], labels=Y, n_seeds=1):
    return [
        Job(m, s, source, samples, PARTS[m], labels[PARTS[m]])
        for m in members
        for s, source in enumerate(seeds_of(0, m, n_seeds))
    ]


def trained(members, network=networks.small, recipe=ALL, in_flight=1, **settings):
    trainer = Trainer(network, recipe, (8, 8, 1), 10, device="cpu", in_flight=in_flight)
    return {(t.member, t.seed): t for t in trainer.train(jobs(members, **settings), TEST_X[..., None])}


def same(a, b):
    assert a.state.keys() == b.state.keys()
    return all(torch.equal(a.state[n], b.state[n]) for n in a.state) and np.array_equal(a.scores, b.scores)


@pytest.mark.parametrize("network", [networks.small, networks.network_in_network, Dropping, Hidden, Drawing])
@pytest.mark.parametrize("recipe", [ALL, PLAIN])
def test_a_network_is_the_same_alone_in_groups_and_in_any_order(network, recipe):
    together = trained(range(8), network, recipe, in_flight=2)
    for company, in_flight in (([3], 1), ([5, 3], 2), ([7, 6, 5, 4, 3, 2, 1, 0], 3)):
        for key, alone in trained(company, network, recipe, in_flight).items():
            assert same(alone, together[key]), (key, company)


@pytest.mark.parametrize("network", [networks.small, Dropping, Hidden, Drawing])
def test_a_network_scores_the_same_after_it_is_loaded(network):
    done = trained(range(4), network)
    trainer = Trainer(network, ALL, (8, 8, 1), 10, device="cpu")
    for order in ([0, 1, 2, 3], [3, 1]):
        for m, scores in trainer.score([(m, done[m, 0].state) for m in order], TEST_X[..., None]):
            np.testing.assert_array_equal(scores, done[m, 0].scores)


@pytest.mark.parametrize("network", [networks.small, Dropping])
def test_callers_may_draw_random_numbers_between_results(network):
    expected = trained(range(8), network)
    trainer = Trainer(network, ALL, (8, 8, 1), 10, device="cpu", in_flight=2)
    for done in trainer.train(jobs(range(8)), TEST_X[..., None]):
        torch.randn(1000)
        np.random.rand(100)  # noqa: NPY002
        assert same(done, expected[done.member, 0])
        asked = dict(trainer.score([("it", done.state)], TEST_X[..., None]))
        np.testing.assert_array_equal(asked["it"], done.scores)


@pytest.mark.parametrize("network", [networks.small, Dropping, Drawing])
def test_fits_in_other_threads_do_not_matter(network):
    expected = trained(range(4), network)
    with ThreadPoolExecutor(3) as pool:
        for given in pool.map(lambda _: trained(range(4), network), range(3)):
            assert all(same(given[key], expected[key]) for key in expected)


def test_settings_go_back_when_the_last_one_is_done():
    trainer = Trainer(networks.small, PLAIN, (8, 8, 1), 10, device="cpu")
    torch.set_num_threads(2)
    one, other = trainer.train(jobs(range(3))), trainer.train(jobs(range(3)))
    next(one)
    next(other)
    list(one)
    assert torch.are_deterministic_algorithms_enabled()
    list(other)
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == 2


ENCODER = nn.Sequential(nn.Flatten(), nn.Linear(64, 16))


class Doubtful(Dropping):
    def forward(self, x):
        return super().forward(x) + torch.rand(())


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (lambda _, n: nn.Sequential(ENCODER, nn.Linear(16, n)), "two of its networks share"),
        (lambda _, n: nn.Sequential(nn.Flatten(), Clocked(64, n)), "same weights for the same random numbers"),
        (Doubtful, "must not draw random numbers at inference time"),
        (lambda *_: nn.Flatten(), "must have parameters to train"),
        (lambda *_: "network", "must return an nn.Module, got str"),
    ],
)  # fmt: skip
def test_networks_that_cannot_be_a_members_own(network, told):
    with pytest.raises(ValueError, match=told):
        trained([0], network)


class Clocked(nn.Linear):
    ticks = itertools.count()

    def __init__(self, *sizes):
        super().__init__(*sizes)
        nn.init.constant_(self.bias, next(Clocked.ticks))


def test_global_settings_do_not_matter_and_are_restored():
    reference = trained([2], Dropping)
    torch.manual_seed(99)
    np.random.seed(99)  # noqa: NPY002
    torch.set_num_threads(2)
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    again = trained([2], Dropping)
    assert same(reference[2, 0], again[2, 0])
    assert torch.equal(before[0], torch.random.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    assert torch.get_num_threads() == 2
    assert not torch.are_deterministic_algorithms_enabled()


def test_added_seeds_do_not_change_existing_networks():
    one, three = trained([1, 4]), trained([1, 4], n_seeds=3)
    assert all(same(one[key], three[key]) for key in one)
    assert not same(three[1, 0], three[1, 1])


def test_samples_of_other_members_do_not_matter():
    other = X[..., None].copy()
    own = np.zeros(len(other), bool)
    own[PARTS[4]] = True
    other[~own] = 255 - other[~own]
    a, b = trained([4, 5], in_flight=2), trained([4, 5], in_flight=2, samples=other)
    assert same(a[4, 0], b[4, 0])
    assert not same(a[5, 0], b[5, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_the_type_of_the_array_does_not_matter_for_networks(dtype):
    """One sample with a fraction converts all bytes to floats."""
    a, b = trained([3]), trained([3], samples=X[..., None].astype(dtype))
    assert same(a[3, 0], b[3, 0])


def states(classifier):
    return [[tuple((n, v.numpy().tobytes()) for n, v in s.items()) for s in m.fitted] for m in classifier.members_]


def changed(a, b):
    return [m for m, (s, t) in enumerate(zip(states(a), states(b), strict=True)) if s != t]


def classifier(**settings):
    kept = {"n_partitions": 5, "spread": 2, "classes": range(10), "device": "cpu"}
    return TorchClassifier("small", PLAIN, **kept | settings)


@pytest.fixture(scope="module")
def base():
    return classifier().fit(TRAIN_X, TRAIN_Y)


@pytest.mark.parametrize("edit", ["insert", "delete", "relabel"])
def test_an_edit_touches_the_members_of_its_bucket_only(base, edit):
    samples, labels, bucket = TRAIN_X, TRAIN_Y.copy(), base._buckets[0]
    if edit == "insert":
        samples, labels = np.concatenate([samples, np.full((1, 8, 8), 255, np.uint8)]), np.append(labels, 3)
    elif edit == "delete":
        samples, labels = samples[1:], labels[1:]
    else:
        labels[0] = (labels[0] + 1) % 10
    again = classifier().fit(samples, labels)
    if edit == "insert":
        bucket = again._buckets[-1]
    assert changed(base, again) == sorted(base.partition_.spread[bucket])


def test_the_order_of_samples_does_not_matter(base):
    order = np.random.default_rng(0).permutation(len(TRAIN_Y))
    again = classifier(in_flight=3).fit(TRAIN_X[order], TRAIN_Y[order])
    assert changed(base, again) == []
    np.testing.assert_array_equal(base.scores(TEST_X).values, again.scores(TEST_X).values)


def test_the_number_of_scored_inputs_does_not_matter(base):
    whole = base.scores(TEST_X).values
    parts = [base.scores(TEST_X[rows]).values for rows in (slice(0, 1), slice(1, 66), slice(66, 70))]
    np.testing.assert_array_equal(whole, np.concatenate(parts))


def test_update_is_fit_on_the_new_data_and_trains_only_what_it_must(base):
    samples, labels = np.concatenate([TRAIN_X[1:], TEST_X[:1]]), np.append(TRAIN_Y[1:], TEST_Y[0])
    updated = classifier().fit(TRAIN_X, TRAIN_Y)
    updated.update(add=(TEST_X[:1], TEST_Y[:1]), remove=(TRAIN_X[:1], torch.from_numpy(TRAIN_Y[:1])))
    assert changed(updated, classifier().fit(samples, labels)) == []
    assert sorted(updated.updated_members_) == changed(base, updated)


RUN = """
import sys, numpy as np
from tests.test_torch_isolation import *
fitted = classifier(checkpoints=sys.argv[1], n_seeds=2, progress=False).fit(TRAIN_X, TRAIN_Y)
np.save(sys.argv[2], fitted.scores(TEST_X).values)
"""


def test_killed_at_any_moment_a_fit_resumes_to_the_same_result(tmp_path):
    folder, out = tmp_path / "kept", tmp_path / "scores.npy"
    command = [sys.executable, "-c", RUN, str(folder), str(out)]
    killed = 0
    for wait in (1, 4, 9):  # files that exist when it is killed
        process = subprocess.Popen(command, start_new_session=True)
        while process.poll() is None and len(list(folder.glob("*.safetensors"))) < wait:
            time.sleep(0.005)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.wait()
    assert killed >= 2
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*.safetensors")}
    assert 9 <= len(before) < 20
    subprocess.run(command, check=True)
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in before.items())
    whole = classifier(n_seeds=2).fit(TRAIN_X, TRAIN_Y)
    np.testing.assert_array_equal(np.load(out), whole.scores(TEST_X).values)


def test_a_checkpoint_of_another_network_is_not_mistaken_for_this_one(tmp_path, base):
    classifier(checkpoints=tmp_path).fit(TRAIN_X, (TRAIN_Y + 1) % 10)
    again = classifier(checkpoints=tmp_path).fit(TRAIN_X, TRAIN_Y)
    assert changed(base, again) == []
    again = classifier(checkpoints=tmp_path)
    again.set_params(recipe=dataclasses.replace(PLAIN, lr=0.04)).fit(TRAIN_X, TRAIN_Y)
    assert len(changed(base, again)) == 10


def test_settings_do_not_import_the_compiler_and_reach_it_all_the_same():
    script = """
import os, sys, torch
from runoff.torch import devices
def flag():
    import torch._inductor.config as config
    return config.deterministic
with devices.repeatable("fp32"):
    assert torch.are_deterministic_algorithms_enabled()
    assert "torch._inductor" not in sys.modules
    assert flag()  # imported within
assert not flag()
with devices.repeatable("fp32"):
    assert flag()  # imported before
assert not flag()
assert "TORCHINDUCTOR_DETERMINISTIC" not in os.environ
import torch._inductor.config as config
config.deterministic = True  # the user's own choice
with devices.repeatable("fp32"):
    pass
assert flag()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True)
