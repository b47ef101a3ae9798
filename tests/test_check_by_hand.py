"""The checker against an adversary that tries everything, on fixed cases; and its parts, one at a time."""

import base64
import hashlib
import json
import os
import zlib
from functools import cache
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest

from reference import ballots_of, paper_certificate, true_cost
from runoff import check
from runoff.verify import _programs

N_SMALL = 60


@cache
def small(seed):
    """Return ballots of at most six members, and a spread or None."""
    draws = np.random.default_rng(seed)
    k, n_classes = int(draws.integers(1, 7)), int(draws.integers(2, 5))
    lean = draws.uniform(0, 2) * np.eye(n_classes)[draws.integers(n_classes)]
    rows = [bytes(row) for row in np.argsort(draws.normal(size=(k, n_classes)) + lean).argsort().astype(np.uint8)]
    spread = None
    if seed % 2:
        n_buckets = int(draws.integers(1, 6))
        spread = [sorted(draws.permutation(k)[: draws.integers(0, min(k, 3) + 1)].tolist()) for _ in range(n_buckets)]
    return rows, spread


@cache
def cost(election, seed):
    rows, spread = small(seed)
    n_buckets = len(rows) if spread is None else len(spread)
    return min(true_cost(election, ballots_of(rows), spread, sensible=True), n_buckets + 1), n_buckets


def placed(seed):
    rows, spread = small(seed)
    return None if spread is None else check.Spread(spread, len(rows))


