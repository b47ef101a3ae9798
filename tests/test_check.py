"""The checker of one file accepts correct claims, rejects wrong ones, and reports malformed files in one sentence."""

import ast
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

import runoff
from helpers import scores
from reference import ballots_of, paper_certificate, true_cost
from runoff import check, cli, spreads

FILE = Path(check.__file__)


@st.composite
def cases(draw, most_members=6, most_classes=4):
    """Draw an election, a few ballots, and a spread or None."""
    k, n_classes = draw(st.integers(1, most_members)), draw(st.integers(2, most_classes))
    rows = draw(st.lists(st.permutations(range(n_classes)), min_size=k, max_size=k))
    spread = None
    if draw(st.booleans()):
        members = st.lists(st.integers(0, k - 1), unique=True, max_size=k).map(sorted)
        spread = draw(st.lists(members, min_size=1, max_size=5))
    return draw(st.sampled_from(check.ELECTIONS)), rows, spread


def verdicts(election, bound, rows, spread, most):
    """Return the checker's verdict on every radius that could be claimed."""
    points = [bytes(row) for row in rows]
    placed = None if spread is None else check.Spread(spread, len(rows))
    winner, other = check.hold(election, points)
    return [check.check_input(election, bound, points, check.Claim(winner, other, r), placed) for r in range(most + 2)]


@settings(max_examples=200, deadline=None)
@given(cases())
def test_only_what_the_exhaustive_adversary_leaves_is_accepted(case):
    election, rows, spread = case
    n_buckets = len(rows) if spread is None else len(spread)
    exact = min(true_cost(election, ballots_of(rows), spread, sensible=True) - 1, n_buckets)
    found = verdicts(election, "tight", rows, spread, n_buckets)
    assert all(verdict.wrong for verdict in found[exact + 1 :])
    assert found[exact].wrong is None
    assert not any(verdict.exact for verdict in found[:exact])
    if spread is None:  # with a spread, a lower radius is true but weaker, and an attack is not required
        assert found[exact].exact
    if election == "maximin":
        assert all(verdict.wrong for verdict in verdicts(election, "paper", rows, spread, n_buckets))
        return
    if spread is None:
        assert all(verdict.wrong for verdict in found[:exact])
    paper = min(paper_certificate(election, ballots_of(rows), spread) - 1, n_buckets)
    found = verdicts(election, "paper", rows, spread, n_buckets)
    assert [r for r, verdict in enumerate(found) if verdict.wrong is None] == [paper]


@settings(max_examples=60, deadline=None)
@given(cases(most_members=40, most_classes=6), st.sampled_from(check.BOUNDS))
def test_what_runoff_certifies_is_proven(case, bound):
    election, rows, spread = case
    bound = "tight" if election == "maximin" else bound
    certificates = runoff.certify(np.array([rows]), election=election, spread=spread, bound=bound)
    claim = check.Claim(
        *(int(column[0]) for column in (certificates.prediction, certificates.runner_up, certificates.radius))
    )
    placed = None if spread is None else check.Spread(spread, len(rows))
    verdict = check.check_input(election, bound, [bytes(row) for row in rows], claim, placed)
    assert verdict.wrong is None
    for wrong in (claim._replace(prediction=claim.runner_up), claim._replace(runner_up=claim.prediction)):
        assert check.check_input(election, bound, [bytes(row) for row in rows], wrong, placed).wrong


