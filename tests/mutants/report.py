"""Survivors that cannot matter, kept as data; and the table of docs/mutants.md."""

import datetime
import json
import tomllib
from pathlib import Path

from tests.mutants.operators import Mutant
from tests.mutants.parts import PARTS, ROOT
from tests.mutants.running import EXPLAINED, KILLED, SURVIVED, TIMEOUT, UNCOVERED, UNREACHED, Results
from tests.tables import commit, duration

EQUIVALENT = ROOT / "tests" / "equivalent_mutants.toml"
PAGE = ROOT / "docs" / "mutants.md"
LAST = ROOT / "build" / "mutants"
ENOUGH = 95.0  # percent


def remember(part: str, results: Results) -> None:
    """Keep the verdicts of a part."""
    LAST.mkdir(parents=True, exist_ok=True)
    kept = [[*mutant.key, verdict, results.by.get(mutant)] for mutant, verdict in results.verdicts.items()]
    (LAST / f"{part}.json").write_text(json.dumps(kept, indent=0))
    (LAST / f"{part}.seconds").write_text(str(results.seconds))


def last(part: str, every: list[Mutant]) -> dict[Mutant, str]:
    """The verdicts of the last run on mutants that still exist."""
    if not (LAST / f"{part}.json").exists():
        return {}
    kept = {tuple(line[:4]): line[4] for line in json.loads((LAST / f"{part}.json").read_text())}
    return {mutant: kept[mutant.key] for mutant in every if mutant.key in kept}


def spent(part: str) -> float:
    """The processor time of the last run."""
    kept = LAST / f"{part}.seconds"
    return float(kept.read_text()) if kept.exists() else 0.0


def equivalents(path: Path = EQUIVALENT) -> dict[tuple[str, str, str, int], str]:
    """Return the reason why each known survivor cannot matter, by mutant."""
    if not path.exists():
        return {}
    known: dict[tuple[str, str, str, int], str] = {}
    for reason in tomllib.loads(path.read_text())["reason"]:
        for change in reason["changes"]:
            for number in reason.get("numbers", [0]):  # among equal changes of the same function
                known[reason["file"], reason["where"], change, int(number)] = reason["why"]
    return known


def split(results: Results) -> tuple[list[Mutant], dict[Mutant, str]]:
    """Split survivors into those without and those with a recorded reason."""
    known = equivalents()
    alive = [m for m, verdict in results.verdicts.items() if verdict in (SURVIVED, UNCOVERED, EXPLAINED)]
    explained = {m: known[m.key] for m in alive if m.key in known}
    return [m for m in alive if m.key not in known], explained


def row(part: str, results: Results) -> str:
    """A part's line of the table."""
    gaps, explained = split(results)
    verdicts = list(results.verdicts.values())
    tried = len(verdicts) - verdicts.count(UNREACHED)
    killed = verdicts.count(KILLED) + verdicts.count(TIMEOUT)
    cells = [
        part,
        f"{tried:,}" if len(verdicts) == results.total else f"{tried:,} sampled of {results.total:,}",
        f"{killed:,}",
        f"{len(explained):,}",
        f"{len(gaps):,}",
        f"{share(results):.1f} %",
        duration(results.seconds),
        f"{datetime.date.today()}, {commit()}",
    ]
    return f"| {' | '.join(cells)} |"


def share(results: Results) -> float:
    """Percent noticed of the mutants that can be noticed."""
    gaps, explained = split(results)
    verdicts = list(results.verdicts.values())
    tried = len(verdicts) - verdicts.count(UNREACHED) - len(explained)
    return 100.0 if not tried else 100 * (tried - len(gaps)) / tried


def write(found: dict[str, Results], path: Path = PAGE) -> None:
    """Put parts' results in their place in the page: the line of the table, and the list of survivors."""
    text = path.read_text()
    for part, results in found.items():
        gaps, explained = split(results)
        lines = [line for line in text.splitlines() if not line.startswith(f"| {part} |")]
        heads = [at for at, line in enumerate(lines) if line.startswith(("| --- |", *(f"| {p} |" for p in PARTS)))]
        order = list(PARTS)
        at = next(
            (n for n in heads[1:] if order.index(lines[n].split("|")[1].strip()) > order.index(part)), heads[-1] + 1
        )
        lines.insert(at, row(part, results))
        text = "\n".join(lines) + "\n"
        listed = _listed(gaps, explained)
        start, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        if start not in text:
            text += f"\n### {part}\n\n{start}\n{end}\n"
        head, rest = text.split(start, 1)
        text = head + start + "\n" + listed + end + rest.split(end, 1)[1]
    path.write_text(text)


def _listed(gaps: list[Mutant], explained: dict[Mutant, str]) -> str:
    lines = [f"- **not noticed**: `{mutant}`" for mutant in gaps]
    by_reason: dict[tuple[str, str, str], list[Mutant]] = {}
    for mutant, why in explained.items():
        by_reason.setdefault((mutant.file, mutant.where, why), []).append(mutant)
    for (file, where, why), same in by_reason.items():
        changes = "; ".join(f"`{mutant.change}`" for mutant in same)
        lines.append(f"- {file}, {where or 'module'}: {changes}. {why}")
    return "\n".join(lines or ["None survived."]) + "\n"
