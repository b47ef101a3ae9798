"""`runoff data`: list, check and fetch datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runoff._io.progress import with_downloads
from runoff.cli.errors import failure
from runoff.cli.options import as_json as json_option
from runoff.cli.options import common_options
from runoff.cli.options import data_dir as data_dir_option
from runoff.cli.output import say
from runoff.errors import MissingError, RunoffError

if TYPE_CHECKING:
    from runoff.datasets import Dataset, TextDataset


@click.group()
def data() -> None:
    """List, check and download datasets.

    Example: runoff data list
    """


@data.command("list")
@data_dir_option
@json_option
@common_options
def list_(data_dir: Path | None, as_json: bool) -> None:
    """List the named datasets and the location of their files.

    Files are located by name only; `runoff data check` compares their content.

    Example: runoff data list
    """
    from runoff import datasets
    from runoff.datasets.places import data_directory

    rows = [_row(name, datasets.located(name, data_dir)) for name in datasets.NAMES]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    lines = [("name", "train", "test", "input", "classes", "found in")]
    for row in rows:
        size = "x".join(map(str, row["shape"])) or "text"
        numbers = (f"{row['train']:,}", f"{row['test']:,}", size, f"{row['classes']}")
        lines.append((row["name"], *numbers, row["found"] or "missing"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for name, *inner, location in lines:  # long paths are not wrapped, so that they can be copied
        padded = (f"{cell:>{width}}" for cell, width in zip(inner, widths[1:-1], strict=True))
        say("  ".join([f"{name:<{widths[0]}}", *padded, location]))
    if any(row["found"] is None for row in rows):
        root = data_directory(data_dir)
        say(f"looked in {root}" if root.is_dir() else f"looked in {root}, which does not exist")


def _row(name: str, location: str | None) -> dict[str, Any]:
    from runoff.datasets.catalogue import CATALOGUE

    entry = CATALOGUE[name]
    return {
        "name": name,
        "train": entry.n_train,
        "test": entry.n_test,
        "shape": list(entry.shape),
        "classes": len(entry.classes),
        "found": location,
    }


@data.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@data_dir_option
@json_option
@common_options
def check(names: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Check every pixel, text and label of datasets.

    Without a NAME, all existing datasets are checked. A NAME may also be the path of a .npz file or of a folder of
    images; for those only shapes and types are checked.

    Example: runoff data check mnist cifar10
    """
    from runoff import datasets
    from runoff.datasets.places import data_directory

    rows, codes = [], []
    if not names:
        names = tuple(name for name in datasets.NAMES if datasets.located(name, data_dir))
        if data_dir is not None and not data_directory(data_dir).is_dir():
            raise MissingError(f"{data_dir} does not exist: give the folder that holds the datasets")
    for name in names:
        row: dict[str, Any] = {"name": name, "ok": False}
        try:
            dataset = datasets.load(name, data_dir)
            location = datasets.located(name, data_dir) if name in datasets.NAMES else name
            row |= {"ok": True, "found": location} | _describe(dataset)
            if not as_json:
                say(f"{name}: correct, {dataset!r} from {location}, fingerprint {row['fingerprint']}")
                if not dataset.classes_fixed:
                    say(
                        f"{name}: its classes were taken from its samples, so one more sample could add a class; to "
                        "train on it, use --classes, or add classes to the .npz file or classes.txt to the folder"
                    )
        except RunoffError as error:
            row["error"] = str(error)
            failed = failure(error)
            failed.show()
            codes.append(failed.exit_code)
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    if codes:
        raise click.exceptions.Exit(max(codes))


def _describe(dataset: Dataset | TextDataset) -> dict[str, Any]:
    return {
        "train": len(dataset.x_train),
        "test": len(dataset.x_test),
        "shape": list(dataset.shape),
        "classes": len(dataset.classes),
        "classes_fixed": dataset.classes_fixed,
        "fingerprint": dataset.fingerprint,
    }


@data.command()
@click.argument("name")
@data_dir_option
@click.option("--url-base", metavar="URL", help="Download from this mirror: a folder with the official files.")
@common_options
def fetch(name: str, data_dir: Path | None, url_base: str | None) -> None:
    """Download the official archives of the dataset NAME, and check them.

    An interrupted download is resumed when the command is repeated.

    Example: runoff data fetch mnist
    """
    from runoff import datasets

    with with_downloads() as progress:
        files = datasets.fetch(name, data_dir, url_base=url_base, progress=progress)
    if not files:
        say(f"{name} comes with scikit-learn: nothing to download")
    for file in files:
        say(f"{file}: checksum correct")
