"""`runoff train`: an ensemble as a run."""

from __future__ import annotations

from pathlib import Path

import click

from runoff import elections
from runoff.cli.options import training_options
from runoff.cli.runs import load_dataset, tell_plan, tell_result, told, train_work, work_of


def _classes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | list[str] | None:
    """A number of classes, or their names."""
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    return [name.strip() for name in value.split(",")]


@click.command()
@click.argument("dataset")
@click.option("--k", "n_partitions", type=click.IntRange(1), required=True, help="Parts of the data.")
@click.option(
    "--d", "spread", type=click.IntRange(1), default=1, show_default=True, help="Members of each bucket (FA)."
)
@click.option("--n-seeds", type=click.IntRange(1), default=1, show_default=True, help="Networks a member (DPA*).")
@click.option(
    "--election",
    type=click.Choice(elections.NAMES),
    help="Which one `runoff certify` takes for this run, unless it is told otherwise. Default: runoff. Networks are "
    "the same.",
)
@click.option("--network", default="nin", show_default=True, help="nin or small.")
@click.option(
    "--recipe",
    default="paper",
    show_default=True,
    help="paper, strong (for few images per member), quick; paper-no-flip or strong-no-flip where a mirrored image is "
    "another class.",
)
@click.option(
    "--weights",
    metavar="FILE|procedural",
    help="What all networks start from: a safetensors file that no training sample has touched, as `runoff pretrain` "
    "writes it, or procedural (such weights that come with the package). Default: random weights.",
)
@click.option(
    "--classes",
    metavar="N or A,B,...",
    callback=_classes,
    help="Of your own data: how many classes there are, or their names. Decided beforehand, not by the samples.",
)
@click.option("--hash", "hash_", type=click.Choice(["content", "pixel-sum"]), default="content", show_default=True)
@click.option("--seed", "random_state", type=click.IntRange(0), default=0, show_default=True)
@click.option("--no-weights", is_flag=True, help="Keep scores only: enough to certify, not to ask new inputs.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The run's directory; resumed if it is there."
)
@training_options
def train(
    dataset: str,
    n_partitions: int,
    spread: int,
    n_seeds: int,
    election: str | None,
    network: str,
    recipe: str,
    weights: str | None,
    classes: int | list[str] | None,
    hash_: str,
    random_state: int,
    no_weights: bool,
    out: Path,
    data_dir: Path | None,
    device: str | None,
    in_flight: int | None,
    dry_run: bool,
    retrain: bool,
    as_json: bool,
) -> None:
    """Train an ensemble on DATASET (a name, a .npz file or a folder of images) and score its test inputs.

    Interrupted or killed, the same command goes on where it was, to the same result. More --n-seeds add networks to a
    run that is there.

    Example: runoff train cifar10 --k 50 --out runs/cifar10-50
    """
    with told():
        from runoff import recipes
        from runoff._io.locks import locked
        from runoff.errors import RunError
        from runoff.runs import Run, training
        from runoff.torch import starting

        data = load_dataset(dataset, data_dir, classes)
        if not data.classes_fixed:
            raise RunError(
                f"{dataset} must say which classes there are, or one sample with a new label would change every "
                "member: use --classes, or put them into the data"
            )
        chosen, first = recipes.get(recipe), starting.get(weights, network)
        settings = training.settings_for(
            data,
            data.name,
            chosen,
            n_partitions=n_partitions,
            spread=spread,
            network=network,
            hash=hash_,
            random_state=random_state,
            first_weights=None if first is None else first.described(),
        )
        training.check(settings, data, device)
        Run.check_place(out, settings)
        about = {**training.about(data), "weights": not no_weights, "given": absolute(dataset)}
        if dry_run:
            run = Run.open(out) if (out / "manifest.json").exists() else None
            if run is not None:
                run.must_be(settings, about)
            tell_plan(settings, run, data, out, n_seeds, device, in_flight, as_json)
            return
        with locked(out):
            run = Run.create(out, settings, about)
            run.manifest["election"] = election or run.election
            if run.manifest["edits"] and not run.seeds() and n_seeds < run.n_seeds:
                raise run.unfinished()
            work = work_of(run, data, n_seeds, device, in_flight)
            tell_result(run, train_work(run, work, data, n_seeds, retrain), as_json)


def absolute(dataset: str) -> str:
    """A name as it is, a path so that it can be found from elsewhere."""
    from runoff import datasets

    return dataset if dataset in datasets.NAMES else str(Path(dataset).expanduser().resolve())
