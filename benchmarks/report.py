"""Measure how large a report is at scale, and how soon it is usable in Chromium: a table with targets and verdicts.

    python -m benchmarks.report [--repeat 7] [--slowdown 1] [--only SIZE] [--keep FOLDER]

A page is usable when it has loaded, its single inputs have been unpacked and drawn, and the browser has painted it.
On a busy machine that takes longer; "computing" is the processor time of the page's main thread until then.
`--slowdown 4` makes Chromium's processor four times slower, as its developer tools do to imitate a slow laptop.
"""

import argparse
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import sync_playwright

from benchmarks.table import Table
from runoff import rank, report

SECONDS = 2.0  # until a page must be usable
BYTES = 3_000_000  # of a page, at most
SIZES = {
    "12,630 inputs, 100 members, 43 classes": (12_630, 100, 43, "classes"),
    "10,000 inputs, 1,000 members, 10 classes": (10_000, 1_000, 10, "members"),
    "12,630 inputs, 43 classes, two runs": (12_630, 100, 43, "runs"),
}
# Resolves after the page has been painted.
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"


def source(name, n_inputs, n_members, n_classes, seed=0):
    """Return an ensemble with hard and easy inputs, and pictures of noise, which are the worst to compress."""
    draws = np.random.default_rng(seed)
    labels = np.random.default_rng(0).integers(0, n_classes, n_inputs)
    ballots = np.empty((n_inputs, n_members, n_classes), np.uint8)
    for start in range(0, n_inputs, 512):
        truth = labels[start : start + 512]
        scores = draws.standard_normal((len(truth), n_members, n_classes), dtype=np.float32)
        scores[np.arange(len(truth)), :, truth] += draws.uniform(0, 4, (len(truth), 1)).astype(np.float32)
        ballots[start : start + 512] = rank(scores)
    return report.Source(
        name=name,
        ballots=ballots,
        labels=labels,
        spread=np.arange(n_members)[:, None],
        classes=tuple(f"class number {c}" for c in range(n_classes)),
        n_partitions=n_members,
        n_train=50_000,
        pictures=np.random.default_rng(1).integers(0, 256, (n_inputs, 32, 32, 3), dtype=np.uint8),
        member_sizes=draws.integers(300, 700, n_members),
        member_seconds=tuple(draws.uniform(3, 9, n_members).round(3).tolist()),
        undefended=np.where(draws.random(n_inputs) < 0.97, labels, 0),
    )


def write(path, size):
    *shape, kind = size
    runs = [source(f"run {r}", *shape, seed=r) for r in range(2 if kind == "runs" else 1)]
    start = time.perf_counter()
    report.write(path, report.collect(runs))
    return time.perf_counter() - start


@contextmanager
def chromium():
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        sys.exit("this benchmark needs Chromium: install it with apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser, path, slowdown):
    """Return the seconds until the page is usable, those its main thread computes, and those to show another input."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    tools = context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})
    if slowdown > 1:
        tools.send("Emulation.setCPUThrottlingRate", {"rate": slowdown})
    page.goto(path.as_uri())
    page.wait_for_selector("#x-grid .cell", state="attached", timeout=60_000)
    usable = page.evaluate(PAINTED) / 1000
    metrics = {metric["name"]: metric["value"] for metric in tools.send("Performance.getMetrics")["metrics"]}
    before = page.evaluate("performance.now()")
    page.evaluate("document.querySelector('#x-list li:last-child button').click()")
    another = (page.evaluate(PAINTED) - before) / 1000
    context.close()
    return usable, metrics["TaskDuration"], another


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=7, help="open each page this often; the fastest counts")
    parser.add_argument("--slowdown", type=float, default=1, help="make Chromium's processor this much slower")
    parser.add_argument("--only", choices=[size[3] for size in SIZES.values()], help="measure one page")
    parser.add_argument("--keep", type=Path, help="keep the pages in this folder; those that exist are only opened")
    given = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as temporary, chromium() as browser:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name, size in SIZES.items():
            if given.only not in (None, size[3]):
                continue
            path = folder / f"{name.replace(', ', '-').replace(' ', '-')}.html"
            if not path.exists():
                table.add(f"{name}: written in", write(path, size), "s")
            table.add(f"{name}: size", path.stat().st_size / 1e6, "MB", at_most=BYTES / 1e6)
            times = [opened(browser, path, given.slowdown) for _ in range(given.repeat)]
            usable, busy, another = zip(*times, strict=True)
            table.add(f"{name}: usable after", min(usable), "s", at_most=SECONDS)
            table.add(f"{name}: of these, computing", min(busy), "s")
            table.add(f"{name}: another input after", min(another), "s", at_most=0.2)
    table.show()


if __name__ == "__main__":
    main()
