"""`runoff doctor`: information about this machine for a bug report."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

import click

from runoff._io.text import size
from runoff._version import __version__
from runoff.cli.options import as_json as json_option
from runoff.cli.output import say
from runoff.errors import RunoffError
from runoff.saving.trusted import version_of

PACKAGES = (
    "numpy", "numba", "llvmlite", "scikit-learn", "scipy", "pandas", "pyarrow", "matplotlib", "pillow", "skops",
    "torch", "triton", "safetensors", "xgboost", "lightgbm", "catboost", "imbalanced-learn", "skorch",
)  # fmt: skip
VARIABLES = ("RUNOFF_DATA", "NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT", "CUDA_VISIBLE_DEVICES")


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Print versions, devices, caches and data directories for a bug report. Nothing is changed or sent.

    Example: runoff doctor
    """
    findings = _findings()
    if as_json:
        click.echo(json.dumps(findings, indent=2))
        return
    for title, lines in findings.items():
        say(title)
        for name, value in lines.items():
            say(f"  {name}: {value}")


def _findings() -> dict[str, dict[str, Any]]:
    import runoff

    versions = {name: version for name in PACKAGES if (version := version_of(name)) is not None}
    sections: dict[str, dict[str, Any]] = {
        "runoff": {"version": __version__, "directory": str(Path(runoff.__file__).parent)},
        "system": {
            "python": sys.version.split()[0],
            "platform": platform.platform(),
            "machine": platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
        "packages": versions,
        "missing": {name: "not installed" for name in PACKAGES if name not in versions},
        "devices": _devices(),
        "places": _places(),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    return {title: lines for title, lines in sections.items() if lines}


def _devices() -> dict[str, str]:
    """Return the devices that networks can be trained on."""
    try:
        import torch
    except ImportError:
        return {"cpu": "scikit-learn models only; networks need: pip install 'runoff[torch]'"}
    devices = {"cpu": f"{torch.get_num_threads()} threads"}
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        devices[f"cuda:{i}"] = f"{about.name}, {size(about.total_memory)}, CUDA {torch.version.cuda}"
    return devices


def _places() -> dict[str, str]:
    """Return the directories of datasets and compiled code."""
    from runoff import datasets
    from runoff._kernels.compiling import cache_directory
    from runoff.datasets.places import data_directory

    try:
        data = data_directory(None)
        here = [name for name in datasets.NAMES if datasets.located(name, None) is not None]
        described = f"{data}{'' if data.is_dir() else ', which does not exist'}; found: {', '.join(here) or 'none'}"
    except RunoffError as error:
        described = str(error)
    cache = cache_directory()
    compiled = "none, so every process compiles again" if cache is None else str(cache)
    return {"data": described, "compiled code": compiled}