# --- against the adversary --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("election", check.ELECTIONS)
@pytest.mark.parametrize("part", range(4))
def test_every_radius_is_judged_as_the_adversary_finds(election, part):
    for seed in range(part * N_SMALL // 4, (part + 1) * N_SMALL // 4):
        rows, spread = small(seed)
        least, n_buckets = cost(election, seed)
        w, s = check.hold(election, rows)
        paper = None if election == "maximin" else paper_certificate(election, ballots_of(rows), spread) - 1
        for radius in range(n_buckets + 2):
            claim = check.Claim(w, s, radius)
            verdict = check.check_input(election, "tight", rows, claim, placed(seed))
            assert not verdict.unproven
            assert not verdict.exact or radius == least - 1
            if radius >= least or radius > n_buckets:
                assert verdict.wrong is not None
                assert str(radius) in verdict.wrong
                assert not verdict.exact
            elif radius == least - 1:
                assert verdict.wrong is None
                assert verdict.exact == (radius < n_buckets) or spread is not None
            elif spread is None and election != "maximin":
                assert verdict.wrong == f"the radius is {least - 1}, claimed {radius}"
            if paper is None:
                wrong = check.check_input(election, "paper", rows, claim, placed(seed)).wrong
                assert wrong == "maximin is not in the paper and has no such bound, claimed paper"
                continue
            wrong = check.check_input(election, "paper", rows, claim, placed(seed)).wrong
            assert (wrong is None) == (radius == min(paper, n_buckets))
            assert wrong is None or f"claimed {radius}" in wrong
        for other in (claim._replace(prediction=s), claim._replace(runner_up=w)):
            assert "is class" in check.check_input(election, "tight", rows, other, placed(seed)).wrong


@pytest.mark.parametrize("election", check.ELECTIONS)
@pytest.mark.parametrize("part", range(4))
def test_integer_programs_find_what_the_adversary_finds(election, part):
    for seed in range(part * N_SMALL // 4, (part + 1) * N_SMALL // 4, 2 if election == "maximin" else 1):
        rows, _ = small(seed)
        least, n_buckets = cost(election, seed)
        assert _programs.by_programming(election, rows, placed(seed), least) == (least, least)
        low, high = _programs.by_programming(election, rows, placed(seed), least - 1)
        assert low == least <= high <= n_buckets + 1


@pytest.mark.parametrize("election", ["plurality", "runoff"])
def test_attacks_on_members_exist_from_the_cost_on_and_flip(election):
    for seed in range(0, N_SMALL, 2):
        rows, _ = small(seed)
        least, k = cost(election, seed)
        case = check.Input(election, rows)
        for size in range(1, k + 1):
            attack = check.attack_alone(case, size)
            assert (attack is not None) == (size >= least)
            if attack is None:
                continue
            assert len({*attack.members}) == len(attack.members) == len(attack.firsts) <= size
            assert case.flips(attack)
        assert check.exact_alone(case) == least - 1
        assert check.paper_alone(case) == paper_certificate(election, ballots_of(rows)) - 1


@pytest.mark.parametrize("election", check.ELECTIONS)
def test_threats_are_excluded_soundly_and_found_when_they_exist(election):
    """What is excluded cannot be done; where a search finds buckets, their attack flips the prediction."""
    for seed in range(1, N_SMALL, 2):
        rows, spread = small(seed)
        least, n_buckets = cost(election, seed)
        case = check.Input(election, rows)
        counts = check.Counts(case, placed(seed))
        for size in range(1, n_buckets + 1):
            found = []
            for threat in check.threats(case, counts, size, False):
                buckets = check.search(counts, threat.needs, size, 10**6)
                assert buckets is not False
                if buckets is None:
                    continue
                assert len({*buckets}) == len(buckets) <= size
                members = sorted({j for b in buckets for j in spread[b]})
                powers = [sum(counts.member_powers(need)[j] for j in members) for need in threat.needs]
                assert all(power >= need.gap for power, need in zip(powers, threat.needs, strict=True))
                found.append(case.flips(check.attack_with(case, threat, members)))
            assert any(found) == (size >= least)
            assert all(found)
        if election == "maximin":
            assert check.least_radius(case, counts) < least


def test_the_search_agrees_with_trying_all_buckets():
    for seed in range(1, 2 * N_SMALL, 2):
        rows, spread = small(seed)
        draws = np.random.default_rng(seed)
        case = check.Input("runoff", rows)
        counts = check.Counts(case, check.Spread(spread, len(rows)))
        w, c = case.w, case.rivals[0]
        needs = [
            check.Need(int(draws.integers(-1, 5)), 1, {w: 1, c: -1}, {}),
            check.Need(int(draws.integers(0, 4)), 0, {}, {(w, c): 2}),
        ][: 1 + seed % 2]
        for size in range(len(spread) + 1):

            def meets(chosen, spread=spread, counts=counts, needs=needs):
                members = {j for b in chosen for j in spread[b]}
                return all(sum(counts.member_powers(n)[j] for j in members) >= n.gap for n in needs)

            exists = any(meets(chosen) for n in range(size + 1) for chosen in combinations(range(len(spread)), n))
            result = check.search(counts, needs, size, 10**6)
            assert (result is not None) == exists
            assert result is None or (meets(result) and len(result) <= size)
            if exists and not meets(()):
                assert check.search(counts, needs, size, 0) is False
        for need in needs:
            powers = counts.powers(need)
            member = counts.member_powers(need)
            assert powers == [sum(member[j] for j in bucket) for bucket in spread]
            for size in range(1, len(spread) + 1):
                assert counts._most(need, size) == sum(sorted(powers, reverse=True)[:size])
                assert not (counts.excludes(need, size) and check.search(counts, [need], size, 10**6) is not None)
                if need.gap > 0:
                    assert counts.excludes(need, size) == (counts._most(need, size) < need.gap)


def test_the_paper_certificate_without_a_spread_is_that_of_the_paper():
    """With many members, so that each term of Theorem 3.4 is the smallest somewhere."""
    for seed in range(60):
        draws = np.random.default_rng(seed)
        k, n_classes = int(draws.integers(6, 40)), int(draws.integers(2, 5))
        lean = draws.uniform(0, 2, n_classes) * (seed % 3)
        rows = [bytes(row) for row in np.argsort(draws.normal(size=(k, n_classes)) + lean).argsort().astype(np.uint8)]
        for election in ("plurality", "runoff"):
            expected = paper_certificate(election, ballots_of(rows)) - 1
            assert check.paper_alone(check.Input(election, rows)) == expected
    for votes in combinations_with_replacement(range(1, 9), 3):  # all voters of others rank class 0 second
        rows = ballots(*["012"] * votes[2], *["102"] * votes[1], *["201"] * votes[0])
        assert check.paper_alone(check.Input("runoff", rows)) == paper_certificate("runoff", ballots_of(rows)) - 1


# --- larger cases, pinned ---------------------------------------------------------------------------------------------


def large(seed, k=21, n_classes=5, d=2):
    draws = np.random.default_rng(seed)
    lean = draws.uniform(0.5, 1.5) * np.eye(n_classes)[seed % n_classes]
    rows = [bytes(row) for row in np.argsort(draws.normal(size=(k, n_classes)) + lean).argsort().astype(np.uint8)]
    offsets = sorted(draws.permutation(k)[:d].tolist())
    return rows, check.Spread([sorted((b + o) % k for o in offsets) for b in range(k)], k)


def verdicts(election, bound, rows, spread):
    """Return a letter per radius: proven (p), proven and exact (e), wrong (w), or undecided (u)."""
    w, s = check.hold(election, rows)
    found = (check.check_input(election, bound, rows, check.Claim(w, s, r), spread) for r in range(9))
    return "".join("u" if v.unproven else "w" if v.wrong else "e" if v.exact else "p" for v in found)


PINNED = {  # alone and with a spread, for six cases
    ("plurality", "tight"): (
        "wwwwwewww wwewwwwww wwwewwwww wewwwwwww wwewwwwww wewwwwwww "
        "wewwwwwww ewwwwwwww wwwwwwwew wwwewwwww wwwwewwww wwewwwwww"
    ),
    ("plurality", "paper"): (
        "wwwwwewww wwewwwwww wwwewwwww wewwwwwww wwewwwwww wewwwwwww "
        "wewwwwwww ewwwwwwww wwwwwwwew wwwewwwww wwwwewwww wwewwwwww"
    ),
    ("runoff", "tight"): (
        "wwwwwewww wwewwwwww wewwwwwww ewwwwwwww wwewwwwww wewwwwwww "
        "wewwwwwww ewwwwwwww wwwwwwwew wwwewwwww wwwwwweww wwwewwwww"
    ),
    ("runoff", "paper"): (
        "wwwwwewww wwewwwwww wewwwwwww ewwwwwwww wwewwwwww wewwwwwww "
        "wewwwwwww ewwwwwwww wwwwwwwew wwwewwwww wwwwwweww wwwewwwww"
    ),
    ("maximin", "tight"): (
        "wwwwwewww wwewwwwww wewwwwwww ewwwwwwww wwewwwwww wewwwwwww "
        "wewwwwwww ewwwwwwww wwwwwwwew wwwewwwww wwwwwweww wwwewwwww"
    ),
}


@pytest.mark.parametrize(("election", "bound"), PINNED)
def test_verdicts_on_larger_cases_stay_as_they_are(election, bound):
    """Recorded; the radius of each agrees with the kernels and with integer programs."""
    for seed in range(6):
        rows, spread = large(seed)
        for at, reach in enumerate((None, spread)):
            assert verdicts(election, bound, rows, reach) == PINNED[election, bound].split()[2 * seed + at]


def test_the_cheapest_attacks_need_as_many_buckets_as_the_pinned_radii_say():
    for election in check.ELECTIONS:
        for seed in range(3):
            rows, spread = large(seed)
            for at, reach in enumerate((None, spread)):
                letters = PINNED[election, "tight"].split()[2 * seed + at]
                radius = max(r for r, letter in enumerate(letters) if letter in "pe")
                low, _ = _programs.by_programming(election, rows, reach, radius)
                assert low > radius


# --- messages and parts -----------------------------------------------------------------------------------------------


def ballots(*orders):
    """Return ballots from orders of classes, best first, as in "102"."""
    return [bytes(len(order) - 1 - order.index(str(c)) for c in range(len(order))) for order in orders]


def judged(election, bound, rows, radius, spread=None, nodes=check.SEARCH):
    claim = check.Claim(*check.hold(election, rows), radius)
    reach = None if spread is None else check.Spread(spread, len(rows))
    return check.check_input(election, bound, rows, claim, reach, nodes)


def test_winners_and_ties():
    assert check.top_two([2, 5, 5, 1]) == (1, 2)
    assert check.top_two([5, 2, 5]) == (0, 2)
    assert check.top_two([1, 1]) == (0, 1)
    rows = ballots("0123", "1023", "2103", "3102")
    assert check.hold("plurality", rows) == (0, 1)
    assert check.hold("runoff", rows) == (1, 0)
    assert check.hold("maximin", rows) == (1, 0)
    tied = ballots("01", "10")
    assert [check.hold(election, tied) for election in check.ELECTIONS] == [(0, 1)] * 3
    assert check.hold("runoff", ballots("10", "01", "10")) == (1, 0)
    assert check.hold("runoff", ballots("210", "210", "120", "120", "021")) == (2, 1)
    assert check.duels_of(ballots("012", "120", "201")) == [[0, 2, 1], [1, 0, 2], [2, 1, 0]]


def test_an_input_counts_its_ballots():
    case = check.Input("runoff", ballots("0123", "1023", "2103", "3102", "1203"))
    assert (case.w, case.s, case.k, case.n_classes) == (1, 0, 5, 4)
    assert case.first == [0, 1, 2, 3, 1]
    assert (case.votes, case.voters, case.rivals) == ([1, 2, 1, 1], {0: [0], 1: [1, 4], 2: [2], 3: [3]}, [0, 2, 3])
    assert [case.gap(1, c) for c in (0, 2, 3)] == [1, 2, 2]
    assert case.ranking(1, 0) == [1, 2, 3, 4]
    assert case.ranking(1, 0) is case.ranking(1, 0)
    assert [case.final_gap(c) for c in (0, 2, 3)] == [3, 4, 4]
    assert case.flips(check.Attack([1, 2, 3, 4], [0, 0, 0, 0]))
    assert not case.flips(check.Attack([0], [0]))
    with pytest.raises(ValueError, match="zip"):
        case.flips(check.Attack([1, 2], [1]))


def test_what_is_said_about_radii_that_are_off():
    rows = ballots(*["012"] * 7, *["120"] * 2)
    for radius in range(11):
        verdict = judged("plurality", "tight", rows, radius)
        names = ", ".join(map(str, range(min(radius, 7))))
        if radius == 2:
            assert verdict == check.Verdict(exact=True)
        elif radius < 2:
            assert verdict == check.Verdict(f"the radius is 2, claimed {radius}")
        elif radius < 10:
            named = names if radius < 8 else "0, 1, 2, 3, 4, 5, 6"
            assert verdict == check.Verdict(f"the radius is 2, claimed {radius}: members {named} change the prediction")
        else:
            assert verdict == check.Verdict("a radius is at most 9, the number of buckets, claimed 10")
    many = ballots(*["012"] * 12)
    assert judged("plurality", "tight", many, 10).wrong == (
        "the radius is 6, claimed 10: members 0, 1, 2, 3, 4, 5, 6, 7, ... change the prediction"
    )
    assert judged("plurality", "paper", many, 4).wrong == "the radius of Theorem 3.4 is 6, claimed 4"
    assert judged("plurality", "paper", many, 10).wrong.startswith("the radius is 6, claimed 10: members 0, 1")
    assert judged("plurality", "paper", many, 6) == check.Verdict(exact=True)
    spread = [[j, (j + 1) % 12] for j in range(12)]
    assert judged("plurality", "paper", many, 4, spread).wrong == (
        "the radius of Theorem 3.4 is below the claimed 4: class 1 may beat class 0"
    )
    assert judged("plurality", "paper", many, 2, spread).wrong == "the radius of Theorem 3.4 is above the claimed 2"
    assert judged("plurality", "tight", many, 3, spread) == check.Verdict(exact=True)
    assert judged("plurality", "tight", many, 4, spread).wrong == (
        "the radius is below the claimed 4: class 1 may beat class 0 with buckets 0, 2, 4, 6"
    )
    assert judged("plurality", "tight", many, 13, spread).wrong == (
        "a radius is at most 12, the number of buckets, claimed 13"
    )
    assert judged("plurality", "tight", many, 1, [[0]]) == check.Verdict()
    assert judged("plurality", "tight", many, 0, [[0]]).wrong == "the radius of Theorem 3.4 is above the claimed 0"
    assert judged("maximin", "tight", many, 0, [[0], [1]]).wrong == "the radius is at least 6, claimed 0"
    assert judged("maximin", "tight", many, 2, [[0], [1]]) == check.Verdict()
    three = ballots(*["012"] * 5, *["102"] * 5, *["201"] * 3)
    assert judged("runoff", "tight", three, 9, [[j] for j in range(12)]).wrong == (
        "the radius is below the claimed 9: classes 1 and 2 may eliminate class 0 in round 1 with buckets 0, 1"
    )
    two = ballots(*["012"] * 4, *["102"] * 4, *["201"] * 4)
    found = judged("runoff", "paper", two, 4, [[j, (j + 3) % 12] for j in range(12)]).wrong
    assert found == "the radius of Theorem 3.4 is below the claimed 4: classes 1 and 2 may eliminate class 0 in round 1"


def nodes_of(counts, threat, size):
    """Return the number of nodes that a search needs."""
    low, high = 0, 1
    while check.search(counts, threat.needs, size, high) is False:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        done = check.search(counts, threat.needs, size, middle) is not False
        low, high = (low, middle) if done else (middle, high)
    return high


NODES = {
    "plurality": "4 4 4 4 4 4 4 4 2 3 3 3 2 2 3 2 3 2 2 2 2 2 2 3",
    "runoff": "4 4 5 5 5 5 5 5 4 5 4 5 2 3 3 3 3 3 3 3 2 3 3 3 3 3 3 3 4 4 3 4 4 3 3 4 3 2 2 2 2 3 3 3 3 3 2 3 2 3",
    "maximin": "4 4 16 16 4 4 4 4 4 4 5 5 4 4 5 5 4 5 5 5 4 5 5 5 2 2 3 3 3 3 7 5 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 3 "
    "3 4 3 3 3 4 3 3 3 3 4 4 4 4 2 2 2 2 2 2 2 7 7 2 2 2 2 2 2 2 2 3 3 3 2 3 3 3 3 3",
}


@pytest.mark.parametrize("election", NODES)
def test_as_few_threats_and_nodes_as_before(election):
    """What is left out of the pruning changes no verdict, and this number."""
    found = []
    for seed in range(4):
        rows, spread = large(seed, k=24, d=3)
        case = check.Input(election, rows)
        counts = check.Counts(case, spread)
        least = next(r for r in range(1, 24) if next(check.threats(case, counts, r, False), None))
        for size in (least, least + 1):
            found += [str(nodes_of(counts, threat, size)) for threat in check.threats(case, counts, size, False)]
    assert " ".join(found) == NODES[election]


def test_a_lower_bound_on_the_radius_of_maximin():
    found = []
    for seed in range(8):
        rows, spread = large(seed)
        case = check.Input("maximin", rows)
        found.append(check.least_radius(case, check.Counts(case, spread)))
    assert found == [2, 0, 1, 0, 3, 3, 2, 2]


def test_a_search_that_gives_up_proves_nothing():
    rows, spread = large(0, k=24, d=3)
    claim = check.Claim(*check.hold("maximin", rows), 4)
    verdicts = [check.check_input("maximin", "tight", rows, claim, spread, nodes) for nodes in (1, 10**4)]
    assert verdicts[0] == check.Verdict(
        f"the claimed radius 4 could not be proven: class {claim.runner_up} may beat class {claim.prediction}",
        unproven=True,
    )
    assert not verdicts[1].unproven


def test_spreads():
    spread = check.Spread([[0, 2], [], [2]], 4)
    assert spread.of_member == [[0], [], [0, 2], []]
    assert spread.reached == [0, 2]
    some = ([[0], [2], [1]], [[0], [1]], [[0], [1], [1]], [[0], [1], [2, 0]])
    assert [check.Spread(buckets, 3).is_one_to_one() for buckets in some] == [True, False, False, False]
    pair = {(0, 1): 1}
    need = check.added([check.Need(2, 1, {0: 1, 1: -1}), check.Need(3, 1, {0: 2}, pair), check.Need(0, 0, {}, pair)])
    assert need == check.Need(5, 2, {0: 3, 1: -1}, {(0, 1): 2})


# --- the file ---------------------------------------------------------------------------------------------------------


def a_proof(**changes):
    rows = np.array([[[2, 1, 0], [2, 1, 0], [0, 1, 2]], [[0, 2, 1]] * 3], np.uint8)
    return packed(rows) | {
        "format": "runoff proof", "version": 1, "election": "plurality", "bound": "tight", "n_members": 3,
        "n_classes": 3, "n_inputs": 2, "prediction": [0, 1], "runner_up": [2, 0], "radius": [0, 1], "spread": None,
    } | changes  # fmt: skip


def packed(rows, **about):
    data = rows.tobytes()
    known = {
        "dtype": rows.dtype.name, "encoding": "base64 of zlib", "sha256": hashlib.sha256(data).hexdigest(),
        "data": base64.b64encode(zlib.compress(data)).decode(),
    }  # fmt: skip
    return {"ballots": known | about}


def parsed(proof):
    return check.parse(json.dumps(proof).encode())


def test_a_file_is_what_it_says(tmp_path, capsys):
    proof = parsed(a_proof())
    assert (proof.election, proof.bound, proof.n_members, proof.n_classes, proof.spread, proof.unit) == (
        "plurality", "tight", 3, 3, None, "samples",
    )  # fmt: skip
    assert proof.claims == [check.Claim(0, 2, 0), check.Claim(1, 0, 1)]
    assert proof.rows(1) == [bytes([0, 2, 1])] * 3
    assert check.check(proof) == ([], 2)
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(a_proof()))
    assert check.main([str(path)]) == 0
    assert capsys.readouterr().out == (
        "2 inputs, 3 members, 3 classes, one bucket per member: plurality, tight bound\n"
        "Proven: 2 predictions and runner-ups, by holding each election again.\n"
        "Proven: 2 radii; for 2 of them an attack on radius + 1 buckets was replayed, so they are exact.\n"
        "Radii count samples that are inserted, deleted or relabelled.\n"
        "Not checked: that these are the ballots of the trained members, and that an edit reaches only the members of "
        "its bucket. `runoff verify` checks both on the run itself.\n"
    )
    path.write_text(json.dumps(a_proof(spread=[[0, 1, 2], [1]], radius=[0, 0], unit="sources")))
    assert check.main([str(path)]) == 0
    told = capsys.readouterr().out
    assert "3 classes, 2 buckets: plurality" in told
    assert "Radii count sources, whatever they contribute.\n" in told
    path.write_text(json.dumps(a_proof(radius=[1, 1])))
    assert check.main([str(path)]) == 3
    assert capsys.readouterr().err == (
        "Error: input 0: the radius is 0, claimed 1: members 0 change the prediction.\n"
        "1 of 2 certificates are wrong or not proven.\n"
    )
    path.write_text("{}")
    assert check.main([str(path)]) == 4
    assert capsys.readouterr().err == (
        f'Error: {path} is not a proof: it must be an object with "format": "runoff proof".\n'
    )
    with pytest.raises(SystemExit):
        check.main([])
    assert "check.py: error: the following arguments are required: proof" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        check.main(["-h"])
    told = " ".join(capsys.readouterr().out.split())
    assert "Check every prediction and radius in a proof.json. positional arguments:" in told
    assert "file written by `runoff certify --export`" in told


def test_at_most_five_failures_are_listed(tmp_path, capsys):
    rows = np.tile(np.array([[0, 1]] * 3, np.uint8), (7, 1, 1))
    proof = a_proof(n_inputs=7, n_classes=2, prediction=[1] * 7, runner_up=[0] * 7, radius=[3] * 7, **packed(rows))
    (tmp_path / "proof.json").write_text(json.dumps(proof))
    assert check.main([str(tmp_path / "proof.json")]) == 3
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1] for line in told[:5]] == [f" input {i}" for i in range(5)]
    assert told[5:] == ["7 of 7 certificates are wrong or not proven."]


