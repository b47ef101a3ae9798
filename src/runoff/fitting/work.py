"""Fitting of scikit-learn estimators as work for an executor."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import config_context, get_config
from threadpoolctl import threadpool_info

from runoff._version import __version__
from runoff.errors import DeviceError
from runoff.executors import Place, Work
from runoff.executors.base import SETTINGS_OF_BITS
from runoff.executors.local import each_by_itself
from runoff.isolation import seeds_of
from runoff.members import Member, MemberEstimator, fit_member
from runoff.samples import Rows, Samples


@dataclass(frozen=True, eq=False)
class Fitting(Work):
    """Members to fit; an item is the index of a member."""

    estimator: MemberEstimator
    samples: Samples = field(repr=False)
    labels: NDArray[Any] = field(repr=False)
    rows: dict[int, Rows] = field(repr=False)  # by member
    seed: int
    n_seeds: int
    kinds: tuple[dict[str, Any], ...] = ()
    config: dict[str, Any] = field(default_factory=get_config)  # of scikit-learn, which other processes do not share

    def train(self, items: Sequence[int], place: Place) -> Iterator[tuple[int, Member]]:
        """Fit these members: one after the other, or as many at a time as there are CPUs, each in its process."""
        if (place.cpus or 1) > 1 and len(items) > 1:
            yield from each_by_itself(self, items, place.cpus)
            return
        for m in items:
            seeds = seeds_of(self.seed, m, self.n_seeds)
            with config_context(**self.config):
                fitted = fit_member(self.estimator, self.samples, self.labels, self.rows[m], m, seeds)
            yield m, fitted

    def kind(self, place: Place) -> dict[str, Any]:
        """Return the facts that determine the last bits of estimators on this machine."""
        return kind_here(place, modules_of(self.estimator.unfitted))

    def member(self, item: int) -> int:
        """Return the member."""
        return item

    def weight(self, item: int) -> float:
        """Return the number of samples, as an estimate of the relative time."""
        return float(max(1, len(self.rows[item])) * self.n_seeds)

    def part(self, items: Sequence[int]) -> Fitting:
        """Return work with the rows of these members only."""
        rows = np.concatenate([self.rows[m] for m in items])
        ends = np.cumsum([len(self.rows[m]) for m in items])
        places = {m: np.arange(end - len(self.rows[m]), end) for m, end in zip(items, ends, strict=True)}
        return replace(self, samples=self.samples.select(rows), labels=self.labels[rows], rows=places)

    def measure(self, items: Sequence[int], place: Place) -> float:
        """Return the seconds to fit these members, measured by fitting one at a time."""
        alone = Place(cpus=1)
        list(self.train(items[:1], alone))  # imports, and caches
        started = time.perf_counter()
        list(self.train(items, alone))
        return (time.perf_counter() - started) / (place.cpus or 1)

    def basis(self, place: Place) -> str:  # noqa: ARG002
        """Return how the time was estimated."""
        return "from the second fit of a member of median size"


def kind_here(place: Place, modules: Sequence[str] = ()) -> dict[str, Any]:  # noqa: ARG001
    """Return the facts that determine the last bits of estimators: versions, and instructions that libraries use.

    `modules` are those of the estimator, besides the ones that every estimator needs.
    """
    import scipy.linalg  # loads its library
    import sklearn

    releases = {f"module {name}": release(name) for name in modules}  # first, as they may load more libraries
    features = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    blas = {
        f"{info['internal_api']} {info.get('version')} {info.get('architecture') or processor()}"
        for info in threadpool_info()
        if info["user_api"] == "blas" and "torch" not in info["filepath"]
    }
    return {
        "machine": platform.machine(),
        "instructions": " ".join(features),
        "libraries": ", ".join(sorted(blas)),
        "settings": " ".join(f"{name}={os.environ[name]}" for name in SETTINGS_OF_BITS if name in os.environ),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "runoff": __version__,
        **releases,
    }


def processor() -> str:
    """Return the name of the processor, by which MKL chooses instructions without saying which."""
    try:
        name = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        name = None
    return platform.processor() if name is None else name[1]


COMMON = frozenset({"runoff", "numpy", "scipy", "sklearn", "__main__", *sys.stdlib_module_names})
ABSENT = "not installed"
MAY_DIFFER = ("instructions", "libraries", "settings", "libc", "python")  # between the cluster and this machine


def modules_of(estimator: Any) -> tuple[str, ...]:
    """Return the top-level modules of an estimator and of everything in its parameters, without the common ones."""
    things = [estimator, *estimator.get_params(deep=True).values()]
    names = {name for thing in things for name in (type(thing).__module__, getattr(thing, "__module__", None))}
    return tuple(sorted({name.partition(".")[0] for name in names if isinstance(name, str)} - COMMON))


def release(module: str) -> str:
    """Return the version of a module, or a digest of its Python code if it has none."""
    try:
        loaded = import_module(module)
    except ImportError:  # where code is sent with the estimator; else training fails, and says so
        return ABSENT
    if version := getattr(loaded, "__version__", None):
        return str(version)
    hashed, file = hashlib.sha256(), Path(getattr(loaded, "__file__", None) or "")
    for path in sorted(file.parent.rglob("*.py")) if file.name == "__init__.py" else [file]:
        hashed.update(path.read_bytes() if path.is_file() else b"")
    return hashed.hexdigest()


def require_versions(kinds: tuple[dict[str, Any], ...], here: dict[str, Any]) -> None:
    """Raise an error for machines whose versions differ from those of this one, which scores and saves the members."""
    for kind in kinds:
        for name in here:
            if name not in MAY_DIFFER and kind[name] not in (here[name], ABSENT):
                raise DeviceError(
                    f"the cluster must have the versions of this machine, got {name} {kind[name]} instead of "
                    f"{here[name]}: install the same versions"
                )
