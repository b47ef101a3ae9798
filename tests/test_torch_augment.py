"""Augmentation for few images: TrivialAugment, affine maps and CutMix, compared with loops over pixels."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from runoff.isolation import seeds_of
from runoff.torch import RECIPES, Recipe, TorchClassifier, Trainer, devices, networks
from runoff.torch.kernels import batch_and_head
from runoff.torch.training import augment, random_draws
from tests.test_torch_graphs import faked, on_slots  # noqa: F401
from tests.test_torch_isolation import PARTS, PLAIN, TEST_X, X, Y, jobs, same, trained

FULL = Recipe(epochs=3, batch_size=32, lr=0.05, crop=1, flip=True, jitter=0.3, mixup=1.0, test_flip=True,
              affine=1.0, trivial=True, cutmix=0.5)  # fmt: skip
DRAWS = np.random.default_rng(0)
IMAGES = torch.from_numpy(DRAWS.integers(0, 256, (6, 8, 9, 3)).astype(np.float32) / 255)


def operated(operation, strength, images=IMAGES):
    n = len(images)
    operations = torch.full((n,), operation, dtype=torch.uint8)
    return augment.trivial(images, operations, torch.full((n,), strength, dtype=torch.float32))


def test_each_operation_of_trivial_augment():
    torch.testing.assert_close(operated(augment.IDENTITY, 0.7), IMAGES, rtol=0, atol=0)
    for operation in (augment.SHEAR_X, augment.SHEAR_Y, augment.MOVE_X, augment.MOVE_Y, augment.ROTATE):
        torch.testing.assert_close(operated(operation, 0.0), IMAGES, rtol=0, atol=1e-6)
    for sign in (1, -1):  # by exactly 2 columns and 2 rows; what comes in is black
        across, down = torch.zeros_like(IMAGES), torch.zeros_like(IMAGES)
        here, there = (slice(None, -2), slice(2, None))[::sign]
        across[:, :, here] = IMAGES[:, :, there]
        down[:, here] = IMAGES[:, there]
        torch.testing.assert_close(operated(augment.MOVE_X, sign * 2 / 9 / 0.3), across, rtol=0, atol=1e-5)
        torch.testing.assert_close(operated(augment.MOVE_Y, sign * 2 / 8 / 0.3), down, rtol=0, atol=1e-5)
    torch.testing.assert_close(operated(augment.BRIGHTNESS, -1.0), IMAGES * 0.1)
    gray = augment.luma(IMAGES)
    torch.testing.assert_close(operated(augment.SATURATION, -1.0), gray + 0.1 * (IMAGES - gray))
    mean = gray.mean((1, 2), keepdim=True)
    torch.testing.assert_close(operated(augment.CONTRAST, 0.5), (mean + 1.45 * (IMAGES - mean)).clamp(0, 1))
    blurred = np.pad(IMAGES, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
    blurred = sum(blurred[:, i : i + 8, j : j + 9] for i in range(3) for j in range(3)) / 9
    sharper = (blurred + 1.9 * (IMAGES.numpy() - blurred)).clip(0, 1)
    np.testing.assert_allclose(operated(augment.SHARPNESS, 1.0), sharper, atol=1e-5)
    values = np.rint(IMAGES.numpy() * 255).astype(int)
    for strength, bits in ((0.0, 8), (0.5, 6), (-1.0, 4)):
        kept = (values >> (8 - bits) << (8 - bits)) / 255
        np.testing.assert_allclose(operated(augment.POSTERIZE, strength), kept, atol=1e-6)
    np.testing.assert_allclose(operated(augment.SOLARIZE, 0.4), np.where(IMAGES >= 0.6, 1 - IMAGES, IMAGES), atol=1e-6)
    low, high = IMAGES.amin((1, 2), keepdim=True), IMAGES.amax((1, 2), keepdim=True)
    torch.testing.assert_close(operated(augment.AUTOCONTRAST, 0.1), (IMAGES - low) / (high - low + 1e-3))


def test_every_image_has_its_own_operation():
    operations, strengths = torch.arange(6, dtype=torch.uint8) + 4, torch.linspace(-0.9, 0.9, 6)
    together = augment.trivial(IMAGES, operations, strengths)
    for i in range(6):
        alone = augment.trivial(IMAGES[i : i + 1], operations[i : i + 1], strengths[i : i + 1])
        torch.testing.assert_close(together[i : i + 1], alone, rtol=0, atol=1e-6)
    gray = IMAGES[..., :1]
    torch.testing.assert_close(operated(augment.SATURATION, 0.8, gray), gray)


def test_a_quarter_turn_is_exact_and_affine_maps_follow_their_numbers():
    square = IMAGES[:, :, :8]
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).expand(6, 2, 2)
    turned = augment.warped(square, quarter, torch.zeros(6, 2))
    torch.testing.assert_close(turned, torch.rot90(square, 1, (1, 2)), rtol=0, atol=1e-5)
    matrices, shifts = augment.affine(torch.tensor([[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]), 2.0)
    turn = np.radians(30)
    np.testing.assert_allclose(matrices[0], np.exp(0.5) * np.eye(2), rtol=1e-6)
    np.testing.assert_allclose(matrices[1], [[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]], rtol=1e-6)
    assert not shifts.any()


def test_cutmix_takes_a_rectangle_and_labels_in_proportion():
    recipe = dataclasses.replace(RECIPES["paper"], epochs=40, mixup=1.0, cutmix=0.5)
    drawn = random_draws.draw(recipe, 300, (8, 9, 3), seeds_of(0, 7, 1)[0])
    before = random_draws.draw(dataclasses.replace(recipe, cutmix=0.0), 300, (8, 9, 3), seeds_of(0, 7, 1)[0])
    cut = drawn.blends == 1
    assert 0.35 < cut.mean() < 0.65
    np.testing.assert_array_equal(drawn.shares[~cut], before.shares[~cut])
    np.testing.assert_array_equal(drawn.blends[~cut], before.shares[~cut])
    for name in ("rows", "shifts", "flips", "seeds"):
        np.testing.assert_array_equal(getattr(drawn, name), getattr(before, name))
    x = IMAGES.permute(0, 3, 1, 2)
    for step in (*np.flatnonzero(cut)[:20], np.flatnonzero(~cut)[0]):
        top, bottom, left, right = drawn.boxes[step]
        draws = {"rows": torch.arange(6), "boxes": torch.from_numpy(drawn.boxes[step])}
        draws |= {name: torch.tensor(getattr(drawn, name)[step]) for name in ("shares", "blends")}
        plain = dataclasses.replace(recipe, crop=0)
        given = augment.batch(IMAGES, draws, plain, torch.zeros(3), torch.ones(3))
        if not cut[step]:
            assert (top, bottom, left, right) == (0, 0, 0, 0)
            share = before.shares[step]
            torch.testing.assert_close(given, share * x + (1 - share) * x.flip(0))
            continue
        expected = x.clone()
        expected[:, :, top:bottom, left:right] = x.flip(0)[:, :, top:bottom, left:right]
        assert torch.equal(given, expected)
        assert drawn.shares[step] == np.float32(1 - (bottom - top) * (right - left) / 72)
    alone = random_draws.draw(dataclasses.replace(recipe, mixup=0.0), 300, (8, 9, 3), seeds_of(0, 7, 1)[0])
    assert alone.blends is None
    np.testing.assert_array_equal(alone.shares[cut], drawn.shares[cut])
    assert (alone.shares[~cut] == 1).all()


def test_mixup_mixes_rows_of_numbers_too():
    rows = torch.arange(12.0).view(4, 3)
    draws = {"rows": torch.arange(4), "shares": torch.tensor(0.25)}
    given = augment.batch(rows, draws, Recipe(epochs=1, mixup=1.0), torch.zeros(3), torch.ones(3))
    torch.testing.assert_close(given, 0.25 * rows + 0.75 * rows.flip(0))


@pytest.mark.parametrize("change", [{"trivial": True}, {"affine": 1.0}, {"cutmix": 0.5}])
def test_an_operation_that_is_turned_on_leaves_other_draws_alone_and_has_its_effect(change):
    recipe = dataclasses.replace(FULL, affine=0.0, trivial=False, cutmix=0.0)
    changed = dataclasses.replace(recipe, **change)
    one, other = (random_draws.draw(r, 50, (8, 8, 1), seeds_of(0, 1, 1)[0]) for r in (recipe, changed))
    for name in ("rows", "shifts", "flips", "jitter", "seeds"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert not same(trained([1], recipe=recipe)[1, 0], trained([1], recipe=changed)[1, 0])


def test_members_are_the_same_in_any_company_and_on_slots_of_a_gpu(faked):  # noqa: ARG001, F811
    together = trained(range(6), recipe=FULL, in_flight=2)
    for company, in_flight in (([3], 1), ([5, 3], 2)):
        for key, alone in trained(company, recipe=FULL, in_flight=in_flight).items():
            assert same(alone, together[key])
    _, given = on_slots([4, 3, 1], networks.small, FULL, 2)
    for key, network in given.items():
        assert same(network, together[key])


# -- recipes that the kernels of a GPU support -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Newer(Recipe):
    """A recipe with an operation that does not exist yet."""

    twirl: float = 0.0


def test_the_kernel_for_batches_takes_only_recipes_that_it_knows_in_full():
    images = torch.zeros((2, 8, 8, 3), dtype=torch.uint8)
    known = Newer(epochs=1, crop=2, flip=True, label_smoothing=0.1, test_flip=True, test_shift=1, average=0.1)
    assert batch_and_head.supports(known, images)
    for change in ({"twirl": 0.1}, {"jitter": 0.1}, {"cutout": 2}, {"mixup": 1.0}, {"affine": 1.0}, {"cutmix": 0.5}):
        assert not batch_and_head.supports(dataclasses.replace(known, **change), images)
    assert not batch_and_head.supports(dataclasses.replace(known, trivial=True), images)
    assert {field.name for field in dataclasses.fields(Recipe)} >= batch_and_head.KNOWN
    assert not batch_and_head.supports(known, torch.zeros((2, 8)))


# -- recipes -----------------------------------------------------------------------------------------------------------


def test_recipes_of_earlier_releases_stay_what_they_were():
    data = RECIPES["paper"].to_dict()
    assert not set(data) & {"affine", "trivial", "cutmix", "average", "test_shift", "leftover"}
    assert Recipe.from_dict(data) == RECIPES["paper"]
    strong = json.loads(json.dumps(RECIPES["strong"].to_dict()))
    assert strong["trivial"] is True
    assert "cutmix" not in strong
    assert Recipe.from_dict(strong) == RECIPES["strong"]
    assert not RECIPES["strong-no-flip"].flip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cutmix": 1.5}, "cutmix must be at most 1, got 1.5"),
        ({"average": 1.5}, "average must be at most 1, got 1.5"),
        ({"average": -0.1}, "average must be a number of at least 0"),
        ({"test_shift": -1}, "test_shift must be a whole number of at least 0"),
        ({"affine": -1.0}, "affine must be a number of at least 0"),
        ({"trivial": 1}, "trivial must be True or False, got 1"),
        ({"leftover": 1}, "leftover must be True or False, got 1"),
    ],
)
def test_invalid_recipes(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(FULL, **change)


def test_images_that_are_not_of_bytes_refuse_one_member_alone():
    recipe = dataclasses.replace(FULL, jitter=0.0)
    trainer = Trainer(networks.small, recipe, (8, 8, 1), 10, device="cpu")
    (job,) = jobs([0], samples=np.random.default_rng(0).random((1797, 8, 8, 1)))
    (given,) = trainer.train([job])
    assert given.refused == "its images do not have 8 bits, which trivial requires"


# -- averages of weights, and views ------------------------------------------------------------------------------------

AVERAGED = dataclasses.replace(FULL, average=0.5, test_shift=1)


def test_shares_of_the_average():
    recipe = Recipe(epochs=5, batch_size=32, average=0.5)
    shares = recipe.newest(64)  # 10 steps
    np.testing.assert_allclose(shares, [1, 1, 1, 1, 1, 1, 1 / 2, 1 / 3, 1 / 4, 1 / 5], rtol=1e-6)
    averages = np.zeros(())
    for step, share in enumerate(shares):
        averages = averages + (step - averages) * share
    np.testing.assert_allclose(averages, np.mean([5, 6, 7, 8, 9]), rtol=1e-6)
    assert (dataclasses.replace(recipe, average=1e-6).newest(64) == 1).all()
    np.testing.assert_allclose(dataclasses.replace(recipe, average=1.0).newest(64), 1 / np.arange(1, 11), rtol=1e-6)


def test_the_state_is_the_mean_over_the_last_steps_of_the_same_training():
    """Against the weights after each step of training without an average, statistics of batches too."""
    recipe = dataclasses.replace(FULL, epochs=6)
    (job,) = jobs([4])
    slot = Trainer(networks.small, recipe, (8, 8, 1), 10, device="cpu", in_flight=1)._slot()
    slot.load(slot.prepare(job))
    states = []
    while slot.done < slot.steps:
        slot.advance()
        states.append({name: value.double() for name, value in slot.get_state().items()})
    n_averaged = round(0.5 * len(states))
    averaged = trained([4], recipe=dataclasses.replace(recipe, average=0.5))[4, 0].state
    assert 1 < n_averaged < len(states)
    assert any("running_mean" in name for name in averaged)
    for name, value in averaged.items():
        expected = (
            states[-1][name] if "num_batches" in name else sum(s[name] for s in states[-n_averaged:]) / n_averaged
        )
        torch.testing.assert_close(value.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_short_average_is_the_last_step():
    """Sums in another order may differ in the last bits."""
    plain = trained([4], recipe=FULL)[4, 0].state
    last = trained([4], recipe=dataclasses.replace(FULL, average=1e-6))[4, 0].state
    for name, value in plain.items():
        torch.testing.assert_close(last[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("network", [networks.small, networks.network_in_network])
def test_averaged_members_are_the_same_in_any_company_and_on_slots_of_a_gpu(faked, network):  # noqa: ARG001, F811
    together = trained(range(6), network, recipe=AVERAGED, in_flight=2)
    for company, in_flight in (([3], 1), ([5, 3], 2)):
        for key, alone in trained(company, network, recipe=AVERAGED, in_flight=in_flight).items():
            assert same(alone, together[key])
    trainer, given = on_slots([4, 3, 1], network, AVERAGED, 2)
    for key, done in given.items():
        assert same(done, together[key])
    states = [(key, done.state) for key, done in together.items()]
    with devices.repeatable("fp32"):
        for key, scores in trainer._scored_on_gpu(states, TEST_X[..., None]):
            np.testing.assert_array_equal(scores, together[key].scores)


def test_nothing_is_left_of_a_network_that_failed(faked):  # noqa: ARG001, F811
    """Its averages are NaN, and the next network in its slot has averages of its own."""
    recipe = dataclasses.replace(PLAIN, average=0.5)
    assert recipe.batch_of(len(PARTS[0])) == recipe.batch_of(len(PARTS[1]))  # so that one follows the other
    plain = X[..., None] + np.float32(0.5)
    broken = plain.copy()
    broken[PARTS[0]] = np.inf
    trainer = Trainer(networks.small, recipe, (8, 8, 1), 10, device="cpu", in_flight=1)
    trainer.device = torch.device("cpu", 0)
    with devices.repeatable("fp32"):
        failed, after = trainer._on_gpu([*jobs([0], samples=broken), *jobs([1], samples=plain)], TEST_X[..., None])
        (alone,) = trainer._on_gpu(jobs([1], samples=plain), TEST_X[..., None])
    assert failed.refused is not None
    assert after.refused is None
    assert same(after, alone)


def test_views_are_shifted_and_mirrored_copies():
    recipe = Recipe(epochs=1, test_shift=2, test_flip=True)
    mean, std = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 4.0, 8.0])
    given = augment.views(IMAGES * 255, recipe, mean, std)
    assert len(given) == 10
    expected = [IMAGES * 255]
    for down, across in ((2, 2), (2, -2), (-2, 2), (-2, -2)):
        moved = torch.zeros_like(IMAGES)
        for i, j in np.ndindex(8, 9):
            if 0 <= i - down < 8 and 0 <= j - across < 9:
                moved[:, i, j] = IMAGES[:, i - down, j - across] * 255
        expected.append(moved)
    expected += [view.flip(2) for view in expected]
    for view, pixels in zip(given, expected, strict=True):
        assert torch.equal(view, ((pixels - mean) / std).permute(0, 3, 1, 2))
    assert len(augment.views(IMAGES, Recipe(epochs=1, test_shift=1), mean, std)) == 5
    assert len(augment.views(IMAGES, Recipe(epochs=1, test_flip=True), mean, std)) == 2


def test_scores_are_the_mean_over_the_views():
    plain = dataclasses.replace(FULL, test_flip=False)
    state = trained([2], recipe=plain)[2, 0].state
    inputs = TEST_X[:5, ..., None]

    def scored(recipe, images):
        trainer = Trainer(networks.small, recipe, (8, 8, 1), 10, device="cpu")
        return dict(trainer.score([(0, state)], images))[0]

    framed = np.pad(inputs, ((0, 0), (1, 1), (1, 1), (0, 0)))
    moved = [inputs, *(framed[:, i : i + 8, j : j + 8] for i in (0, 2) for j in (0, 2))]
    expected = np.mean([scored(plain, view) for view in (*moved, *(view[:, :, ::-1] for view in moved))], axis=0)
    given = scored(dataclasses.replace(plain, test_shift=1, test_flip=True), inputs)
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-5)


def test_rows_of_numbers_have_no_views():
    with pytest.raises(ValueError, match="test_shift"):
        TorchClassifier("small", Recipe(epochs=1, test_shift=1), n_partitions=3, classes=range(10)).fit(
            X.reshape(len(X), -1), Y
        )


def test_digits_have_a_recipe_without_mirrors_or_colours():
    recipe = RECIPES["strong-digits"]
    assert not recipe.flip
    assert not recipe.test_flip
    assert recipe.on_bytes is None