WIDE = np.stack([np.random.default_rng(0).permutation(300) for _ in range(6)]).reshape(2, 3, 300).astype(np.uint16)


def test_more_classes_need_two_bytes(monkeypatch):
    proof = parsed(a_proof(n_classes=300, **packed(WIDE)))
    assert [list(row) for row in proof.rows(1)] == WIDE[1].tolist()
    many = np.argsort(np.random.default_rng(0).normal(size=(2, 3, 256))).astype(np.uint8)
    assert parsed(a_proof(n_classes=256, **packed(many))).rows(0) == [bytes(row) for row in many[0]]
    monkeypatch.setattr(check.sys, "byteorder", "big")
    swapped = parsed(a_proof(n_classes=300, **packed(WIDE.byteswap())))
    assert list(swapped.ballots) == WIDE.ravel().tolist()
    with pytest.raises(check.MalformedError, match="ballots must be uint16, as base64 of zlib"):
        parsed(a_proof(n_classes=257, **packed(WIDE.astype(np.uint8))))


REFUSED = [
    ({"format": "other"}, "it must be an object with"),
    ({"version": 2}, "it has version 2, this checker reads version 1"),
    ({"version": True}, "it has version True, this checker reads version 1"),
    ({"election": "lottery"}, "election must be one of plurality, runoff, maximin, got 'lottery'"),
    ({"bound": "loose"}, "bound must be one of tight, paper, got 'loose'"),
    ({"unit": "people"}, "unit must be one of samples, sources, labels, got 'people'"),
    ({"unit": ["samples"]}, "unit must be one of"),
    ({"election": "maximin", "bound": "paper"}, "bound must be tight for maximin"),
    ({"n_members": 0}, "n_members must be an integer from 1 to 1000000, got 0"),
    ({"n_members": 10**6 + 1}, "n_members must be an integer from 1 to 1000000, got 1000001"),
    ({"n_members": 3.0}, "n_members must be an integer from 1 to 1000000, got 3.0"),
    ({"n_classes": 1}, "n_classes must be an integer from 2 to 65536, got 1"),
    ({"n_classes": 65537}, "n_classes must be an integer from 2 to 65536, got 65537"),
    ({"n_inputs": 0}, "n_inputs must be an integer from 1 to 536870912, got 0"),
    ({"n_inputs": 2**29 + 1}, "n_inputs must be an integer from 1 to 536870912, got 536870913"),
    ({"prediction": [0]}, "prediction must be a list of 2 integers, one per input"),
    ({"runner_up": {"0": 1, "1": 2}}, "runner_up must be a list of 2 integers"),
    ({"radius": [0, -1]}, "radius must hold non-negative integers, got -1 for input 1"),
    ({"radius": [True, 1]}, "radius must hold non-negative integers, got True for input 0"),
    ({"spread": {}}, "spread must be null, or a list with the members of each bucket"),
    ({"spread": []}, "spread must be null, or a list"),
    ({"spread": [[0], 1]}, "spread must name members 0 to 2 in bucket 1"),
    ({"spread": [[0, 3]]}, "spread must name members 0 to 2 in bucket 0"),
    ({"spread": [[-1]]}, "spread must name members 0 to 2 in bucket 0"),
    ({"spread": [[True]]}, "spread must name members 0 to 2 in bucket 0"),
    ({"spread": [[0], [1, 1]]}, "spread must name each member at most once in bucket 1"),
    ({"ballots": []}, "ballots must be an object with dtype, sha256 and data"),
    ({"ballots": {"dtype": "uint8", "sha256": "0"}}, "ballots must be an object with dtype, sha256 and data"),
    ({"ballots": {"dtype": "uint8", "data": "0"}}, "ballots must be an object with dtype, sha256 and data"),
    ({"ballots": {"sha256": "uint8", "data": "0"}}, "ballots must be an object with dtype, sha256 and data"),
    (packed(WIDE[:, :, :3]), "ballots must be uint8, as base64 of zlib"),
    (packed(np.zeros((2, 3, 3), np.uint8), encoding="hex"), "ballots must be uint8, as base64 of zlib"),
    (packed(np.zeros((2, 3, 3), np.uint8), sha256="0"), "ballots do not match their SHA-256"),
    (packed(np.zeros((2, 3, 2), np.uint8)), "ballots must be 18 bytes for 2 inputs, 3 members and 3 classes"),
    (packed(np.zeros((2, 3, 4), np.uint8)), "ballots must be 18 bytes for 2 inputs, 3 members and 3 classes"),
    (packed(np.zeros(1, np.uint8), data="~~~~"), "ballots are damaged"),
    (packed(np.zeros(1, np.uint8), data="AAAA"), "ballots are damaged"),
    (packed(np.zeros(1, np.uint8), data=""), "ballots must be 18 bytes"),
    ({"n_members": 1000}, "ballots must unpack to 6,000 bytes|ballots must be 6,000 bytes"),
]


