"""Install the wheel into an empty environment and run it there.

python -m tests.try_wheel DIST
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CHECK = """
import numpy as np, runoff
scores = np.random.default_rng(0).normal(size=(20, 9, 4))
certificates = runoff.certify(scores, spread=[[i, (i + 2) % 9] for i in range(9)])
print(runoff.__file__, certificates, certificates.explain(0))
assert "try_wheel" in runoff.__file__
"""


def main():
    wheel = next(Path(sys.argv[1]).resolve().glob("*.whl"))
    with tempfile.TemporaryDirectory(prefix="try_wheel") as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        constraints = Path(__file__).parent.parent / "constraints.txt"
        command = [python, "-m", "pip", "install", "--quiet", "--constraint", str(constraints), str(wheel)]
        subprocess.run(command, check=True, cwd=folder)
        subprocess.run([python, "-c", CHECK], check=True, cwd=folder)
        subprocess.run([str(Path(folder, "bin", "runoff")), "demo"], check=True, cwd=folder)
        assert "</html>" in Path(folder, "runoff-demo.html").read_text()
    print(f"{wheel.name} installs and runs in an empty environment")


if __name__ == "__main__":
    main()
