"""Commands on tiny runs and classifiers, each in a fork of a process that has everything imported."""

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VOLATILE = ("manifest.json", "timings.json", ".lock")  # they hold times
SMALL = ("--network", "small", "--recipe", "quick", "--device", "cpu", "--in-flight", "1", "--json")
LIMIT = 120.0  # seconds without any processor time after which a command counts as hanging


def warm() -> None:
    """Import what commands need, and keep to one thread: a fork of a process with threads would hang."""
    import torch

    torch.set_num_threads(1)
    import runoff.runs.training  # noqa: F401
    from runoff import cli, elections

    for name in ("train", "update", "certify"):
        cli.main.get_command(None, name)  # type: ignore[arg-type]
    elections.get("runoff")


def forked(call: Callable[[], Any]) -> int:
    """Run a call in a fork: its process id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):
            os.dup2(nowhere, stream)
        code = int(call() or 0)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def ended(pid: int) -> int | None:
    """The exit code of a fork, or None where it hangs."""
    used, moved = "", time.monotonic()
    while time.monotonic() < moved + LIMIT:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        now = " ".join(fields[10:14])  # its processor time, and that of its children
        if now != used or state == "R":
            used, moved = now, time.monotonic()
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return None


def command(*arguments: Any, told: Path | None = None) -> Callable[[], int]:
    """A `runoff` command as a call that returns its exit code and stores its output in `told`."""

    def call() -> int:
        from click.testing import CliRunner

        from runoff import cli

        result = CliRunner().invoke(cli.main, [str(a) for a in arguments])
        if told is not None:
            failed = result.exception
            odd = failed is not None and not isinstance(failed, SystemExit)
            told.write_text(f"{type(failed).__name__}: {failed}" if odd else result.stderr)
        return 70 if isinstance(result.exception, Exception) else result.exit_code

    return call


class Workshop:
    """A folder with a dataset, edits, a trained run, and the results of uninterrupted commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rng = np.random.default_rng(0)
        x, y = rng.integers(0, 256, (30, 4, 4, 1), dtype=np.uint8), np.arange(30) % 3
        x[np.arange(30), y % 4, 0, 0] = 255
        np.savez(folder / "own.npz", x_train=x[:24], y_train=y[:24], x_test=x[24:], y_test=y[24:])
        np.savez(folder / "bad.npz", x=x[:2], y=y[:2])
        np.savez(folder / "new.npz", x=x[24:26], y=y[24:26])
        np.savez(folder / "more.npz", x=x[26:28], y=y[26:28])
        np.savez(folder / "relabelled.npz", x=x[:2], y=(y[:2] + 1) % 3)
        names = np.array(["a", "\u00e9", "e\u0301", "7", "-0", "../a", "", "a\nb"])  # two pairs are one source
        parts = {"x_train": x[:24], "y_train": y[:24], "x_test": x[24:], "y_test": y[24:]}
        np.savez(folder / "grouped.npz", **parts, groups=names[np.arange(24) % 8])
        np.savez(folder / "gone-groups.npz", x=x[:24:8], y=y[:24:8], groups=names[[0, 0, 0]])
        np.savez(folder / "new-groups.npz", x=x[24:27], y=y[24:27], groups=np.array([7, 8, 8]))
        self.trained = folder / "trained"
        train = self.train(self.trained)
        assert ended(forked(train)) == 0, "a tiny run could not be trained"

    def train(self, out: Path, *more: Any, data: str = "own.npz", told: Path | None = None) -> Callable[[], int]:
        """`runoff train` of three members."""
        return command("train", self.folder / data, "--classes", 3, "--k", 3, *SMALL, "--out", out, *more, told=told)

    def update(
        self, out: Path, told: Path | None = None, add: str = "new.npz", remove: str = "bad.npz"
    ) -> Callable[[], int]:
        """`runoff update` that removes two samples and adds two."""
        edits = ("--remove", self.folder / remove, "--add", self.folder / add)
        return command("update", out, *edits, "--device", "cpu", "--in-flight", 1, "--json", told=told)

    def certify(self, out: Path, told: Path | None = None) -> Callable[[], int]:
        """`runoff certify`, which keeps rows in the run."""
        return command("certify", out, "--json", told=told)

    def copy(self, to: Path) -> Path:
        """The trained run again."""
        return Path(shutil.copytree(self.trained, to))


def state(folder: Path) -> dict[str, str]:
    """The files of a folder with the digests of those that hold no times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and name not in VOLATILE and not path.name.endswith(".runoff-tmp"):  # counted elsewhere
            timed = path.suffix in (".safetensors", ".skops", ".zip")  # with times inside
            found[name] = "" if timed else hashlib.sha256(_content(path)).hexdigest()
    if (folder / "manifest.json").exists():
        told = json.loads((folder / "manifest.json").read_text())
        kept = {
            name: told.get(name) for name in ("settings", "partition", "edits", "n_seeds", "stale", "training_sets")
        }
        found["manifest"] = json.dumps([kept, sorted(told["files"])], sort_keys=True)
    return found


def _content(path: Path) -> bytes:
    """A file's bytes; of an archive its arrays, since it also holds the time of day."""
    if path.suffix != ".npz":
        return path.read_bytes()
    with np.load(path, allow_pickle=False) as arrays:
        return b"".join(name.encode() + arrays[name].tobytes() for name in sorted(arrays.files))


def leftovers(folder: Path) -> list[str]:
    """Return temporary files and folders anywhere below the folder, except locks."""
    names = [str(p.relative_to(folder)) for p in folder.rglob(".*") if p.name != ".lock"]
    return sorted(names)