@pytest.mark.parametrize(("change", "told"), REFUSED)
def test_files_that_are_refused(change, told):
    with pytest.raises(check.MalformedError, match=told):
        parsed(a_proof(**change))


def test_the_limits_of_a_file_are_allowed():
    for change in ({"n_members": 10**6}, {"n_classes": 65536}, {"n_inputs": 2**29}):
        with pytest.raises(check.MalformedError, match=r"^(?!n_)"):  # refused for another reason
            parsed(a_proof(**change))
    assert parsed(a_proof(spread=[[2]])).spread.of_member == [[], [], [0]]
    assert parsed(a_proof(spread=[[0], [], [0, 1, 2]])).spread.buckets == [[0], [], [0, 1, 2]]
    rows = np.zeros((2, 3, 3), np.uint8)
    with pytest.raises(check.MalformedError, match="input 1 has a ballot that does not rank classes 0 to 2, each once"):
        parsed(a_proof(**packed(rows))).rows(1)
    whole = packed(np.zeros((2, 3, 3), np.uint8))["ballots"]["data"]
    for extra in (b"x", base64.b64decode(whole)):
        data = base64.b64encode(base64.b64decode(whole) + extra).decode()
        with pytest.raises(check.MalformedError, match="ballots must be 18 bytes"):
            parsed(a_proof(**packed(np.zeros((2, 3, 3), np.uint8), data=data)))
    short = base64.b64encode(base64.b64decode(whole)[:-3]).decode()
    with pytest.raises(check.MalformedError, match="ballots must be 18 bytes"):
        parsed(a_proof(**packed(np.zeros((2, 3, 3), np.uint8), data=short)))


