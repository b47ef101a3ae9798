"""First weights for `benchmarks.recipes`: pretrained with changed settings, and how long it took.

python -m benchmarks.recipes pretrain - --out DIRECTORY steps=1500,textures=noise+fractals,strokes=0

writes DIRECTORY/NAME.safetensors for each variant, where NAME is --name or the variant without signs, and appends the
settings, the seconds and the loss to `rows.jsonl`. `weights=procedural` or `weights=FILE` continues from these weights.
In a queue of `benchmarks.recipes`, later commands can compare members that start from the new ones: `members DATA
strong:weights=DIRECTORY/NAME.safetensors`.
"""

import ast
import re
import time
from dataclasses import asdict

from runoff.torch.pretraining import Pretrainer, Pretraining


def settings_of(text):
    """Return the settings of a variant and its first weights: field=value,... with `+` between kinds of textures."""
    changed = dict(change.split("=", 1) for change in text.split(",") if change)
    weights = changed.pop("weights", None)
    values = {key: ast.literal_eval(value) for key, value in changed.items() if key != "textures"}
    if "textures" in changed:
        values["textures"] = tuple(changed["textures"].split("+"))
    return Pretraining(**values), weights


def name_of(text):
    """Return the variant as a file name."""
    return re.sub(r"[^0-9A-Za-z.]+", "-", text)


def pretrain(given, record):
    """Pretrain each variant, write its weights, and hand what it took to `record`."""
    for text in given.variants:
        settings, weights = settings_of(text)
        pretrainer = Pretrainer("nin", settings, given.device, weights)
        started, recent = time.perf_counter(), []
        for step, loss in enumerate(pretrainer.run()):
            recent = [*recent[-99:], loss]
            if step in (0, 20) or (step + 1) % 500 == 0:  # reading the loss waits for the device
                took = time.perf_counter() - started
                print(f"step {step + 1}, {took:.1f} s, loss {float(loss):.3f}", flush=True)
        loss = sum(map(float, recent)) / len(recent)
        seconds = time.perf_counter() - started
        path = given.out / f"{given.name or name_of(text)}.safetensors"
        pretrainer.write(path, f"python -m benchmarks.recipes pretrain - --out DIRECTORY {text}")
        print(f"{text}: {seconds:.1f} s, loss {loss:.3f}: {path}", flush=True)
        row = {"what": "pretrain", "variant": text, "file": path.name, "seconds": seconds, "loss": loss}
        record(given, {**row, "settings": asdict(settings)})
