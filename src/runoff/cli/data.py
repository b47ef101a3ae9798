"""The command line: `runoff data list`, `check` and `fetch`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

if TYPE_CHECKING:
    from runoff.datasets import Dataset

FAILURE, USAGE, INTEGRITY = 1, 2, 4

_data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the datasets are. Default: $RUNOFF_DATA, else the user's cache directory.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Machine-readable result on standard output.")


def _failed(error: Exception) -> click.exceptions.Exit:
    """Tell an error in one sentence; the exit code fits it."""
    click.echo(f"Error: {error}", err=True)
    return click.exceptions.Exit(_exit_code(error))


def _say(line: str) -> None:
    """Print a line as it is. What is no UTF-8 in a path cannot be printed, and is no reason to break off."""
    click.echo(line.encode("utf-8", "replace").decode("utf-8"))


def _exit_code(error: Exception) -> int:
    from runoff.errors import DatasetError, DownloadError, IntegrityError, MissingError

    if isinstance(error, IntegrityError):
        return INTEGRITY
    is_usage = isinstance(error, DatasetError) and not isinstance(error, (MissingError, DownloadError))
    return USAGE if is_usage else FAILURE


@click.group()
def data() -> None:
    """Datasets: which there are, whether they are right, and how to get them.

    Example: runoff data list
    """


@data.command("list")
@_data_dir
@_as_json
def list_(data_dir: Path | None, as_json: bool) -> None:
    """List the named datasets, and where their files were found.

    Files are found by their names; whether they are right, `runoff data check` says.

    Example: runoff data list
    """
    from runoff import datasets
    from runoff.datasets.places import data_directory

    try:
        rows = [_row(name, datasets.located(name, data_dir)) for name in datasets.NAMES]
    except datasets.DatasetError as error:
        raise _failed(error) from None
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    lines = [("name", "train", "test", "image", "classes", "found in")]
    for row in rows:
        size = "x".join(map(str, row["shape"]))
        numbers = (f"{row['train']:,}", f"{row['test']:,}", size, f"{row['classes']}")
        lines.append((row["name"], *numbers, row["found"] or "missing"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *inner, found in lines:  # a path stays on its line, however long, to be copied
        padded = (f"{cell:>{width}}" for cell, width in zip(inner, widths[1:-1], strict=True))
        _say("  ".join([f"{name:<{widths[0]}}", *padded, found]))
    if any(row["found"] is None for row in rows):
        root = data_directory(data_dir)
        _say(f"looked in {root}" if root.is_dir() else f"looked in {root}, which is no folder")


def _row(name: str, found: str | None) -> dict[str, Any]:
    from runoff.datasets.catalogue import CATALOGUE

    entry = CATALOGUE[name]
    return {
        "name": name,
        "train": entry.n_train,
        "test": entry.n_test,
        "shape": list(entry.shape),
        "classes": len(entry.classes),
        "found": found,
    }


@data.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_data_dir
@_as_json
def check(names: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Check every pixel and label of datasets.

    Without a NAME, of all that are found. A NAME may also be the path of a .npz file or of a folder of images; of
    those only the form is checked.

    Example: runoff data check mnist cifar10
    """
    from runoff import datasets
    from runoff.datasets.places import data_directory

    rows, codes = [], []
    try:
        found_names = tuple(name for name in datasets.NAMES if not names and datasets.located(name, data_dir))
        if not names and data_dir is not None and not data_directory(data_dir).is_dir():
            raise datasets.MissingError(f"{data_dir} is not there: name the folder that the datasets are in")
    except datasets.DatasetError as error:
        raise _failed(error) from None
    for name in names or found_names:
        row: dict[str, Any] = {"name": name, "ok": False}
        try:
            dataset = datasets.load(name, data_dir)
            found = datasets.located(name, data_dir) if name in datasets.NAMES else name
            row |= {"ok": True, "found": found} | _described(dataset)
            if not as_json:
                _say(f"{name}: right, {dataset!r} from {found}, fingerprint {row['fingerprint']}")
                if not dataset.classes_fixed:
                    _say(
                        f"{name}: its classes were taken from its samples, so one more sample could add a class; to "
                        "train on it, name them by --classes, by classes in the .npz file or classes.txt in the folder"
                    )
        except (datasets.DatasetError, ImportError) as error:
            row["error"] = str(error)
            codes.append(_failed(error).exit_code)
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    if codes:
        raise click.exceptions.Exit(max(codes))


def _described(dataset: Dataset) -> dict[str, Any]:
    return {
        "train": len(dataset.x_train),
        "test": len(dataset.x_test),
        "shape": list(dataset.x_train.shape[1:]),
        "classes": len(dataset.classes),
        "classes_fixed": dataset.classes_fixed,
        "fingerprint": dataset.fingerprint,
    }


@data.command()
@click.argument("name")
@_data_dir
@click.option("--url-base", metavar="URL", help="A mirror: the address of a folder that holds the official files.")
def fetch(name: str, data_dir: Path | None, url_base: str | None) -> None:
    """Download the official archives of the dataset NAME, and check them.

    A download that breaks off is resumed when the command is given again.

    Example: runoff data fetch mnist
    """
    from runoff import datasets

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    try:  # the bars end before any error is told
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bars:
            tasks: dict[str, Any] = {}

            def progress(file: str, there: int, total: int | None) -> None:
                if file not in tasks:
                    tasks[file] = bars.add_task(file, total=total)
                bars.update(tasks[file], completed=there, total=total)

            files = datasets.fetch(name, data_dir, url_base=url_base, progress=progress)
    except datasets.DatasetError as error:
        raise _failed(error) from None
    if not files:
        click.echo(f"{name} comes with scikit-learn: there is nothing to fetch")
    for file in files:
        _say(f"{file}: right by its checksum")
