"""First weights: read from a file, the same for every network, part of its identity and of what is stored."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from sklearn.base import clone

from helpers import run
from runoff import recipes
from runoff.cli import main
from runoff.errors import InputError, StorageError
from runoff.isolation import seeds_of
from runoff.report.source import Source
from runoff.runs import Run
from runoff.torch import TorchClassifier, Trainer, building, networks, published, starting
from runoff.torch.identities import Identities, architecture
from tests.test_torch_isolation import PLAIN, TEST_X, TEST_Y, TRAIN_X, TRAIN_Y, jobs, same, trained


def stored(path, shape=(1, 8, 8), network=networks.small, seed=5):
    """Write the features of a network to a file."""
    torch.manual_seed(seed)
    state = {n: v for n, v in network(shape, 10).state_dict().items() if not n.startswith("head")}
    save_file({n: v for n, v in state.items() if v.is_floating_point()}, path)
    return state


def classifier(**settings):
    kept = {"n_partitions": 4, "classes": range(10), "device": "cpu", "recipe": PLAIN}
    return TorchClassifier(**kept | settings)


def test_every_network_starts_from_the_weights_and_only_the_rest_is_random(tmp_path):
    state = stored(tmp_path / "w.safetensors")
    factory = starting.start("small", tmp_path / "w.safetensors")
    for member in (0, 1):
        source = seeds_of(0, member, 1)[0]
        with_, without = (building.build(f, (8, 8, 1), 10, source) for f in (factory, networks.small))
        for name, value in with_.state_dict().items():
            expected = state[name] if name in state else without.state_dict()[name]
            assert torch.equal(value, expected), name
        assert not torch.equal(with_.features[0].weight, without.features[0].weight)


def test_the_number_of_channels_is_fitted(tmp_path):
    state = stored(tmp_path / "w.safetensors", (3, 8, 8))
    x = torch.rand(2, 1, 8, 8)
    torch.manual_seed(5)
    colours = networks.small((3, 8, 8), 10)
    for channels in (1, 2, 5):
        module = starting.start("small", tmp_path / "w.safetensors")((channels, 8, 8), 10)
        given = module.features[0](x.expand(-1, channels, -1, -1))
        torch.testing.assert_close(given, colours.features[0](x.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5)
        assert torch.equal(module.features[4].weight, state["features.4.weight"])


def safetensors_file(path, name, kind, shape, body):
    """Write a safetensors file of one tensor, which the package that writes such files would not write."""
    header = json.dumps({name: {"dtype": kind, "shape": shape, "data_offsets": [0, len(body)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + body)


@pytest.mark.parametrize(
    ("name", "kind", "shape", "message"),
    [
        ("features." + "1" * 5000, "F32", [1], "which the network does not have"),
        ("features.\n" * 5, "F32", [1], "have a tensor 'features. features. .* which the network does not have"),
        ("features.0.weight", "F32", [1] * 60, r"of shape \(1, 1, .*, but the network's has"),
        ("features.0.weight", "F32", [1] * 5000, "is invalid: only tensors with up to 64 dims"),
        ("features.0.weight", "F8_E4M3", [4], "is invalid: .* not implemented"),
    ],
)
def test_hostile_tensors_get_a_short_sentence(tmp_path, name, kind, shape, message):
    file = tmp_path / "w.safetensors"
    safetensors_file(file, name, kind, shape, bytes(4))
    with pytest.raises(InputError, match=message) as raised:
        starting.start("small", file)((1, 8, 8), 10)
    assert len(str(raised.value).replace(str(file), "")) < 300
    assert "\n" not in str(raised.value)
    with pytest.raises(InputError, match=r"encoder must be (a safetensors file|the weights of one of)"):
        published.get(file)


FORGED_PATHS = {"NUL": "a\0b", "half a pair": "\ud800", "no home": "~nobody-here/a", "long": "a\n" * 5000}


@pytest.mark.parametrize("given", FORGED_PATHS.values(), ids=FORGED_PATHS)
def test_a_forged_path_of_weights_gets_a_short_sentence(given):
    described = {"given": given, "sha256": "0" * 64}
    for read in (lambda: starting.recorded("small", described), lambda: published.get(given)):
        with pytest.raises(InputError, match=r"or a safetensors file, but .* cannot be read: ") as raised:
            read()
        assert len(str(raised.value)) < 600
        assert "\n" not in str(raised.value)


def test_members_that_start_from_weights_are_the_same_in_any_company(tmp_path):
    stored(tmp_path / "w.safetensors")
    factory = starting.start("small", tmp_path / "w.safetensors")
    together = trained(range(5), factory, in_flight=2)
    for key, alone in trained([4, 2], factory).items():
        assert same(alone, together[key])
    assert not same(trained([2])[2, 0], together[2, 0])


def test_weights_are_part_of_a_networks_identity_but_not_of_its_architecture(tmp_path):
    stored(tmp_path / "a.safetensors")
    stored(tmp_path / "b.safetensors", seed=6)
    (job,) = jobs([0])
    names, shapes = set(), set()
    for weights in (None, tmp_path / "a.safetensors", tmp_path / "b.safetensors"):
        factory = starting.start("small", weights)
        names.add(Identities(Trainer(factory, PLAIN, (8, 8, 1), 10, device="cpu")).identity(job))
        shapes.add(architecture(factory, (8, 8, 1), 10))
    assert (len(names), len(shapes)) == (3, 1)


def test_a_classifier_keeps_to_its_weights_and_is_loaded_without_the_file(tmp_path):
    file = tmp_path / "w.safetensors"
    stored(file)
    fitted = classifier(weights=file).fit(TRAIN_X[:300], TRAIN_Y[:300])
    again = clone(fitted).fit(TRAIN_X[:300], TRAIN_Y[:300])
    np.testing.assert_array_equal(fitted.scores(TEST_X).values, again.scores(TEST_X).values)
    assert (fitted.scores(TEST_X).values != classifier().fit(TRAIN_X[:300], TRAIN_Y[:300]).scores(TEST_X).values).any()
    fitted.save(tmp_path / "model")
    file.unlink()
    fitted.update(add=(TEST_X[:1], np.array([3])))  # the weights are in memory
    loaded = TorchClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.scores(TEST_X).values, again.scores(TEST_X).values)
    assert loaded.weights == str(file.resolve())
    loaded.save(tmp_path / "copy")
    one, other = (json.loads((tmp_path / d / "manifest.json").read_text())["weights"] for d in ("model", "copy"))
    assert one == other
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        clone(loaded).fit(TRAIN_X[:300], TRAIN_Y[:300])


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"weights": "nowhere.safetensors"}, "nowhere.safetensors cannot be read: No such file"),
        ({"weights": 3}, "weights must be None, 'procedural' or the path of a file, got int"),
    ],
)
def test_weights_that_cannot_be_used(settings, told):
    with pytest.raises(ValueError, match=told):
        classifier(**settings).fit(TRAIN_X, TRAIN_Y)


def test_files_that_are_not_weights_of_the_network(tmp_path):
    file = tmp_path / "w.safetensors"
    for state, told in (
        ({"features.0.weight": torch.zeros(3, 3)}, r"of shape \(3, 3\), but the network's has \(32, 1, 3, 3\)"),
        ({"encoder": torch.zeros(3)}, "have a tensor 'encoder', which the network does not have"),
        ({"features.1.bias": torch.full((32,), torch.nan)}, "features.1.bias is not finite"),
        ({}, "it holds no tensors"),
    ):
        save_file(state, file)
        with pytest.raises(ValueError, match=told):
            classifier(weights=file).fit(TRAIN_X, TRAIN_Y)
    file.write_bytes(b"not weights")
    with pytest.raises(ValueError, match=r"must be a safetensors file, but .* is invalid"):
        classifier(weights=file).fit(TRAIN_X, TRAIN_Y)


def test_a_run_names_its_weights_and_refuses_others(tmp_path):
    file, other, out = tmp_path / "w.safetensors", tmp_path / "v.safetensors", str(tmp_path / "run")
    stored(file)
    stored(other, seed=6)
    command = ["train", "digits", "--k", "3", "--network", "small", "--recipe", "quick", "--device", "cpu"]

    def run(*arguments):
        return CliRunner().invoke(main, [*command, "--out", out, *arguments])

    result = run("--weights", str(file))
    assert result.exit_code == 0, result.output
    assert "small from w.safetensors weights" in result.output
    first = Run.open(tmp_path / "run").settings.first_weights
    assert first == starting.get(file, "small").described()
    for arguments in ((), ("--weights", str(other))):
        refused = run(*arguments)
        assert refused.exit_code == 2
        assert "first_weights" in refused.output
    assert "0 networks trained" in run("--weights", str(file)).output
    invoke = CliRunner().invoke
    assert invoke(main, ["certify", out]).exit_code == 0
    assert invoke(main, ["report", out, "--out", str(tmp_path / "report.html")]).exit_code == 0
    first_screen = (tmp_path / "report.html").read_text().split("<main>")[0]
    said = f"Networks started from given weights (w.safetensors, SHA-256 {first['sha256']}): everything here assumes"
    assert said in first_screen
    verified = invoke(main, ["verify", out, "--device", "cpu"])
    assert f"Not checked: the initial weights {first['given']} (SHA-256 {first['sha256']}): they are trusted" in (
        " ".join(verified.output.split())
    )
    with pytest.raises(StorageError, match="have another SHA-256 than those that the run was trained with"):
        starting.recorded("small", {**first, "sha256": "0" * 64})
    manifest = tmp_path / "run" / "manifest.json"
    data = json.loads(manifest.read_text())
    data["settings"]["first_weights"] = {"given": 3, "sha256": "x"}
    manifest.write_text(json.dumps(data))
    refused = run("--weights", str(file))
    assert refused.exit_code == 4
    assert "first_weights in its manifest is invalid" in refused.output


@pytest.mark.skipif(not starting.available(), reason="the package has no weights yet")
@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (48, 48, 3), (9, 12, 4)])
def test_the_weights_of_the_package_fit_images_of_any_kind(shape):
    factory = starting.start("nin", "procedural")
    module = building.build(factory, shape, 7, np.random.SeedSequence(0))
    assert module(torch.rand(2, shape[2], *shape[:2])).shape == (2, 7)
    about = starting.available()["nin"]["procedural"]
    assert starting.first_weights_of(factory).described() == {"given": "procedural", "sha256": about["sha256"]}
    assert about["command"].startswith("runoff pretrain")


@pytest.mark.skipif(not starting.available(), reason="the package has no weights yet")
def test_a_run_from_the_weights_of_the_package_says_so_in_report_and_verification(tmp_path):
    x, y = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4], classes=["a", "b"])
    out, page = tmp_path / "run", tmp_path / "report.html"
    settings = ("--k", 2, "--recipe", "quick", "--epochs", 1, "--weights", "procedural", "--device", "cpu")
    assert run("train", tmp_path / "own.npz", *settings, "--out", out).exit_code == 0
    sha256 = starting.available()["nin"]["procedural"]["sha256"]
    assert run("certify", out).exit_code == 0
    assert run("report", out, "--out", page).exit_code == 0
    said = f"Networks started from weights in the package (procedural, SHA-256 {sha256}), which were trained on images"
    assert said in page.read_text().split("<main>")[0]
    verified = " ".join(run("verify", out, "--device", "cpu").output.split())
    said = f"Checked: networks started from weights of this package, trained on procedural images (SHA-256 {sha256})"
    assert said in verified
    classifier_ = classifier(network="nin", weights="procedural", n_partitions=2).fit(TRAIN_X[:60], TRAIN_Y[:60])
    assert Source.from_classifier(classifier_, TEST_X[:5], TEST_Y[:5]).first_weights == f"procedural, SHA-256 {sha256}"


def test_runs_from_earlier_weights_of_the_package_find_them():
    versions = starting.available()["nin"]
    earlier = {"given": "procedural", "sha256": versions["procedural-1"]["sha256"]}  # as their manifests say
    factory = starting.recorded("nin", earlier)
    assert starting.first_weights_of(factory).sha256 == earlier["sha256"]
    named = starting.first_weights_of(starting.start("nin", "procedural-1"))
    assert named.described() == {"given": "procedural-1", "sha256": earlier["sha256"]}
    assert named.sha256 != starting.first_weights_of(starting.start("nin", "procedural")).sha256
    with pytest.raises(StorageError, match="have another SHA-256 than those that the run was trained with"):
        starting.recorded("nin", {"given": "procedural", "sha256": "0" * 64})


def test_weights_of_the_package_that_were_altered(tmp_path, monkeypatch):
    folder = tmp_path / "weights"
    folder.mkdir()
    stored(folder / "small.safetensors")
    about = {"small": {"procedural": {"file": "small.safetensors", "sha256": "0" * 64}}}
    (folder / "manifest.json").write_text(json.dumps(about))
    monkeypatch.setattr(starting.resources, "files", lambda _: tmp_path)
    with pytest.raises(StorageError, match="were altered or damaged: reinstall runoff"):
        starting.start("small", "procedural")
    with pytest.raises(ValueError, match="weights='procedural' are for network 'small', got 'nin': use weights=None"):
        starting.start("nin", "procedural")
    (folder / "manifest.json").unlink()
    with pytest.raises(ValueError, match="are not part of this package: train some with `runoff pretrain`"):
        starting.start("nin", "procedural")


@pytest.mark.parametrize(
    ("dataset", "shape", "dtype", "recipe"),
    [
        ("cifar10", (2, 32, 32, 3), np.uint8, "strong"),
        ("gtsrb", (2, 48, 48, 3), np.uint8, "strong-no-flip"),
        ("mnist", (2, 28, 28), np.uint8, "strong-digits"),
        ("digits", (2, 8, 8), np.uint8, "quick"),
        ("mine.npz", (2, 16, 20), np.uint8, "strong-no-flip"),
        ("mine.npz", (2, 15, 20, 3), np.uint8, "quick"),
        ("mine.npz", (2, 32, 32, 3), np.float32, "quick"),
        ("mine.npz", (2, 300), np.uint8, "quick"),
    ],
)
def test_the_default_recipe_follows_from_the_kind_of_input(dataset, shape, dtype, recipe):
    assert recipes.default(dataset, np.zeros(shape, dtype)) == recipe
    assert recipes.name_of(recipes.RECIPES[recipe].to_dict()) == recipe


def test_defaults_are_recorded_and_random_weights_can_be_had(tmp_path):
    x, y = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8), np.arange(40) % 2
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:4], y_test=y[:4], classes=["a", "b"])
    for options, weights in (((), "procedural"), (("--weights", "random"), None), (("--recipe", "paper"), None)):
        result = run(
            "train", tmp_path / "own.npz", "--k", 2, "--device", "cpu", *options, "--dry-run", "--out", tmp_path / "x"
        )
        assert result.exit_code == 0, result.output
        assert ("from procedural weights" in result.stdout) == (weights is not None)
        assert f"recipe {'paper' if options[:1] == ('--recipe',) else 'strong-no-flip'}" in result.stdout


def test_epochs_on_the_command_line(tmp_path):
    options = ("digits", "--k", 3, "--network", "small", "--device", "cpu", "--seed", 1, "--out", tmp_path / "run")
    result = run("train", *options, "--epochs", 3)
    assert result.exit_code == 0, result.output
    opened = Run.open(tmp_path / "run")
    assert opened.settings.recipe == dataclasses.replace(recipes.RECIPES["quick"], epochs=3).to_dict()
    assert "recipe quick with 3 epochs" in opened.settings.describe()
    assert "0 networks trained" in run("train", *options, "--epochs", 3).output
    assert "give another directory" in run("train", *options).output
    assert run("certify", tmp_path / "run").exit_code == 0
    assert run("report", tmp_path / "run", "--out", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text()
    assert "--recipe quick --epochs 3 --seed 1" in page
    assert "quick with 3 epochs" in page
    refused = run("train", "digits", "--k", 3, "--out", tmp_path / "x", "--encoder", "mine.safetensors", "--epochs", 3)
    assert "--epochs is for networks, which are not trained with --encoder" in refused.output
    paper = recipes.with_epochs(recipes.RECIPES["paper"], 50)
    assert (paper.epochs, paper.milestones) == (50, (15, 30, 40))
    assert recipes.named(paper.to_dict()) == ("paper", 50)
    assert recipes.named(recipes.RECIPES["paper"].to_dict()) == ("paper", None)
    assert recipes.named(dataclasses.replace(paper, lr=0.3).to_dict()) == (None, None)
