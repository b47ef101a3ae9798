"""The manifest and the script of docs/scaling.md."""

import re
import shlex
import subprocess
from pathlib import Path

import click
import yaml

from runoff.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"
MANIFEST, SCRIPT = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


def options_of(line):
    """Parse a command line of runoff, as the program does, and return its options."""
    _, command, *arguments = shlex.split(line)
    return main.get_command(click.Context(main), command).make_context(command, arguments).params


def test_the_manifest_is_one_that_kuberay_accepts():
    job = yaml.safe_load(MANIFEST)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    options = options_of(job["spec"]["entrypoint"])
    assert (options["gpus_per_task"], options["storage"]) == (1, "s3://bucket/mnist-fa")
    cluster = job["spec"]["rayClusterSpec"]
    [workers] = cluster["workerGroupSpecs"]
    for group in (cluster["headGroupSpec"], workers):
        [container] = group["template"]["spec"]["containers"]
        assert {"name", "image", "resources", "envFrom"} <= container.keys()
        mounted = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", ())}
        assert mounted.keys() == {volume["name"] for volume in group["template"]["spec"].get("volumes", ())}
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]


def test_the_script_for_slurm_is_sound(tmp_path):
    file = tmp_path / "job.sh"
    file.write_text(SCRIPT)
    subprocess.run(["bash", "-n", file], check=True)  # noqa: S607
    [line] = re.findall("^runoff train .*", SCRIPT.replace("\\\n", " "), re.MULTILINE)
    assert options_of(line)["workers"] == 64
    needed = set(re.findall(r"\$\(?\(?(\w+)", SCRIPT)) - {"hostname"}
    given = set(re.findall(r"\b(\w+)=", SCRIPT))
    assert {name for name in needed - given if not name.startswith("SLURM_")} == {"SCRATCH"}
