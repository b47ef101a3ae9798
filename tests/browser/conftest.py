"""A real browser: Chromium as the system installs it. Its own download is not used."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from playwright.sync_api import sync_playwright

from helpers import SIGNS, a_run
from runoff import cli
from runoff.runs import Run

SCREENS = {
    "desktop": {"viewport": {"width": 1280, "height": 900}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
# Class 0 is hostile; the others are long and many.
CLASSES = ("<script>alert(1)</script>", "</script>", *SIGNS[2:])


@pytest.fixture(scope="session")
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.exit("these tests need Chromium: install it with apt-get install chromium", returncode=1)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def written(*arguments):
    result = CliRunner().invoke(cli.main, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """The demo's report, one with 43 classes, and one with two."""
    folder = tmp_path_factory.mktemp("reports")
    written("demo", "--out", folder / "demo.html")
    a_run(folder / "signs", n=300, k=30, classes=CLASSES, name="signs")
    a_run(folder / "spread", n=300, k=10, d=4, classes=CLASSES, name="signs")
    # Two runs, one of them resumed after a crash: not all times are known.
    run = Run.open(folder / "spread")
    times = {"networks": {f"{m}-0": 0.1 + m / 100 for m in range(35)}, "training": 1.0}
    (folder / "spread" / "timings.json").write_text(json.dumps(times))
    run.record("timings.json")
    labels = np.asarray(run.labels())
    np.save(folder / "predictions.npy", np.where(np.arange(300) % 10, labels, 0))
    undefended = ("--undefended", folder / "predictions.npy")
    written("report", folder / "signs", folder / "spread", *undefended, "--out", folder / "signs.html")
    a_run(folder / "two", n=30, k=9, classes=("ham", "spam"), name="mails")
    written("report", folder / "two", "--out", folder / "two.html")
    return {name: folder / f"{name}.html" for name in ("demo", "signs", "two")}


@pytest.fixture(params=SCREENS)
def screen(request):
    return request.param


@pytest.fixture
def opened(chromium, screen, request):
    """Open a report; afterwards, check that no error occurred and no network request was made."""
    troubles: list[str] = []
    context = chromium.new_context(**SCREENS[screen], accept_downloads=True, color_scheme="light")
    page = context.new_page()
    page.on("console", lambda message: troubles.append(f"console: {message.text}"))
    page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
    page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    own = ("file:", "data:", "blob:")
    page.on("request", lambda asked: asked.url.startswith(own) or troubles.append(f"request: {asked.url}"))

    def open_page(path: Path, address: str = ""):
        page.goto(path.as_uri() + address)
        page.wait_for_selector("#x-detail h3")  # the single inputs are unpacked
        return page

    yield open_page
    shots = request.config.getoption("--screenshots")
    if shots:
        Path(shots).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(shots) / f"{request.node.name}.png"), full_page=True)
    context.close()
    assert troubles == []


def pytest_addoption(parser):
    parser.addoption("--screenshots", help="Folder for a picture of each page as a test left it.")
