"""`runoff pretrain`: initial weights trained on procedural images."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click

from runoff._io.files import sha256_of
from runoff._io.text import count
from runoff.cli.errors import writing
from runoff.cli.options import as_json as json_option
from runoff.cli.options import device as device_option
from runoff.cli.output import say
from runoff.errors import MissingExtraError
from runoff.recipes import NETWORKS


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Write the weights to this file.",
)
@click.option("--steps", type=click.IntRange(1), default=11_000, show_default=True, help="Train for N steps.")
@click.option("--batch", type=click.IntRange(2), default=1024, show_default=True, help="Use N images per step.")
@click.option("--network", type=click.Choice(NETWORKS), default="nin", show_default=True, help="Use this architecture.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Use this random seed.")
@click.option("--weights", metavar="FILE|procedural", help="Continue from these weights instead of random ones.")
@device_option
@click.option("--sheet", type=click.Path(path_type=Path, dir_okay=False), help="Write example images to this PNG file.")
@json_option
def pretrain(
    out: Path,
    steps: int,
    batch: int,
    network: str,
    seed: int,
    weights: str | None,
    device: str | None,
    sheet: Path | None,
    as_json: bool,
) -> None:
    """Train initial weights on procedurally generated images, for `runoff train --weights FILE`.

    No photograph and no training sample is read, so nobody can poison the weights. The same options, device type and
    versions give the same file.

    Example: runoff pretrain --steps 2000 --out first.safetensors
    """
    with writing(out):
        from runoff._io.progress import with_progress
        from runoff.torch.pretraining import Pretrainer, Pretraining
        from runoff.torch.pretraining import sheet as drawn

        settings = Pretraining(steps=steps, batch=batch, seed=seed)
        out.parent.mkdir(parents=True, exist_ok=True)
        if sheet is not None:
            _write_picture(sheet, drawn(settings))
        pretrainer = Pretrainer(network, settings, device, weights)
        losses = list(with_progress(pretrainer.run(), "pretraining", steps))[-min(100, steps) :]
        command = f"runoff pretrain --steps {steps} --batch {batch} --network {shlex.quote(network)} --seed {seed}"
        if weights is not None:
            command += f" --weights {shlex.quote(weights)}"
        pretrainer.write(out, f"{command} --out {shlex.quote(out.name)}")
        loss = sum(float(value) for value in losses) / len(losses)
    digest = sha256_of(out)
    if as_json:
        click.echo(json.dumps({"file": str(out), "sha256": digest, "steps": steps, "loss": round(loss, 4)}))
        return
    say(f"{out}: {count(steps, 'step')}, loss {loss:.3f} over the last {len(losses)}, SHA-256 {digest}")
    say(f"Next: runoff train DATASET --k K --recipe strong --weights {shlex.quote(str(out))} --out RUN")


def _write_picture(path: Path, image: object) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError("--sheet needs Pillow. Install it with: pip install 'runoff[datasets]'") from None
    import numpy as np

    Image.fromarray(np.asarray(image)).save(path, format="PNG")
