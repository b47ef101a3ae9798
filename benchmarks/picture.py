"""Make the pictures of the README: the output of `runoff demo` as docs/demo.svg, and its report as PNG files."""

import io
import re
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console

from runoff.cli import demo

DOCS = Path(__file__).parent.parent / "docs"


def main():
    console = Console(record=True, width=88, file=io.StringIO())
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        demo.certify_digits(Path("runoff-demo.html"), console)
        photograph(Path(folder, "runoff-demo.html"))
    svg = console.export_svg(title="runoff demo")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no fonts from the network
    (DOCS / "demo.svg").write_text(svg)
    print(DOCS / "demo.svg")


def photograph(report):
    """Take screenshots of the top of the report and of the explorer after an attack."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1160, "height": 1210})
        page.goto(report.as_uri())
        page.evaluate("document.activeElement.blur()")
        save(page.screenshot(), "report.png")
        steps = int(page.locator("#x-step").get_attribute("max"))
        for _ in range(steps):
            page.locator("#x-next").click()
        page.emulate_media(color_scheme="dark")
        page.evaluate("window.scrollTo(0, document.querySelector('.explorer').offsetTop - 230)")
        page.wait_for_timeout(1000)  # the page scrolls smoothly
        save(page.screenshot(), "report-attack.png")
        browser.close()


def save(data, name):
    image = Image.open(io.BytesIO(data)).convert("RGB").quantize(96, dither=Image.Dither.NONE)  # a third of the bytes
    image.save(DOCS / name, optimize=True)
    print(DOCS / name)


if __name__ == "__main__":
    main()