@pytest.mark.parametrize(("election", "seed"), [("runoff", 0), ("runoff", 1), ("runoff", 2), ("maximin", 0)])
def test_a_spread_agrees_with_integer_programming(election, seed):
    """The minimum over all attacks by HiGHS, for more buckets than can be tried one by one."""
    draws = np.random.default_rng(seed)
    k, n_classes = 30, 4
    rows = runoff.rank(draws.normal(size=(1, k, n_classes)) + draws.uniform(0, 1.5) * np.eye(n_classes)[1])[0]
    spread = np.sort(spreads.cyclic(k, [0, 7, 11]), axis=1)
    given = check.Input(election, [bytes(row) for row in rows])
    counts = check.Counts(given, check.Spread(spread.tolist(), k))
    reaches = (spread[:, :, None] == np.arange(k)).any(axis=1)

    def fewest(threat):
        powers = np.array([counts.member_powers(need) for need in threat.needs])
        meets = optimize.LinearConstraint(
            np.hstack([np.zeros((len(powers), k)), powers]), [n.gap for n in threat.needs]
        )
        once = optimize.LinearConstraint(np.hstack([-reaches.T.astype(float), np.eye(k)]), ub=0)
        cost = np.repeat([1.0, 0.0], k)
        found = optimize.milp(cost, constraints=[meets, once], bounds=optimize.Bounds(0, 1), integrality=np.ones(2 * k))
        return round(found.fun) if found.success else k + 1

    cost = min(fewest(threat) for threat in check.threats(given, counts, k, False))
    claims = [check.Claim(given.w, given.s, r) for r in (cost - 1, cost)]
    right, above = (check.check_input(election, "tight", given.ballots, c, counts.spread) for c in claims)
    assert right.wrong is None
    assert "below the claimed" in above.wrong


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proofs(tmp_path_factory):
    """Proofs of the same scores, by name of the spread, each as its file."""
    folder = tmp_path_factory.mktemp("proofs")
    np.save(folder / "scores.npy", scores(30, 12, 5)[0])
    np.save(folder / "spread.npy", spreads.cyclic(12, [0, 5]))
    made = {}
    spread, maximin = ("--spread", folder / "spread.npy"), ("--election", "maximin")
    options_of = {"alone": (), "spread": spread, "maximin": maximin, "maximin spread": (*maximin, *spread)}
    for name, options in options_of.items():
        made[name] = folder / f"{name}.json"
        arguments = ["certify", folder / "scores.npy", *options, "--export", made[name], "--json"]
        result = CliRunner().invoke(cli.main, [str(a) for a in arguments])
        assert result.exit_code == 0, result.output
    return made


def checked(path, capsys):
    code = check.main([str(path)])
    return code, capsys.readouterr()


@pytest.mark.parametrize("name", ["alone", "spread", "maximin", "maximin spread"])
def test_an_exported_proof_is_proven(name, proofs, capsys):
    code, told = checked(proofs[name], capsys)
    assert code == 0
    assert "Proven: 30 radii" in told.out
    assert "Not checked" in told.out


def edited(proofs, tmp_path, change, name="alone"):
    proof = json.loads(proofs[name].read_text())
    change(proof)
    (tmp_path / "edited.json").write_text(json.dumps(proof))
    return tmp_path / "edited.json"


def ballots(proof, data, **about):
    packed = base64.b64encode(zlib.compress(data)).decode()
    proof["ballots"] |= {"sha256": hashlib.sha256(data).hexdigest(), "data": packed, **about}


@pytest.mark.parametrize("name", ["alone", "maximin"])
@pytest.mark.parametrize(("column", "step"), [("radius", 1), ("radius", -1), ("prediction", 1), ("runner_up", 1)])
def test_one_edited_number_is_named(column, step, name, proofs, tmp_path, capsys):
    at = next(i for i, r in enumerate(json.loads(proofs[name].read_text())["radius"]) if r)

    def change(proof):
        proof[column][at] = (proof[column][at] + step) % 5

    code, told = checked(edited(proofs, tmp_path, change, name), capsys)
    assert code == 3
    assert f"input {at}: the {column.replace('_', '-')} is" in told.err
    assert "1 of 30 certificates are wrong" in told.err


@pytest.mark.parametrize("name", ["spread", "maximin spread"])
@pytest.mark.parametrize("step", [1, 10, 10**30])
def test_a_radius_that_a_spread_does_not_have_is_named(step, name, proofs, tmp_path, capsys):
    code, told = checked(
        edited(proofs, tmp_path, lambda p: p["radius"].__setitem__(3, step + p["radius"][3]), name), capsys
    )
    assert code == 3
    assert "input 3: " in told.err


def test_other_ballots_and_another_spread_are_caught(proofs, tmp_path, capsys):
    other = runoff.rank(scores(30, 12, 5, seed=1)[0]).tobytes()
    assert checked(edited(proofs, tmp_path, lambda p: ballots(p, other)), capsys)[0] == 3
    wide = [[b, (b + 1) % 12, (b + 2) % 12, (b + 3) % 12] for b in range(12)]
    assert checked(edited(proofs, tmp_path, lambda p: p.update(spread=wide), "spread"), capsys)[0] == 3


def test_what_the_search_cannot_decide_is_not_proven():
    draws = np.random.default_rng(5)
    rows = [bytes(row) for row in runoff.rank(draws.normal(size=(1, 60, 4)) + 0.9 * np.eye(4)[0])[0]]
    placed = check.Spread(np.sort(spreads.cyclic(60, [0, 7, 19, 31, 40, 55]), axis=1).tolist(), 60)
    winner, other = check.hold("runoff", rows)
    found = [
        check.check_input("runoff", "tight", rows, check.Claim(winner, other, r), placed, nodes=1) for r in range(60)
    ]
    unproven = [verdict for verdict in found if verdict.unproven]
    assert unproven
    assert all("could not be proven" in verdict.wrong for verdict in unproven)


