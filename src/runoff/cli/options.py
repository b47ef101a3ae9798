"""Options shared by several commands."""

from __future__ import annotations

import logging
import re
import shlex
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from runoff import executors
from runoff.certificates import BOUNDS
from runoff.cli.output import say
from runoff.errors import InputError
from runoff.executors import Executor

log = logging.getLogger("runoff")


def numbers(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[int] | None:
    """Parse numbers of edits, as in 5,10,15."""
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise click.BadParameter(f"expected non-negative numbers of edits, as in 5,10,15; got {value[:60]!r}.")
    return [int(part) for part in parts]


as_json = click.option("--json", "as_json", is_flag=True, help="Print a machine-readable result on standard output.")
data_dir = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Look for datasets in this folder. Default: $RUNOFF_DATA, else the user's cache directory.",
)
bound = click.option("--bound", type=click.Choice(BOUNDS), default="tight", show_default=True, help="Use this bound.")
device = click.option("--device", help="Use cpu, cuda or cuda:N. Default: a GPU if there is one.")


def _register(_ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        from runoff.torch import custom

        custom.register(value)


own_network = click.option(
    "--network",
    metavar="FILE.py:FUNCTION",
    callback=_register,
    expose_value=False,
    help="Load the network of the run from this file, as in net.py:make_net, if it was trained with your own.",
)


UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def _bytes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    """Parse a size, as in 8GiB."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?([A-Za-z]*)", value.strip(), re.ASCII)
    if match is None or match[2].upper() not in UNITS or not (size := int(float(match[1]) * UNITS[match[2].upper()])):
        raise click.BadParameter(f"expected a size, as in 8GiB or 500MB; got {value[:60]!r}.")
    return size


def _resources(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, float] | None:
    """Parse amounts of custom resources, as in h200=1,fast=0.5; an amount that is left out is small."""
    if value is None:
        return None
    pairs = [part.partition("=") for part in value.split(",")]
    try:
        return {name.strip(): float(amount) if sign else 0.001 for name, sign, amount in pairs}
    except ValueError:
        raise click.BadParameter(f"expected names and amounts, as in h200=1,fast=0.5; got {value[:60]!r}.") from None


def _names(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(name.strip() for name in value.split(","))


cluster_options = (
    click.option(
        "--wait", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
        help="Wait N seconds for a node with the resources of a task, such as one that is being started.  [ray: 120]",
    ),
    click.option(
        "--mixed", metavar="NAME,NAME,...", callback=_names,
        help="Use several kinds of machine: nodes of each kind have the resource of that name. Changes results.",
    ),
    click.option("--members-per-task", type=click.IntRange(1), help="Train N members per task. Default: by time."),
    click.option(
        "--workers", type=click.IntRange(1),
        help="Expect a cluster that grows by itself to run N tasks at a time. Default: those that it can run now.",
    ),
    click.option(
        "--resources", metavar="NAME[=N],...", callback=_resources,
        help="Run tasks only on nodes with these custom resources, and take N of each per task.",
    ),
    click.option("--memory-per-task", metavar="SIZE", callback=_bytes, help="Take this memory per task, as in 8GiB."),
    click.option("--gpus-per-task", type=click.FloatRange(0, 1), help="Reserve a share of a GPU per task.  [ray: 0]"),
    click.option("--cpus-per-task", type=click.IntRange(1), help="Reserve N CPUs per task.  [ray: 1]"),
    click.option(
        "--storage", metavar="FOLDER|URL",
        help="Let workers write results to a folder that all nodes share, or to an address such as s3://bucket/folder. "
        "Default: a folder of the run.",
    ),
    click.option("--address", help="Use the Ray cluster at this address. Default: $RAY_ADDRESS, else this machine."),
    click.option(
        "--executor", type=click.Choice(executors.NAMES), default="local", show_default=True,
        help="Train in this process, in processes of joblib, or on a Ray cluster. Changes the time only.",
    ),
)  # fmt: skip


def _executor(name: str, given: dict[str, Any]) -> Executor:
    """Return the executor that the options describe."""
    fields_of = {
        "address": "address", "storage": "storage", "cpus_per_task": "cpus", "gpus_per_task": "gpus",
        "memory_per_task": "memory", "resources": "resources", "workers": "workers",
        "members_per_task": "members_per_task", "mixed": "mixed", "wait": "wait",
    }  # fmt: skip
    chosen = {setting: value for option, setting in fields_of.items() if (value := given.pop(option)) is not None}
    if name == "ray":
        return executors.Ray(**chosen)
    if chosen:
        option = next(option for option, setting in fields_of.items() if setting in chosen)
        raise click.UsageError(f"--{option.replace('_', '-')} needs --executor ray.")
    return executors.get(name, -1)


@dataclass(frozen=True)
class TableInputs:
    """The inputs of a saved classifier: a table, and its columns that are not features."""

    path: Path | None
    label_column: str | None
    group_column: str | None

    def refuse(self, reason: str) -> None:
        """Raise an error if one of the options is given where there is no saved classifier."""
        options = {"--inputs": self.path, "--label-column": self.label_column, "--group-column": self.group_column}
        if option := next((name for name, value in options.items() if value is not None), None):
            raise InputError(f"{option} is for saved classifiers, and {reason}: leave it out")

    def columns(self) -> str:
        """Return the options that name the columns, as text for a command."""
        names = {"--label-column": self.label_column, "--group-column": self.group_column}
        return " ".join(f"{option} {shlex.quote(name)}" for option, name in names.items() if name is not None)


def table_inputs(command: Any) -> Any:
    """Add the options for the inputs of a saved classifier, and pass them to the command as `inputs`."""

    @wraps(command)
    def with_inputs(inputs: Path | None, label_column: str | None, group_column: str | None, **given: Any) -> Any:
        return command(**given, inputs=TableInputs(inputs, label_column, group_column))

    for option in (
        click.option("--group-column", metavar="NAME", help="Leave out this column of --inputs, which names sources."),
        click.option("--label-column", metavar="NAME", help="Read the true classes from this column of --inputs."),
        click.option(
            "--inputs", type=click.Path(path_type=Path), help="Apply saved classifiers to this .csv or .parquet table."
        ),
    ):
        with_inputs = option(with_inputs)
    return with_inputs


@dataclass(frozen=True)
class TrainingOptions:
    """Options shared by all commands that train."""

    data_dir: Path | None
    device: str | None
    in_flight: int | None
    retrain: bool
    dry_run: bool
    as_json: bool
    executor: Executor


def training_options(command: Any) -> Any:
    """Add the options shared by all commands that train, and pass them to the command as `options`."""

    @wraps(command)
    def with_options(**given: Any) -> Any:
        given["executor"] = _executor(given.pop("executor"), given)
        shared = {field.name: given.pop(field.name) for field in fields(TrainingOptions)}
        return command(**given, options=TrainingOptions(**shared))

    for option in (
        as_json,
        click.option("--dry-run", is_flag=True, help="Print what would be trained, and roughly how long it takes."),
        click.option(
            "--retrain",
            is_flag=True,
            help="Retrain networks of another device or version, whose results would differ on this machine.",
        ),
        *cluster_options,
        click.option("--in-flight", type=click.IntRange(1), help="Train N networks at a time. Changes the time only."),
        device,
        data_dir,
    ):
        with_options = option(with_options)
    return with_options


class _Echo(logging.Handler):
    """A log handler that prints records on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        warning = record.levelno >= logging.WARNING
        say(f"{'Warning: ' if warning else ''}{record.getMessage()}", err=True)


def _level(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value:
        return
    level = {"verbose": logging.INFO, "debug": logging.DEBUG, "quiet": logging.ERROR}[str(param.name)]
    log.setLevel(level)
    ctx.meta["runoff.debug"] = ctx.meta.get("runoff.debug", False) or param.name == "debug"


def start_logging() -> None:
    """Print log records on standard error, by default those of level WARNING and above."""
    log.setLevel(logging.WARNING)
    if not any(isinstance(handler, _Echo) for handler in log.handlers):
        log.addHandler(_Echo())
        log.propagate = False


def common_options(command: Any) -> Any:
    """Add the options of every command, which set the log level."""
    for names, text in (
        (["--debug"], "Print all steps, and the traceback of an error."),
        (["--quiet"], "Print results and errors only."),
        (["-v", "--verbose"], "Print progress messages."),
    ):
        command = click.option(*names, is_flag=True, expose_value=False, callback=_level, help=text)(command)
    return command
