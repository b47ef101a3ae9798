"""Kills during writing: afterwards the same command must complete and produce the same files.

The process ends at a chosen call of the file system: a file opened for writing, synced, renamed or removed, or a folder
made. A file that is killed while it is synced loses its second half first, as on a machine that loses power.
"""

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.torture.tally import Tally
from tests.torture.workshop import Workshop, command, ended, forked, leftovers, state, warm

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
        sources, labels = folder / "sources", folder / "labels"
        assert ended(forked(shop.train(sources, data="grouped.npz"))) == 0, "sources could not be trained"
        assert ended(forked(shop.train(labels, "--threat", "labels"))) == 0, "labels could not be trained"

        def copied(run: Path) -> Callable[[Path], Path]:
            return lambda out: Path(shutil.copytree(run, out))

        commands: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Any]]] = {
            "train": (lambda _: None, shop.train),
            "train, two seeds": (shop.copy, lambda out: shop.train(out, "--n-seeds", 2)),
            "update": (shop.copy, shop.update),
            "update, again": (copied(twice), lambda out: shop.update(out, add="more.npz", remove="new.npz")),
            "train, sources": (lambda _: None, lambda out: shop.train(out, data="grouped.npz")),
            "update, sources": (
                copied(sources),
                lambda out: shop.update(out, add="new-groups.npz", remove="gone-groups.npz"),
            ),
            "train, labels": (lambda _: None, lambda out: shop.train(out, "--threat", "labels")),
            "update, labels": (copied(labels), lambda out: shop.update(out, add="relabelled.npz")),
            "certify": (shop.copy, shop.certify),
            "certify, exported": (shop.copy, exported),
            "verify, attested": (shop.copy, attested),
            "save": (lambda _: None, saved),
            "save, labels": (lambda _: None, lambda out: saved(out, threat="labels")),
        }
        each = max(2, round(MANY * scale / len(commands)))
        for name, (prepare, make) in commands.items():
            _kill(tally, name, folder, prepare, make, each)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def saved(out: Path, **settings: Any) -> Callable[[], int]:
    """Fit a classifier and save it; where it is saved already, that is refused, and good."""

    def call() -> int:
        from tests.torture import bases

        if not out.exists():
            bases.a_model(out.parent, **settings)
        return 0

    return call


def exported(out: Path) -> Callable[[], int]:
    """`runoff certify` with a proof and rows beside the run."""
    beside = ("--export", out.parent / "proof.json", "--out", out.parent / "rows.csv")
    return command("certify", out, *beside, "--election", "maximin", "--json")


def attested(out: Path) -> Callable[[], int]:
    """`runoff verify` with a statement beside the run."""
    return command("verify", out, "--sample", 1, "--attest", out.parent / "statement.json", "--json")


def beside(place: Path) -> dict[str, str]:
    """The files beside a run with their digests; a statement holds the time of day."""
    files = (path for path in place.iterdir() if path.is_file() and not path.name.startswith("."))
    return {
        f"../{path.name}": "" if path.name == "statement.json" else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


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
    after, calls = state(out) | beside(place), int((folder / "count").read_text())
    points = sorted({1 + round(n * (calls - 1) / max(1, kills - 1)) for n in range(kills)})
    for at in points:
        out = fresh()
        code = ended(forked(hooked(make(out), place, at)))
        told = f"{name}, killed at call {at} of {calls}"
        tally.check(f"kills, {name}", code == KILLED, f"{told}: ended with {code}")
        wrong = _readable(out, before, after)
        torn = [name for name, digest in beside(place).items() if digest != after.get(name)]
        wrong = wrong or (f"half-written {torn}" if torn else None)
        tally.check("directories after a kill: whole, or refused", wrong is None, f"{told}: {wrong}")
        code = ended(forked(make(out)))
        found = (state(out) if out.exists() else {}) | beside(place)
        different = sorted(n for n in {*found, *after} if found.get(n) != after.get(n))
        good = code == 0 and not different
        tally.check("the same command again: same result", good, f"{told}: exit code {code}, differs in {different}")
        left = leftovers(place)
        tally.check("nothing temporary left", not left, f"{told}: {left}")


def _readable(out: Path, before: dict[str, str], after: dict[str, str]) -> str | None:
    """Return what is wrong with a directory after a kill, if it can be read."""
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
    known = json.loads(before["manifest"])[0]["edits"] if "manifest" in before else []
    for n in seeds:
        digest = hashlib.sha256((out / f"ballots-{n}.npy").read_bytes()).hexdigest()
        if digest not in (before.get(f"ballots-{n}.npy"), after.get(f"ballots-{n}.npy")):
            return f"ballots of {n} seeds that no finished command has ({len(arrays)} arrays)"
        edited = run.manifest["edits"] != known
        if edited and digest != after.get(f"ballots-{n}.npy"):
            return "ballots of the samples before the edits, in a run that has the edits"
    return None
