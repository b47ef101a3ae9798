"""Kills in the midst of writing: afterwards the same command must complete, and come to the same files.

The process ends at a chosen call of the file system: a file opened for writing, synced, renamed or removed, or a folder
made. A file that is killed while it is synced loses its second half first, as on a machine that loses power.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.torture.tally import Tally
from tests.torture.workshop import Workshop, ended, forked, leftovers, state, warm

MANY = 300
WATCHED = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod")
KILLED = 137


def hooked(call: Callable[[], Any], folder: Path, at: int, count: Path | None = None) -> Callable[[], Any]:
    """The call, ended at the `at`th watched call under the folder; or their number written to `count`."""

    def wrapped() -> Any:
        seen = [0]
        root = str(folder)

        def reached() -> bool:
            seen[0] += 1
            return seen[0] == at

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in WATCHED or not arguments or isinstance(arguments[0], int):
                return
            path = os.fsdecode(arguments[0]) if isinstance(arguments[0], (str, bytes, os.PathLike)) else ""
            if not path.startswith(root) or path.endswith(".lock"):
                return
            if event == "open" and not (arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)):
                return
            if reached():
                os._exit(KILLED)

        fsync = os.fsync

        def torn(descriptor: int) -> None:
            path = Path(f"/proc/self/fd/{descriptor}")
            target = str(path.readlink()) if path.exists() else ""
            if target.startswith(root) and reached():
                if Path(target).is_file() and target.endswith(".runoff-tmp"):
                    os.truncate(target, os.fstat(descriptor).st_size // 2)
                os._exit(KILLED)
            fsync(descriptor)

        os.fsync = torn
        sys.addaudithook(audit)
        result = call()
        if count is not None:
            count.write_text(str(seen[0]))
        return result

    return wrapped


def run(scale: float, seed: int, jobs: int) -> Tally:  # noqa: ARG001
    """The kills are spread over the commands and over each command's calls."""
    warm()
    tally = Tally()
    folder = Path(tempfile.mkdtemp(prefix="torture-")).resolve()
    try:
        shop = Workshop(folder)
        twice = shop.copy(folder / "twice")
        assert ended(forked(shop.update(twice))) == 0, "a tiny run could not be updated"

        def updated(out: Path) -> Path:
            return Path(shutil.copytree(twice, out))

        commands: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
            "train": (lambda _: None, shop.train),
            "train, two seeds": (shop.copy, lambda out: shop.train(out, "--n-seeds", 2)),
            "update": (shop.copy, shop.update),
            "update, again": (updated, lambda out: shop.update(out, add="more.npz", remove="new.npz")),
            "certify": (shop.copy, shop.certify),
            "save": (lambda _: None, saved),
        }
        each = max(2, round(MANY * scale / len(commands)))
        for name, (prepare, make) in commands.items():
            _kill(tally, name, folder, prepare, make, each)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def saved(out: Path) -> Callable[[], int]:
    """Fit a classifier and save it; where it is saved already, that is refused, and good."""

    def call() -> int:
        from tests.torture import bases

        if not out.exists():
            bases.a_model(out.parent)
            (out.parent / "model").rename(out) if out.name != "model" else None
        return 0

    return call


def _kill(tally: Tally, name: str, folder: Path, prepare: Any, make: Any, kills: int) -> None:
    place = folder / "work"

    def fresh() -> Path:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        prepare(place / "model")
        return place / "model"

    out = fresh()
    before = state(out) if out.exists() else {}
    assert ended(forked(hooked(make(out), place, 0, folder / "count"))) == 0, name
    after, calls = state(out), int((folder / "count").read_text())
    points = sorted({1 + round(n * (calls - 1) / max(1, kills - 1)) for n in range(kills)})
    for at in points:
        out = fresh()
        code = ended(forked(hooked(make(out), place, at)))
        told = f"{name}, killed at call {at} of {calls}"
        tally.check(f"kills, {name}", code == KILLED, f"{told}: ended with {code}")
        wrong = _readable(out, before, after)
        tally.check("directories after a kill: whole, or refused", wrong is None, f"{told}: {wrong}")
        code = ended(forked(make(out)))
        found = state(out) if out.exists() else {}
        different = sorted(n for n in {*found, *after} if found.get(n) != after.get(n))
        good = code == 0 and not different
        tally.check("the same command again: same result", good, f"{told}: exit code {code}, differs in {different}")
        left = leftovers(place)
        tally.check("nothing temporary left", not left, f"{told}: {left}")


def _readable(out: Path, before: dict[str, str], after: dict[str, str]) -> str | None:
    """What is wrong with a directory that can be read after a kill, if it can."""
    if not (out / "manifest.json").exists():
        return None
    if (out / "members").is_dir() and any((out / "members").glob("*.skops")):
        import runoff

        runoff.RunoffClassifier.load(out)
        return None if state(out) == after else "a saved classifier that is not the one saved"
    from runoff.runs import Run

    try:
        run = Run.open(out)
        run.verify()
        seeds = run.seeds()
        arrays = [run.ballots(n) for n in seeds]
    except ValueError as error:
        return None if "\n" not in str(error) else f"{error}"
    import hashlib

    known = json.loads(before["manifest"])[0]["edits"] if "manifest" in before else []
    for n in seeds:
        digest = hashlib.sha256((out / f"ballots-{n}.npy").read_bytes()).hexdigest()
        if digest not in (before.get(f"ballots-{n}.npy"), after.get(f"ballots-{n}.npy")):
            return f"ballots of {n} seeds that no finished command has ({len(arrays)} arrays)"
        edited = run.manifest["edits"] != known
        if edited and digest != after.get(f"ballots-{n}.npy"):
            return "ballots of the samples before the edits, in a run that has the edits"
    return None
