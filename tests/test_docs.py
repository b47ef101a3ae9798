"""The documentation: blocks of code run as printed, commands have their options, links and names exist."""

import ast
import contextlib
import io
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

import runoff
from runoff import errors
from runoff.cli import main

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = {"python", "bash", "text"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*).*\n(?P<text>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE)
NOT_RUN = re.compile(r"# (Needs|Takes) ")  # said in the first line of a block, or at the end of a command
NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Block:
    """A fenced block of code in a page."""

    page: Path
    line: int
    language: str
    text: str
    follows: str  # the text between the block before and this one

    @property
    def where(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @cached_property
    def is_run(self):
        return not NOT_RUN.match(self.text)

    @property
    def commands(self):
        """The commands of a shell block, as lists of words; and whether each is run."""
        for line in self.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words, self.is_run and not NOT_RUN.search(line)


def blocks(page):
    text, end = page.read_text(), 0
    for match in FENCE.finditer(text):
        indent, line = len(match["indent"]), text[: match.start()].count("\n") + 1
        body = "".join(row[indent:] or "\n" for row in match["text"].splitlines(keepends=True))
        yield Block(page, line, match["language"], body, text[end : match.start()].strip())
        end = match.end()


def name(path):
    return str(path.relative_to(ROOT))


ALL = [block for page in PAGES for block in blocks(page)]
SHELL = [block for block in ALL if block.language == "bash"]
RUNNABLE = sorted({block.page for block in ALL if block.language in ("python", "bash")})


# -- blocks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", RUNNABLE, ids=name)
def test_blocks_run_as_printed(page, tmp_path, monkeypatch):
    """Top to bottom, in one namespace and one empty directory; a `text` block right below is what a block prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace = {"__name__": "__main__"}
    printed = None
    for block in blocks(page):
        if block.language == "python":
            printed = executed(block, namespace) if block.is_run else None
        elif block.language == "bash":
            printed = None
            for words, is_run in block.commands:
                if is_run:
                    run(words, block)
        elif block.language == "text" and not block.follows and printed is not None:
            assert same(printed, block.text), f"{block.where} should be:\n{printed}"


def executed(block, namespace):
    printed = io.StringIO()
    code = compile("\n" * block.line + block.text, str(block.page), "exec")  # errors name the line of the page
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)  # noqa: S102
    return printed.getvalue()


def run(words, block):
    """Run commands of this package; skip other programs."""
    if words[0] == "runoff":
        done = CliRunner().invoke(main, words[1:])
        assert done.exit_code == 0, f"{block.where}: {shlex.join(words)}: {done.output}"
    elif words[:3] == ["python", "-m", "runoff.check"]:
        subprocess.run([sys.executable, *words[1:]], check=True, capture_output=True)


def same(printed, expected):
    """Whether words are equal and numbers close: processors differ in last bits, and so in a prediction or two."""
    numbers = [[float(number) for number in NUMBER.findall(text)] for text in (printed, expected)]
    words = [NUMBER.sub("#", text).split() for text in (printed, expected)]
    return words[0] == words[1] and all(abs(a - b) <= max(0.03, 0.1 * b) for a, b in zip(*numbers, strict=True))


def test_blocks_say_what_they_are():
    for block in ALL:
        assert block.language in LANGUAGES, f"{block.where} needs one of {LANGUAGES} behind its backticks"
        if block.language == "python":
            compile(block.text, block.where, "exec")


def test_no_command_hides_in_an_indented_block():
    for page in PAGES:
        prose = FENCE.sub("", page.read_text())
        hidden = re.findall(r"^ {4,}(?:runoff|make|python|pip|import|from) .*", prose, re.MULTILINE)
        assert not hidden, f"{name(page)} has {hidden}: use a fenced block"


def test_the_gallery_shows_the_examples_as_they_are():
    from scripts import gallery

    page = gallery.PAGE.read_text()
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(gallery.EXAMPLES)
    for example, picture in gallery.EXAMPLES.items():
        title, introduction, code = gallery.parts(example)
        for part in (title, introduction, code, picture):
            assert part in page, f"docs/gallery.md is out of date: run python scripts/gallery.py ({example})"
        assert (gallery.PICTURES / f"{example}.svg").exists()


def test_the_notebooks_run_and_show_their_files_as_they_are():
    import json

    from scripts import notebooks

    files = sorted(notebooks.FOLDER.glob("*.py"))
    assert [path.stem for path in files] == ["practitioner", "researcher", "security"]
    for path in files:
        stored = json.loads(path.with_suffix(".ipynb").read_text())["cells"]
        now = notebooks.notebook(path.read_text())["cells"]
        assert [(c["cell_type"], c["source"]) for c in stored] == [(c["cell_type"], c["source"]) for c in now], path
        for a, b in zip(stored, now, strict=True):
            kinds = [[output["output_type"] for output in cell.get("outputs", [])] for cell in (a, b)]
            assert kinds[0] == kinds[1], path


# -- commands ----------------------------------------------------------------------------------------------------------


def parse(words):
    """Parse a `runoff` command with its real options; click raises an error if an option does not exist."""
    command, context, arguments = main, None, words[1:]
    while True:
        context = command.make_context(command.name, list(arguments), parent=context)
        if not hasattr(command, "resolve_command"):
            return
        _, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])


def commands():
    for block in SHELL:
        yield from ((block.where, words) for words, _ in block.commands)


@pytest.mark.parametrize(("where", "words"), [pytest.param(*c, id=f"{c[0]} {shlex.join(c[1])}") for c in commands()])
def test_commands_have_these_options(where, words):
    if words[0] == "runoff" and "--help" not in words:
        parse(words)
    elif words[0] == "make":
        targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        assert {word for word in words[1:] if "=" not in word} <= targets, where
    elif words[:2] == ["python", "-m"]:
        assert find_spec(words[2]) is not None, where
    elif words[:2] == ["pip", "install"]:
        wanted = {extra for word in words for extra in re.findall(r"\[(.*)\]", word)}
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert {extra for group in wanted for extra in group.split(",")} <= set(extras), where


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=name)
def test_options_in_sentences_exist(page):
    """As in `--option` or `runoff command --option`, where arguments are left out."""
    sources = [*ROOT.glob("benchmarks/*.py"), *ROOT.glob("tests/torture/*.py"), *ROOT.glob("tests/mutants/*.py")]
    elsewhere = {option for s in sources for option in re.findall(r'"(--[a-z-]+)"', s.read_text())}
    commands = {command: main.get_command(None, command) for command in main.list_commands(None)}
    anywhere = set().union(*map(options, commands.values()), elsewhere)
    for code in re.findall(r"`([^`]+)`", FENCE.sub("", page.read_text())):
        used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", code))
        command = re.match(r"runoff ([a-z]+)\b", code)
        if command:
            assert command[1] in commands, f"{name(page)}: {code}"
            assert used <= options(commands[command[1]]), f"{name(page)}: {code}"
        elif not code.startswith(("pip", "ssh-keygen")):
            assert used <= anywhere, f"{name(page)}: {code}"


def options(command):
    """The options of a command and of its commands."""
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    return known.union(*(options(sub) for sub in getattr(command, "commands", {}).values()))


# -- links -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    """Inside the repository; those of the site are checked by `make docs`."""
    prose = FENCE.sub("", page.read_text())
    targets = re.findall(r"\]\(([^)\s]+)\)", prose) + re.findall(r'(?:src|href)="([^"]+)"', prose)
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        assert path.exists(), f"{name(page)}: {target}"
        if anchor:
            assert anchor in anchors(path), f"{name(page)}: {target}"


def anchors(page):
    """The anchors of a page's headings, as hosts of repositories make them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_readme_leads_to_every_page():
    readme = (ROOT / "README.md").read_text()
    hidden = {"mutants.md"}  # reached from trust.md
    missing = [page.name for page in (ROOT / "docs").glob("*.md") if f"docs/{page.name}" not in readme]
    assert set(missing) <= hidden


# -- names -------------------------------------------------------------------------------------------------------------


def test_tests_and_files_that_pages_name_exist():
    sources = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/*.py")]
    tests = {
        node.name for s in sources for node in ast.walk(ast.parse(s.read_text())) if isinstance(node, ast.FunctionDef)
    }
    for page in PAGES:
        text = page.read_text()
        for named in re.findall(r"`((?:src|tests|benchmarks|scripts|examples)/[\w./-]+)`", text):
            assert (ROOT / named).exists(), f"{name(page)}: {named}"
        for named in re.findall(r"`(test_\w+)\.py", text):
            assert (ROOT / "tests" / f"{named}.py").exists(), f"{name(page)}: {named}.py"
        for named in re.findall(r"`(?:test_\w+\.py::)?(test_\w+_\w+)`", text):
            assert named in tests, f"{name(page)}: {named}"


def test_the_map_names_every_module():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    listed = text[text.index("## Map of the code") : text.index("## Three walks")]
    named = set(re.findall(r"`([\w/]+\.py)`", listed))
    package = ROOT / "src" / "runoff"
    modules = {str(path.relative_to(package)) for path in package.rglob("*.py")}
    expected = {module for module in modules if not module.endswith("/__init__.py")}
    assert named == expected


def test_the_reference_names_everything_public():
    from runoff import datasets, executors, report, torch, verify

    listed = "\n".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    for module in (runoff, torch, executors, datasets, report, verify):
        for public in module.__all__:
            if public in ("__version__", *dir(errors)) or public.isupper():  # constants are mentioned in the text
                continue
            assert f"::: {module.__name__}.{public}\n" in listed, f"{module.__name__}.{public}"
