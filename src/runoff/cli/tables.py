"""Training and certifying scikit-learn models on tables, for `runoff train` and `runoff certify`."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from runoff._io.text import count, duration, one_line
from runoff.certificates import LABELS_NOT_FIXED
from runoff.cli.errors import writing
from runoff.cli.options import TableInputs
from runoff.cli.output import say
from runoff.errors import InputError
from runoff.executors import Executor
from runoff.saving import tables
from runoff.saving.long_form import LongScores

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runoff import RunoffClassifier

MOST_SCORED = 10_000  # samples on which the undefended model is scored
# Options of `runoff train` that apply to tables, or that have no effect there.
OPTIONS = (
    "dataset", "n_partitions", "spread", "n_seeds", "election", "classes", "label_column", "group_column", "threat",
    "random_state", "out", "data_dir", "dry_run", "as_json", "executor", "address", "cpus_per_task", "gpus_per_task",
    "memory_per_task", "resources", "workers", "members_per_task", "mixed", "wait", "verbose", "quiet", "debug",
)  # fmt: skip


def train_table(
    path: Path,
    out: Path,
    label_column: str | None,
    group_column: str | None,
    classes: Any,
    as_json: bool,
    executor: Executor,
    dry_run: bool,
    **settings: Any,
) -> None:
    """Train scikit-learn members on a table with the executor, and save them as a directory.

    With `dry_run`, only describe how the samples are divided among the members.
    """
    from sklearn.dummy import DummyClassifier

    from runoff import RunoffClassifier
    from runoff.planning import baseline
    from runoff.saving import classifiers

    context, given = click.get_current_context(), click.core.ParameterSource.COMMANDLINE
    for option in context.command.params:
        if option.name not in OPTIONS and context.get_parameter_source(str(option.name)) == given:
            raise InputError(
                f"{option.opts[0]} is for networks, and {path.name} is a table for scikit-learn members: leave it out"
            )
    if label_column is None or classes is None:
        raise InputError(
            f"{path.name} is a table, so name its label column and all possible labels, as in --label-column species "
            "--classes setosa,versicolor,virginica"
        )
    if out.exists():
        raise InputError(f"{out} already exists: give another directory")
    classifiers.require_skops()
    started = time.perf_counter()
    X, y, groups = tables.samples(path, label_column, group_column)
    names = [str(c) for c in range(classes)] if isinstance(classes, int) else classes
    if dry_run:
        planned = RunoffClassifier(DummyClassifier(), classes=names, **settings).fit(X, y, groups)  # learns nothing
        facts = {"members": len(planned.members_), "samples": len(X)} | _division(planned)
        text = f"{count(len(X), 'sample')} of {path.name}: {planned.balance()}; nothing was trained"
        click.echo(json.dumps(facts) if as_json else text)
        return
    classifier = RunoffClassifier(classes=names, verbose=not as_json, executor=executor, **settings)
    classifier.fit(X, y, groups)
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        classifier.save(out)
    seconds = time.perf_counter() - started
    if as_json:
        facts = {
            "model": str(out),
            "members": len(classifier.members_),
            "samples": len(X),
            "seconds": round(seconds, 1),
        }
        accuracy, _ = _undefended(classifier)
        facts |= _division(classifier)
        click.echo(json.dumps(facts | {"undefended_accuracy": None if np.isnan(accuracy) else accuracy}))
        return
    say(f"{count(len(X), 'sample')} of {path.name}: {classifier.balance()}; trained in {duration(seconds)}")
    directory = shlex.quote(str(out))
    columns = TableInputs(path, label_column, group_column).columns()
    accuracy, error = _undefended(classifier)
    if not np.isnan(accuracy):
        say(baseline.sentence(accuracy, error))
    say(f"Next: runoff certify {directory} --inputs NEW.csv {columns}")
    say(f"Verify with: runoff verify {directory} --data {shlex.quote(str(path))} {columns}")


def _division(classifier: RunoffClassifier) -> dict[str, Any]:
    """Return how the samples are divided among the members, for JSON."""
    return {"balance": classifier.balance(), "idle_members": classifier.n_idle()}


def _undefended(classifier: RunoffClassifier) -> tuple[float, float]:
    """Return the accuracy of one undefended model and its standard error, NaN if there is none."""
    from runoff.planning import baseline

    settings = classifier.get_params(deep=False) | {"executor": None}
    return baseline.undefended(classifier, type(classifier), settings, False, MOST_SCORED)


def is_model(path: Path) -> bool:
    """Return whether a directory is a saved scikit-learn ensemble."""
    manifest = path / "manifest.json"
    if not manifest.is_file() or manifest.stat().st_size > 2**26:
        return False
    try:
        return bool(json.loads(manifest.read_bytes())["format"] == "runoff classifier")
    except (ValueError, RecursionError, KeyError, TypeError):
        return False


@dataclass(frozen=True, eq=False)
class Opened:
    """A saved ensemble, with the inputs of a table and their labels, if known, in the type of its classes."""

    classifier: RunoffClassifier
    X: Any
    labels: NDArray[Any] | None


def open_model(model: Path, inputs: TableInputs) -> Opened:
    """Read a saved ensemble, and the inputs in a table."""
    from runoff import RunoffClassifier

    if inputs.path is None:
        raise InputError(f"{model} is a saved classifier: pass the inputs to certify, as --inputs NEW.csv")
    if not tables.is_table(inputs.path):
        raise InputError(f"--inputs must be a .csv or .parquet table, got {inputs.path}")
    X, labels, _ = tables.samples(inputs.path, inputs.label_column, inputs.group_column)
    classifier = RunoffClassifier.load(model)
    _check_columns(inputs.path, list(X.columns), list(getattr(classifier, "feature_names_in_", X.columns)))
    return Opened(classifier, X, None if labels is None else _as_classes(labels, classifier.classes_))


def _check_columns(inputs: Path, given: list[str], trained: list[str]) -> None:
    """Raise InputError unless a table has the columns that a classifier was trained on, in their order."""
    if given == trained:
        return
    if more := [name for name in given if name not in trained]:
        raise InputError(
            f"{inputs} must have the columns of the training table, got {one_line(', '.join(more), 100)} in addition: "
            "name the labels with --label-column and the sources with --group-column, and remove other columns"
        )
    if less := [name for name in trained if name not in given]:
        raise InputError(
            f"{inputs} must have the columns of the training table: {one_line(', '.join(less), 100)} is missing"
        )
    raise InputError(
        f"{inputs} must have its columns in the order of the training table: {one_line(', '.join(trained))}"
    )


def _as_classes(labels: list[str], classes: NDArray[Any]) -> NDArray[Any]:
    """Return labels of a table, which are strings, with the type of the classes if they are classes."""
    by_text = {str(label): label for label in classes.tolist()}
    return np.array([by_text[label] for label in labels]) if {*labels} <= {*by_text} else np.array(labels)


def scores_of(opened: Opened) -> LongScores:
    """Return the scores of a saved ensemble for the inputs."""
    classifier = opened.classifier
    scores = classifier.scores(opened.X)
    if not scores.classes_fixed:
        raise InputError(LABELS_NOT_FIXED)
    return LongScores(
        np.asarray(scores.values),
        np.arange(len(opened.X)),
        classifier.classes_,
        opened.labels,
        spread=classifier.partition_.spread,
        unit=classifier.partition_.unit,
        election=classifier.election,
    )


def undefended_predictions(model: Path, X: Any) -> NDArray[Any]:
    """Return the predictions of a saved classifier with a single member, a model trained on all samples."""
    from runoff import RunoffClassifier

    alone = RunoffClassifier.load(model)
    if alone.partition_.n_members != 1:
        raise InputError(
            f"{model} must be a single model to be the undefended one, got {alone.partition_.n_members:,} members: "
            "train it on the same table with --k 1"
        )
    return np.asarray(alone.predict(X))
