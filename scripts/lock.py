"""Write requirements.lock: the development environment with the SHA-256 of every file that pip takes.

    python scripts/lock.py

It resolves the `dev` extra with constraints.txt, for the Python and the platform that run it, and installs nothing.
`make locked` builds an environment from the lock in which pip refuses any file with another hash.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements.lock"


def resolved() -> dict:
    """Return pip's report on what it would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([*command, "--report", str(report), *constraints, f"{ROOT}[dev]"], check=True)
        return json.loads(report.read_text())


def main() -> None:
    """Write the lock."""
    report = resolved()
    where = report["environment"]
    lines = [
        "# Made by `make lock`. Every file that the development environment is made of, by SHA-256.",
        f"# {where['sys_platform']} {where['platform_machine']}, Python {where['python_version']}, PyTorch for CPUs.",
    ]
    for package in sorted(report["install"], key=lambda package: package["metadata"]["name"].lower()):
        name, version = package["metadata"]["name"], package["metadata"]["version"]
        if name == "runoff":
            continue
        hashes = package["download_info"]["archive_info"]["hashes"]
        lines.append(f"{name}=={version} --hash=sha256:{hashes['sha256']}")
    LOCK.write_text("\n".join(lines) + "\n")
    print(f"{LOCK.name}: {len(lines) - 2} packages")


if __name__ == "__main__":
    main()