MALFORMED = {
    "nothing": (lambda p: p.clear(), "format"),
    "version": (lambda p: p.update(version=2), "version 2"),
    "election": (lambda p: p.update(election="lottery"), "election must be one of plurality, runoff, maximin"),
    "bound": (lambda p: p.update(bound=["tight"]), "bound must be"),
    "a bound that maximin does not have": (
        lambda p: p.update(election="maximin", bound="paper"),
        "bound must be tight for maximin",
    ),
    "members": (lambda p: p.update(n_members=3 * 10**7), "n_members must be"),
    "a boolean": (lambda p: p.update(n_classes=True), "n_classes must be"),
    "a fraction": (lambda p: p["radius"].__setitem__(0, 1.0), "radius must hold non-negative integers"),
    "NaN": (lambda p: p["radius"].__setitem__(0, float("nan")), "got NaN"),
    "negative": (lambda p: p["radius"].__setitem__(7, -1), "for input 7"),
    "too few": (lambda p: p["radius"].pop(), "list of 30"),
    "more inputs": (lambda p: p.update(n_inputs=31), "list of 31"),
    "a spread of nobody": (lambda p: p.update(spread=[]), "spread must be"),
    "a member that is none": (lambda p: p.update(spread=[[12]]), "bucket 0"),
    "a member twice": (lambda p: p.update(spread=[[0], [1, 1]]), "bucket 1"),
    "no ballots": (lambda p: p.pop("ballots"), "ballots must be an object"),
    "no base64": (lambda p: p["ballots"].update(data="é!"), "ballots are damaged"),
    "no zlib": (lambda p: p["ballots"].update(data="AAAA" * 500), "ballots are damaged"),
    "other ballots": (lambda p: p["ballots"].update(sha256="0" * 64), "do not match their SHA-256"),
    "ballots that rank nothing": (lambda p: ballots(p, bytes(30 * 12 * 5)), "does not rank classes"),
    "a bomb": (lambda p: ballots(p, bytes(10**7)), "must be 1,800 bytes"),
    "a huge claim": (lambda p: p.update(n_members=10**6), "but hold too few"),
    "bytes after the end": (
        lambda p: p["ballots"].update(data=base64.b64encode(base64.b64decode(p["ballots"]["data"]) + b"x").decode()),
        "must be 1,800 bytes",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_proof_gets_one_sentence(name, proofs, tmp_path, capsys):
    change, expected = MALFORMED[name]
    code, told = checked(edited(proofs, tmp_path, change), capsys)
    assert code == 4
    assert expected in told.err
    assert told.err.count("\n") == 1


def test_files_that_are_no_proofs(tmp_path, capsys):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "deep").write_text("[" * 10**5)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe{")
    (tmp_path / "twice").write_text('{"format": 1, "format": 2}')
    for name in ("fifo", "deep", "bytes", "twice", "absent", "."):
        code, told = checked(tmp_path / name, capsys)
        assert code == 4, name
        assert "is not a proof" in told.err
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(60 * 10**9)
    read, check.MOST_FILE = check.MOST_FILE, 1000
    try:
        assert "at most 1,000 bytes" in checked(tmp_path / "sparse", capsys)[1].err
    finally:
        check.MOST_FILE = read


def test_more_than_256_classes(tmp_path, capsys):
    np.save(tmp_path / "s.npy", np.random.default_rng(0).normal(size=(3, 4, 300)))
    arguments = ["certify", str(tmp_path / "s.npy"), "--export", str(tmp_path / "p.json"), "--json"]
    assert CliRunner().invoke(cli.main, arguments).exit_code == 0
    assert checked(tmp_path / "p.json", capsys)[0] == 0


# --- alone ------------------------------------------------------------------------------------------------------------


def test_it_runs_copied_out_alone(proofs, tmp_path):
    copy = shutil.copy(FILE, tmp_path / "check.py")
    for name, code in (("alone", 0), ("spread", 0)):
        done = subprocess.run([sys.executable, "-I", "-S", copy, proofs[name]], capture_output=True, text=True)
        assert done.returncode == code, done.stderr
    done = subprocess.run([sys.executable, "-m", "runoff.check", proofs["alone"]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_it_imports_the_standard_library_only():
    for node in ast.walk(ast.parse(FILE.read_text())):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or "." * node.level] if isinstance(node, ast.ImportFrom) else []
        assert all(name.split(".")[0] in sys.stdlib_module_names for name in names), names
