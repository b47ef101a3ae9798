"""`runoff verify`: independent verification of a run or a saved classifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from runoff._io.files import written_whole
from runoff.cli.errors import writing
from runoff.cli.options import as_json as json_option
from runoff.cli.options import data_dir as data_dir_option
from runoff.cli.options import device as device_option
from runoff.cli.options import own_network
from runoff.cli.output import say
from runoff.errors import DatasetError, InputError, RunoffError
from runoff.saving.tables import is_table

if TYPE_CHECKING:
    from runoff.verify import Report


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Read the training data from this path: a .npz file with x, y[, groups] or a table (classifier), or a dataset "
    "(run).",
)
@click.option("--label-column", metavar="NAME", help="Read the labels from this column, if --data is a table.")
@click.option("--group-column", metavar="NAME", help="Read the sources from this column, if --data is a table.")
@data_dir_option
@click.option("--full", is_flag=True, help="Score all inputs again, and prove all radii by integer programming.")
@click.option(
    "--sample", type=click.IntRange(0), default=20, show_default=True, help="Without --full, score and prove N inputs."
)
@click.option(
    "--retrain", type=click.IntRange(0), default=0, metavar="N", help="Retrain N members, and compare them bit for bit."
)
@click.option(
    "--seed", type=click.IntRange(0), help="Use this seed, to repeat the random choices of an earlier verification."
)
@click.option("--trusted", multiple=True, metavar="TYPE", help="Allow this type in members, as in mypackage.Model.")
@own_network
@device_option
@click.option("--attest", type=click.Path(path_type=Path), help="Write an in-toto statement for signing to this file.")
@click.option("--attestation", type=click.Path(path_type=Path), help="Compare this statement with the files on disk.")
@click.option("--signature", type=click.Path(path_type=Path), help="Check this ssh-keygen signature of --attestation.")
@click.option("--allowed-signers", type=click.Path(path_type=Path), help="Accept signatures by the keys in this file.")
@click.option("--signer", help="Require a signature by this allowed signer, as in me@example.org.")
@json_option
def verify(
    path: Path,
    data: Path | None,
    label_column: str | None,
    group_column: str | None,
    data_dir: Path | None,
    full: bool,
    sample: int,
    retrain: int,
    seed: int | None,
    trusted: tuple[str, ...],
    device: str | None,
    attest: Path | None,
    attestation: Path | None,
    signature: Path | None,
    allowed_signers: Path | None,
    signer: str | None,
    as_json: bool,
) -> None:
    """Verify the run or saved classifier in the directory PATH with independent code.

    Check every digest, recompute buckets and training sets from the data and the key, rank the stored scores again, and
    prove every radius without the code that computed it. Exit with code 0 if nothing is wrong, 3 if a certificate
    is wrong, 4 if files do not match. The output lists what was not checked.

    Example: runoff verify runs/digits-20 --retrain 2
    """
    from runoff import verify as verifier
    from runoff.verify import attestation as statements

    signing = (signature, allowed_signers, signer)
    if any(part is not None for part in signing) and (None in signing or attestation is None):
        raise InputError("a signature needs --attestation, --signature, --allowed-signers and --signer together")
    if not path.is_dir():
        raise InputError(f"{path} must be the directory of a run or of a saved classifier")
    is_classifier = verifier.kind_of(path) in ("runoff classifier", "runoff torch classifier")
    table = data if is_classifier and data is not None and is_table(data) else None
    if table is None and (label_column is not None or group_column is not None):
        option = "--group-column" if label_column is None else "--label-column"
        raise InputError(f"{option} needs the table that a saved classifier was trained on, as --data TRAIN.csv")
    given = {} if not is_classifier else _arrays(data) if table is None else _table(table, label_column, group_column)
    console = Console(stderr=True)
    options: dict[str, Any] = {"full": full, "sample": sample, "retrain": retrain, "seed": seed}
    with console.status("verifying") as status:
        options["progress"] = status.update
        if is_classifier:
            report = _classifier(path, given, trusted, device, options)
        else:
            report = _run(path, data, data_dir, device, options)
        if attestation is not None and not report.failures:
            statements.compare(attestation, report)
            if signature is not None and allowed_signers is not None and signer is not None and not report.failures:
                statements.check_signature(attestation, signature, allowed_signers, signer, report)
    if attest is not None and not report.failures:
        with writing(attest), written_whole(attest) as file:
            json.dump(statements.statement(report), file, indent=1)
    _show(report, as_json)
    if report.exit_code:
        click.get_current_context().exit(report.exit_code)


def _run(path: Path, data: Path | None, data_dir: Path | None, device: str | None, options: dict[str, Any]) -> Report:
    from runoff import datasets
    from runoff import verify as verifier
    from runoff._io.locks import locked

    loaded: list[Any] = []

    def dataset() -> tuple[Any, str]:
        manifest = _manifest(path)
        try:
            loaded.append(datasets.load_recorded(manifest["dataset"], data_dir, data))
        except (RunoffError, OSError) as error:
            if data is not None:
                raise InputError(f"{data} cannot be read as a dataset: {error}") from error
            return None, f"the dataset cannot be read ({error})"
        return loaded[0], ""

    def trainer() -> tuple[Any, str]:
        if not loaded:
            return None, "the dataset is not available"
        try:
            from runoff.runs.retraining import RunTrainer

            return RunTrainer(_manifest(path), loaded[0].x_train.shape[1:], device), ""
        except (RunoffError, OSError) as error:
            return None, f"the networks cannot be scored or trained on this machine ({error})"

    with locked(path, reading=True):
        return verifier.run(path, dataset, trainer=trainer, **options)


def _manifest(path: Path) -> dict[str, Any]:
    """Return the manifest, whose structure the verifier has checked."""
    from runoff.verify import directory

    manifest: dict[str, Any] = directory.parsed(directory.read(path / "manifest.json", directory.MOST_MANIFEST))
    return manifest


def _arrays(data: Path | None) -> dict[str, Any]:
    """Return training data from a .npz file."""
    if data is None:
        return {}
    from runoff.datasets import npz

    try:
        return dict(npz.read(data, ["x", "y"], ["inputs", "groups"]))
    except (DatasetError, OSError) as error:
        raise InputError(str(error)) from error


def _table(data: Path, label_column: str | None, group_column: str | None) -> dict[str, Any]:
    """Return training data from the table that a classifier was trained on."""
    from runoff.saving import tables

    if label_column is None:
        raise InputError(f"{data} is a table, so name its label column, as in --label-column species")
    x, y, groups = tables.samples(data, label_column, group_column)
    return {"x": x, "y": y, "groups": groups}


def _classifier(
    path: Path, data: dict[str, Any], trusted: tuple[str, ...], device: str | None, options: dict[str, Any]
) -> Report:
    from runoff import verify as verifier

    why = (
        "the training data was not given: pass it as --data train.npz, with the arrays x and y, or as --data TRAIN.csv "
        "--label-column NAME"
    )
    X, y, inputs, groups = (data.get(name) for name in ("x", "y", "inputs", "groups"))

    def members() -> tuple[Any, str]:
        try:
            from runoff.runs.retraining import members_of

            return members_of(path, str(verifier.kind_of(path)), trusted, device), ""
        except (RunoffError, OSError) as error:
            return None, f"the members cannot be loaded ({error})"

    options |= {"groups": groups, "inputs": inputs}
    return verifier.classifier(path, X, y, members=members, why_no_data=why, **options)


def _show(report: Report, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.to_dict(), indent=2))
        return
    for failure in report.failures:
        say(f"Error: {failure}.", err=True)
    if not report.failures:
        say(f"{report.subject}: everything that was checked is correct (seed {report.facts['seed']}).")
    for title, lines in (("Checked", report.checked), ("Not checked", report.not_checked)):
        for line in lines:
            say(f"{title}: {line}.")