def test_a_claim_that_cannot_fit_is_refused_before_unpacking(monkeypatch):
    data = np.zeros((2, 3, 3), np.uint8)
    monkeypatch.setattr(check, "MOST_BALLOTS", 18)
    assert parsed(a_proof(**packed(data))).n_members == 3
    monkeypatch.setattr(check, "MOST_BALLOTS", 17)
    with pytest.raises(check.MalformedError, match="ballots must unpack to 18 bytes, but hold too few"):
        parsed(a_proof(**packed(data)))
    monkeypatch.undo()
    length = len(base64.b64decode(packed(data)["ballots"]["data"]))
    for n, told in ((1100 * length + 1100, "must be"), (1100 * length + 1101, "must unpack to")):
        with pytest.raises(check.MalformedError, match=f"ballots {told} {n:,} bytes"):
            check._ballots(a_proof(**packed(data)), 1, n, 1)


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(a_proof()))
    monkeypatch.setattr(check, "MOST_FILE", path.stat().st_size)
    assert check.read(path).n_members == 3
    monkeypatch.setattr(check, "MOST_FILE", path.stat().st_size - 1)
    with pytest.raises(check.MalformedError, match="it must be a regular file of at most"):
        check.read(path)
    with pytest.raises(check.MalformedError, match="it cannot be read: No such file or directory"):
        check.read(tmp_path / "absent")
    os.mkfifo(tmp_path / "fifo")
    for other in (tmp_path, tmp_path / "fifo"):
        with pytest.raises(check.MalformedError, match="it must be a regular file"):
            check.read(other)
    for data, told in ((b"{", "it must be JSON, got something else"), (b"\xff", "it must be JSON"),
                       (b'{"a": 1, "a": 1}', "it must name each key once"),
                       (b"[NaN]", "it must hold integers, got NaN"),
                       (b"[" * 10**5, "it must be JSON"), (b"[]", "it must be an object")):  # fmt: skip
        with pytest.raises(check.MalformedError, match=told):
            check.parse(data)
