"""The picture in the README: what `runoff demo` prints, as docs/demo.svg."""

import io
import re
from pathlib import Path

from rich.console import Console

from runoff import _demo


def main():
    console = Console(record=True, width=88, file=io.StringIO())
    _demo.main(console)
    svg = console.export_svg(title="runoff demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no fonts from the network
    path = Path(__file__).parent.parent / "docs" / "demo.svg"
    path.write_text(svg)
    print(path)


if __name__ == "__main__":
    main()
