"""Two commands at once on the same files: both succeed, or one waits or refuses in a sentence; never a mixture."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.torture.tally import Tally
from tests.torture.workshop import Workshop, ended, forked, leftovers, state, warm

MANY = 10  # of each pair
BUSY = (
    "is in use by another",
    "already exists: save to a new directory",
    "is not finished",
    "finish it first",
    "is not a training sample",
    "no manifest.json",
)


def run(scale: float, seed: int, jobs: int) -> Tally:  # noqa: ARG001
    """Every pair of commands, several times: what overlaps differs from one time to the next."""
    warm()
    tally = Tally()
    folder = Path(tempfile.mkdtemp(prefix="torture-")).resolve()
    try:
        shop = Workshop(folder)
        told = (folder / "told-a", folder / "told-b")
        out = folder / "work" / "model"

        def nothing() -> None:
            out.parent.mkdir()

        def copied() -> None:
            out.parent.mkdir()
            shop.copy(out)

        a, b = told
        np_new = shop.update(out, b, add="bad.npz")
        pairs: dict[str, tuple[Callable[[], Any], Callable[[], int], Callable[[], int]]] = {
            "train and train": (nothing, shop.train(out, told=a), shop.train(out, told=b)),
            "train and certify": (copied, shop.train(out, "--n-seeds", 2, told=a), shop.certify(out, b)),
            "update and update": (copied, shop.update(out, a), shop.update(out, b)),
            "update and another update": (copied, shop.update(out, a), np_new),
            "update and certify": (copied, shop.update(out, a), shop.certify(out, b)),
            "certify and certify": (copied, shop.certify(out, a), shop.certify(out, b)),
            "save and save": (nothing, _save(out, a), _save(out, b)),
            "a dataset's cache": (nothing, _cached(out.parent, a), _cached(out.parent, b)),
        }
        for name, (prepare, one, other) in pairs.items():
            ends = _orders(folder, prepare, one, other)
            for _ in range(max(1, round(MANY * scale))):
                _race(tally, name, folder, prepare, (one, other), told, ends)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def _fresh(folder: Path, prepare: Callable[[], Any]) -> Path:
    shutil.rmtree(folder / "work", ignore_errors=True)
    prepare()
    return folder / "work"


def _orders(folder: Path, prepare: Callable[[], Any], one: Any, other: Any) -> list[dict[str, str]]:
    """Return the files after the commands ran one after the other, in either order, or only one of them."""
    found = []
    for calls in ((one, other), (other, one), (one,), (other,)):
        place = _fresh(folder, prepare)
        for call in calls:
            ended(forked(call))
        found.append(state(place / "model"))
    return found


def _race(
    tally: Tally,
    name: str,
    folder: Path,
    prepare: Any,
    calls: tuple[Any, Any],
    told: tuple[Path, Path],
    ends: list[Any],
) -> None:
    place = _fresh(folder, prepare)
    for file in told:
        file.write_text("")
    pids = [forked(call) for call in calls]
    codes = [ended(pid) for pid in pids]
    said = [file.read_text().strip() for file in told]
    refused = [s for c, s in zip(codes, said, strict=True) if c]
    good = 0 in codes and all(any(word in s for word in BUSY) for s in refused)
    tally.check(f"two at once, {name}", good, f"exit codes {codes}, {refused}")
    found = state(place / "model")
    same = found in ends
    nearest = min(ends, key=lambda end: len(set(end.items()) ^ set(found.items())))
    differs = sorted({n for n in {*found, *nearest} if found.get(n) != nearest.get(n)})
    tally.check("the result is that of one after the other", same, f"{name}: differs in {differs}, {codes}, {said}")
    left = leftovers(place)
    tally.check("nothing temporary left", not left, f"{name}: {left}")


def _save(out: Path, told: Path) -> Callable[[], int]:
    def call() -> int:
        import numpy as np
        from sklearn.naive_bayes import GaussianNB

        import runoff

        X = np.random.default_rng(0).normal(size=(40, 3))
        y = (X[:, 0] > 0).astype(int)
        classifier = runoff.RunoffClassifier(GaussianNB(), n_partitions=4, classes=[0, 1]).fit(X, y)
        try:
            classifier.save(out)
        except Exception as error:
            told.write_text(f"{error}" if isinstance(error, FileExistsError) else f"{type(error).__name__}: {error}")
            return 2
        runoff.RunoffClassifier.load(out)
        return 0

    return call


def _cached(folder: Path, told: Path) -> Callable[[], int]:
    """GTSRB, decoded and kept by whoever reads it first."""

    def call() -> int:
        import numpy as np
        import pytest

        import dataset_helpers
        from tests.torture import bases

        dataset_helpers.RNG = np.random.default_rng(0)
        with pytest.MonkeyPatch.context() as patch:
            files = bases.gtsrb(patch)
            for name, data in files.items():
                path = folder / "model" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    temporary = path.with_name(f"{name}.{id(call)}-{told.name}")
                    temporary.write_bytes(data)
                    temporary.replace(path)
            for _ in range(3):
                bases.fingerprint(folder / "model", "gtsrb")
        return 0

    return call
