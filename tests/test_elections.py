"""The NumPy side of elections, function by function: threats, takeovers, searches for attacks, and their replay."""

import hashlib
import importlib.util
import pkgutil
from itertools import combinations, permutations
from math import comb

import numpy as np
import pytest

import runoff
from reference import IN_PAPER, RULES, ballots_of, cert_fa, true_cost
from runoff import attacks, elections
from runoff.elections import base, votes
from runoff.elections import runoff as rule_of_runoff
from runoff.elections.base import Story, Threat
from runoff.spreads import Spread, disjoint
from test_cover import fewest_of_all, fixed_cover
from test_reference import FromThreats, lopsided

SPREADS = {"none": None, "moved": [[2], [0], [4], [1], [3]], "overlapping": [[0, 1], [1, 2], [3], [4, 0], [2, 3, 4]]}


class WithTargets(FromThreats):
    """An election without kernels whose threats to elect a given class are defined, too."""

    def threats_to(self, ballots, outcome, target):
        return self.rule.threats_to(ballots, outcome, target)


def ballots_for(number, members=(1, 9), classes=(2, 6)):
    """Return ballots with ties in votes, often with classes that have no votes."""
    rng = np.random.default_rng([12, number])
    m, c = int(rng.integers(*members)), int(rng.integers(*classes))
    scores = rng.integers(0, 5, (1, m, c)) + rng.choice([0, 2, 4]) * rng.integers(0, 2, c)
    return runoff.rank(scores)[0]


def a_threat(gaps, powers, rank=0):
    return Threat(Story("none", ()), np.array(gaps, np.int32), np.array(powers, np.int32), rank, base.voting_for(0))


def noting(function, calls):
    """The function, with the arguments that are numbers, and the results, of its calls noted."""

    def called(*arguments):
        result = function(*arguments)
        calls.append((*(a for a in arguments if isinstance(a, int)), *(int(r) for r in result)))
        return result

    return called


def test_every_module_is_an_election_or_shared_by_elections():
    modules = {module.name for module in pkgutil.iter_modules(elections.__path__)}
    assert modules == {*elections.NAMES, *elections.SHARED}
    assert all(importlib.util.find_spec(f"runoff.elections.{name}") for name in elections.SHARED)
    assert (elections.DEFAULT, elections.BASELINE) == ("runoff", "plurality")
    assert elections.get("runoff") is rule_of_runoff.ELECTION is elections.get(rule_of_runoff.ELECTION)
    with pytest.raises(ValueError, match="election must be one of 'maximin', 'plurality', 'runoff', got 'votes'"):
        elections.get("votes")
    told = {name: (rule.label, rule.suffix, rule.dashes) for name in RULES for rule in [elections.get(name)]}
    assert told == {
        "maximin": ("maximin", "+maximin", (1, 2)),
        "plurality": ("plurality", "", (4, 2)),
        "runoff": ("run-off", "+ROE", ()),
    }
    assert FromThreats(None).dashes == (2, 3)
    for name in RULES:
        rule = elections.get(name)
        assert (rule.in_paper, rule.reads_rankings) == (name in IN_PAPER, name != "plurality")
    assert (FromThreats(None).in_paper, FromThreats(None).reads_rankings) == (False, True)


def test_counts_by_hand():
    ballots = np.array([[2, 1, 0], [0, 2, 1], [0, 2, 1], [1, 0, 2]], np.uint8)
    counted = votes.count_votes(ballots)
    assert (counted.tolist(), counted.dtype) == ([1, 2, 1], np.int64)
    assert votes.count_votes(ballots[:1]).tolist() == [1, 0, 0]
    assert votes.top_two(counted) == (1, 0)
    assert votes.top_two(np.array([3, 3, 3])) == (0, 1)
    many = np.array([1, 0] * 20)
    assert votes.top_two(many) == (0, 2)
    assert [votes.gap(counted, a, b) for a, b in ((0, 1), (1, 0), (0, 2), (2, 0))] == [0, 1, 1, 0]
    assert votes.pass_power(ballots, 1, 0).tolist() == [0, 2, 2, 1]
    assert votes.pass_power(ballots, 1, 0).dtype == np.int32
    assert votes.gap(counted, 1, 1) == 0
    assert votes.ranks_above(ballots, 0, 2).tolist() == [True, False, False, False]
    assert not votes.ranks_above(ballots, 1, 1).any()
    assert votes.vote_bars(np.array([2, 0, 1])) == {0: 2, 2: 1}
    assert votes.describe_votes(np.array([0, 2, 5, 2, 1])) == (
        "of 10 votes, 5 for class {}, 2 for class {}, 2 for class {}, 1 for class {}",
        (2, 1, 3, 4),
    )
    assert votes.describe_votes(np.array([1, 2, 5, 2, 1, 0, 1])) == (
        "of 12 votes, 5 for class {}, 2 for class {}, 2 for class {}, 1 for class {}, 2 for others",
        (2, 1, 3, 0),
    )
    order = votes.describe_votes(np.array([1, 2] * 20))[1]
    assert order == (1, 3, 5, 7)


def test_rows_that_are_met_are_left_out_and_the_sum_of_the_others_is_added():
    powers = [np.array(p, np.int32) for p in ([1, 0, 2], [5, 5, 5], [7, 7, 7], [0, 1, 1])]
    gaps, rows = base.open_rows(list(zip((3, 0, -2, 1), powers, strict=True)))
    assert (gaps.tolist(), rows.tolist()) == ([3, 1, 4], [[1, 0, 2], [0, 1, 1], [1, 1, 3]])
    assert gaps.dtype == rows.dtype == np.int32
    gaps, rows = base.open_rows([(1, powers[3]), (0, powers[0])])
    assert (gaps.tolist(), rows.tolist()) == ([1], [[0, 1, 1]])


def test_a_threat_is_met_by_members_that_meet_all_rows():
    threat = a_threat([3, 1], [[1, 2, 0], [1, 0, 1]])
    taken = ([], [0], [1], [0, 1], [1, 2], [0, 1, 2])
    met = [threat.met_by(np.array(members, np.int64)) for members in taken]
    assert met == [False, False, False, True, False, True]
    assert all(type(value) is bool for value in met)
    ballots = np.array([[2, 1, 0], [0, 2, 1], [0, 1, 2]], np.uint8)
    voting = Threat(threat.how, threat.gaps, threat.powers, 1, base.voting_for(2))
    assert voting.new_ballots(ballots, np.array([2, 0])).tolist() == [[1, 0, 2], [1, 0, 2]]
    assert Story("{} beats {}", (1, 0)).describe() == "1 beats 0"
    assert Story("{} beats {}", (1, 0)).describe(np.array(["cat", "dog"])) == "dog beats cat"


def test_threats_say_what_they_do():
    """In the order in which they are tried."""
    ballots = runoff.rank(np.array([[[3, 2, 1]] * 4 + [[1, 3, 2]] * 2 + [[1, 2, 3]]]))[0]
    told = {}
    for name in RULES:
        rule = elections.get(name)
        outcome = rule.hold(ballots)
        told[name] = [threat.how.describe() for threat in rule.threats(ballots, outcome)]
        to_elect = [threat.how.describe() for threat in rule.threats_to(ballots, outcome, 2)]
        if name == "maximin":
            assert to_elect == ["class 2 gets the best worst duel"] * 4
        else:
            told[name] += to_elect
    better = "gets a better worst duel than class 0 has with class"
    assert told == {
        "plurality": ["class 1 passes class 0", "class 2 passes class 0", "class 2 passes every other class"],
        "runoff": [
            "class 1 reaches round 2 and beats class 0 there",
            "class 2 reaches round 2 and beats class 0 there",
            "classes 1 and 2 eliminate class 0 in round 1",
            "classes 2 and 0 advance to round 2, which class 2 wins",
            "classes 2 and 1 advance to round 2, which class 2 wins",
        ],
        "maximin": [f"class {c} {better} {b}" for c in (1, 2) for b in (1, 2)],
    }


def test_bounds_of_threats_are_those_of_their_rows_and_of_all_sets_of_buckets():
    for number in range(120):
        lists, gaps, powers = fixed_cover(number)
        spread = Spread.from_any(lists, powers.shape[1])
        threat = a_threat(gaps, powers)
        rows = [cert_fa([sum(p[j] for j in bucket) for bucket in lists], g) for g, p in zip(gaps, powers, strict=True)]
        assert base.separate_bound(threat, spread.reach) == min(max(rows), base.UNREACHABLE)
        truth = fewest_of_all(lists, gaps, powers)
        calls = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "search", noting(base.search, calls))
            assert base.threat_cost(threat, spread.reach, 10**6) == (base.UNREACHABLE if truth is None else truth)
        assert all(size <= len(lists) for size, *_ in calls)
        left = 10**6  # nodes, which all sizes share
        for at, (size, budget, _verdict, nodes) in enumerate(calls):
            assert (size, budget) == (max(rows) + at, left)
            left -= nodes
        assert base.threat_cost(threat, spread.reach, 1) in (max(rows), len(lists), base.UNREACHABLE, truth)
        if truth is not None and truth < len(lists):
            assert base.threat_cost(threat, spread.reach, 1) <= truth
    nothing = a_threat(np.empty(0), np.empty((0, 4)))
    assert base.separate_bound(nothing, disjoint(4).reach) == base.threat_cost(nothing, disjoint(4).reach, 5) == 0


def test_what_a_short_search_for_a_bound_says():
    """Each row can be met by one member, and no member meets two: the search proves one size after the other."""
    threat, reach = a_threat([1, 1, 1], np.eye(3)), disjoint(3).reach
    assert [base.threat_cost(threat, reach, nodes) for nodes in range(14)] == [1] * 3 + [2] * 5 + [3] * 6


TAKEOVERS = {"plurality": "04e65307 683cbe37 75fda23c 66286155", "runoff": "8c0ba540 d268df1a 06fb33e1 1ae79238"}


@pytest.mark.parametrize("election", IN_PAPER)
@pytest.mark.parametrize("part", range(4))
def test_takeovers_are_found_exactly_where_a_threat_can_be_met(election, part):
    """The search decides; the takeovers of plurality and run-off are computed in closed form instead."""
    rule, told = elections.get(election), []
    for number in range(part, 120, 4):
        ballots = ballots_for(number)
        outcome = rule.hold(ballots)
        least = {}
        for target in (None, *(c for c in range(ballots.shape[1]) if c != outcome.prediction)):
            for size in range(len(ballots) + 1):
                if target is None:
                    found = rule.takeover(ballots, outcome, size)
                    exact = base._takeover(rule.threats(ballots, outcome), size, len(ballots))
                else:
                    found = rule.takeover_to(ballots, outcome, target, size)
                    exact = base._takeover(rule.threats_to(ballots, outcome, target), size, len(ballots))
                assert (found is None) == (exact is None)
                if found is not None:
                    break
            least[target] = size
            told.append((target, found[0].how.describe(), found[1].tolist()))
            for threat, members in (found, exact):
                assert threat.met_by(members)
                assert members.dtype == np.int64
                assert sorted({*members.tolist()}) == members.tolist()
                assert len(members) == size
                after = ballots.copy()
                after[members] = threat.new_ballots(ballots, members)
                winner = rule.hold(after).prediction
                assert winner != outcome.prediction if target is None else winner == target
        assert least[None] == true_cost(election, ballots_of(ballots), sensible=True) == min(least.values())
    assert hashlib.sha256(str(told).encode()).hexdigest()[:8] == TAKEOVERS[election].split()[part]


@pytest.mark.parametrize("part", range(3))
def test_members_for_a_pair_of_finalists_are_found_where_any_set_will_do(part):
    """The smallest sets are found; a larger one that is returned will do, too, and has that many members."""
    rule, larger = elections.get("runoff"), []
    for number in range(part, 60, 3):
        ballots = ballots_for(number, members=(1, 7), classes=(2, 5))
        m, w = len(ballots), rule.hold(ballots).prediction
        for t, o in permutations(range(ballots.shape[1]), 2):
            threat, least = rule._wins_against(ballots, t, o), None
            for size in range(m + 1 if t != w else 0):
                sets = np.array([*combinations(range(m), size)], np.int64).reshape(comb(m, size), size)
                met = (threat.powers[:, sets].sum(axis=2) >= threat.gaps[:, None]).all(axis=0)
                members = rule_of_runoff._best_pair(ballots, t, o, size)
                if met.any() and least is None:
                    least = size
                    assert members is not None
                assert members is None or members.tolist() in sets[met].tolist()
                if least is not None and least < size:
                    larger.append(members is not None)
    assert 0.3 < np.mean(larger) < 0.8


def test_members_for_a_defeat_are_voters_of_classes_ahead_then_supporters_of_the_winner_then_others():
    rule = elections.get("runoff")
    for number in range(60):
        ballots = ballots_for(number, members=(2, 9), classes=(3, 6))
        m, n_classes = ballots.shape
        first, counted = ballots.argmax(axis=1), votes.count_votes(ballots)
        w, c = (int(u) for u in np.random.default_rng(number).permutation(n_classes)[:2])
        by_use = sorted(range(m), key=lambda j: (ballots[j, w] < ballots[j, c], first[j] == c, j))
        for size in range(m + 1):
            chosen = []
            for u in (u for u in range(n_classes) if u not in (w, c)):
                lose = max(0, counted[u] + (u < c) - counted[c] - size)
                chosen += [j for j in by_use if first[j] == u][:lose]
            chosen += [j for j in by_use if j not in chosen]
            assert rule._best_for(ballots, w, c, size).tolist() == sorted(chosen[:size])


@pytest.mark.parametrize("where", SPREADS)
@pytest.mark.parametrize("election", IN_PAPER)
def test_an_election_without_kernels_finds_the_same_targets(election, where):
    rule, spread = elections.get(election), SPREADS[where]
    own = WithTargets(rule)
    assert own.has_targets
    assert not FromThreats(rule).has_targets
    scores = np.random.default_rng(3).integers(0, 6, size=(5, 5, 3))
    fast, slow = (runoff.certify(scores, election=e, spread=spread) for e in (rule, own))
    known = Spread.from_any(spread or [[j] for j in range(5)], 5)
    for attack in filter(None, map(fast.attack, range(5))):
        assert attack.buckets.tolist() == sorted(attack.buckets)
        assert attack.members.tolist() == known.reached(attack.buckets).tolist()
    for target in range(3):
        radius = slow.radius_to(target)
        np.testing.assert_array_equal(radius, fast.radius_to(target))
        for i in np.flatnonzero(radius >= 0):
            truth = true_cost(election, ballots_of(scores[i]), spread, to=target, sensible=True)
            assert radius[i] + 1 == min(truth, slow.n_buckets + 1)
            attack = slow.attack(i, to=target)
            if truth > slow.n_buckets:
                assert attack is None
                continue
            assert len(attack) == truth
            assert (known.reached(attack.buckets).tolist(), attack.prediction) == (attack.members.tolist(), target)
            assert sorted(attack.buckets) == attack.buckets.tolist()


def test_one_bucket_per_member_needs_no_search_through_all_threats():
    """The first of the threats that can be met is taken, and none below the known cost is tried."""
    rule = WithTargets(elections.get("runoff"))
    ballots = runoff.rank(np.random.default_rng(1).normal(size=(1, 9, 4)))[0]
    outcome = rule.hold(ballots)
    tried, spread = [], disjoint(9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "search", noting(base.search, tried))
        for target in (c for c in range(4) if c != outcome.prediction):
            cost = rule.target_cost(ballots, outcome, target, spread.reach, 10**6)
            assert rule.smallest_to(ballots, outcome, target, spread, 10) is None
            tried.clear()
            threat, buckets = rule.smallest_to(ballots, outcome, target, spread, cost)
            assert len(buckets) == cost
            assert {size for size, *_ in tried} == {cost}
            assert {budget for _, budget, *_ in tried} == {20_000}
            assert threat.met_by(buckets)


SMALLEST = "989bf961 c6f062bb f9c129fc ef40dc65 88e0db35 ceb9b4b3 419a1bf3 830ebe64"


@pytest.mark.parametrize("part", range(8))
def test_the_smallest_attack_is_searched_for_among_the_most_promising_threats(part):
    """Sizes fall below each attack found; threats follow in the order of their bounds, until none can be smaller."""
    found = []
    for number in range(part, 40, 8):
        scores, spread = lopsided(3 * number + 1)
        spread = Spread.from_any(spread, scores.shape[1])
        for name in RULES:
            rule, ballots = elections.get(name), runoff.rank(scores)[0]
            outcome, calls = rule.hold(ballots), []
            threats = list(rule.threats(ballots, outcome))
            bounds = sorted(base.separate_bound(threat, spread.reach) for threat in threats)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(base, "search", noting(base.search, calls))
                best = base.smallest(iter(threats), spread, 1)
            sizes = [size for size, *_ in calls]
            assert sizes == sorted(sizes, reverse=True)
            assert all(budget == 20_000 + spread.n_buckets for _, budget, *_ in calls)
            assert best is None or best[0].met_by(spread.reached(best[1]))
            assert best is None or len(best[1]) >= bounds[0]
            found += [(number, name, None if best is None else best[1].tolist(), calls)]
    assert hashlib.sha256(str(found).encode()).hexdigest()[:8] == SMALLEST.split()[part]


def test_threats_are_tried_up_to_a_number_and_down_to_a_cost():
    ones = np.ones((1, 6), np.int32)
    spread = disjoint(6)
    for gap, cost, expected in ((3, 0, 3), (3, 5, 5), (3, 6, 6), (6, 0, 6)):
        calls = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "search", noting(base.search, calls))
            _, buckets = base.smallest(iter([a_threat([gap], ones)]), spread, cost)
        assert len(buckets) == min(gap, expected)
        assert calls[0][0] == 6
        assert min(size for size, *_ in calls) >= max(gap, min(cost, 6))
    assert base.smallest(iter([a_threat([7], ones)]), spread, 0) is None
    assert base.smallest(iter([a_threat([3], ones)]), spread, 7) is None
    assert base.smallest(iter([]), spread, 0) is None


def test_buckets_of_an_attack_are_sorted_whichever_members_they_reach():
    certificates = runoff.certify(np.array([[[2, 1, 0]] * 5]), election="plurality", spread=SPREADS["moved"])
    attack = certificates.attack(0)
    assert (attack.buckets.tolist(), attack.members.tolist()) == ([0, 1, 3], [0, 1, 2])


def test_at_most_64_threats_are_tried_once_an_attack_is_found():
    """The first threats need two members, although each of their rows needs one; another one needs one member."""
    spread, calls = disjoint(4), []
    two, one = a_threat([1, 1], np.eye(2, 4)), a_threat([1], np.ones((1, 4)))
    for before, found in ((0, 1), (63, 1), (64, 2), (80, 2)):
        calls.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(base, "search", noting(base.search, calls))
            best = base.smallest(iter([two] * before + [one] * 2), spread, 0)
        assert len(best[1]) == found
        assert len(calls) == (65 if before else 1)
    # Member 0 counts once, even if both of its buckets are taken: what no attack meets is tried until one is found.
    spread, never = Spread.from_any([[0], [0], [1], [2]], 3), a_threat([2], [[1, 0, 0]])
    assert base.separate_bound(never, spread.reach) == 2
    both = a_threat([2], [[0, 1, 1]])
    assert base.smallest(iter([never] * 70 + [both]), spread, 0)[1].tolist() == [2, 3]
    assert base.smallest(iter([never] * 70), spread, 0) is None


@pytest.mark.parametrize("where", SPREADS)
def test_costs_for_a_target_come_from_the_search_that_fits_the_spread(where):
    """One bucket per member has a search of its own; inputs may come in blocks."""
    used, spread = [], SPREADS[where]

    class Noting(WithTargets):
        def target_disjoint(self, scores, *arguments):
            used.append("disjoint")
            return super().target_disjoint(scores, *arguments)

        def target_spread(self, scores, target, reach, budget, prediction, cost):
            used.append(budget)
            return super().target_spread(scores, target, reach, budget, prediction, cost)

    scores = np.random.default_rng(4).normal(size=(7, 5, 3))
    known = None if spread is None else Spread.from_any(spread, 5)
    rule = Noting(elections.get("plurality"))
    cost = attacks.costs_to(rule, iter([scores[:3], scores[3:]]), known, 1, 777)
    assert {*used} == ({777} if where == "overlapping" else {"disjoint", 20_000})
    expected = runoff.certify(scores, election="plurality", spread=spread)
    np.testing.assert_array_equal(cost == 0, expected.prediction == 1)
    np.testing.assert_array_equal(np.minimum(cost, expected.n_buckets + 1) - 1, expected.radius_to(1))
    scores[5, 2, 1] = np.nan
    for kind in (np.float64, np.longdouble):
        with pytest.raises(ValueError, match="got nan for input 5, member 2, class 1"):
            attacks.costs_to(rule, iter([scores[:3].astype(kind), scores[3:].astype(kind)]), known, 1, 777)


def test_elections_without_kernels_say_which_input_is_not_finite():
    own, reach, out = WithTargets(elections.get("plurality")), disjoint(5).reach, np.zeros((3, 4), np.int64)
    scores = np.random.default_rng(5).normal(size=(4, 5, 3))
    for bad, value in ((-1, 0.0), (2, np.nan), (0, -np.inf)):
        scores[max(bad, 0), 4, 1] = value
        assert own.certify_disjoint(scores, True, *out) == own.certify_spread(scores, True, reach, 9, *out) == bad
        assert own.target_disjoint(scores, 1, *out[:2]) == own.target_spread(scores, 1, reach, 9, *out[:2]) == bad


def test_attacks_that_do_not_succeed_are_not_returned():
    """What a threat promises is carried out before it is returned."""
    ballots = runoff.rank(np.array([[[3, 2, 1]] * 4 + [[1, 3, 2]] * 2 + [[1, 2, 3]]]))[0]
    rule = elections.get("plurality")
    outcome = rule.hold(ballots)
    threat = next(rule.threats_to(ballots, outcome, 1))
    members, buckets = np.array([0, 1]), np.array([0, 1])
    attack = attacks._replayed(rule, ballots, outcome, threat, members, buckets, 1)
    assert (attack.prediction, attack.how, len(attack)) == (1, "class 1 passes every other class", 2)
    assert attacks._replayed(rule, ballots, outcome, threat, members, buckets).prediction == 1
    for target, taken in ((2, members), (1, members[:0]), (None, members[:0]), (0, members[:0])):
        with pytest.raises(RuntimeError, match="the attack 'class 1 passes every other class' does not succeed"):
            attacks._replayed(rule, ballots, outcome, threat, taken, buckets, target)
    assert (ballots[0] == [2, 1, 0]).all()
    named = attack.named(np.array(["cat", "dog", "owl"]))
    assert (named.prediction, named.how) == ("dog", "class dog passes every other class")
    assert attack.named(None) is attack
    scores = np.array([[3, 2, 1]] * 4 + [[1, 3, 2]] * 2 + [[1, 2, 3]])
    after = attack.apply(scores)
    assert rule.hold(after).prediction == 1
    np.testing.assert_array_equal(after[2:], ballots[2:])
    np.testing.assert_array_equal(after[:2], attack.ballots)
    assert attack.apply(scores.tolist()).tolist() == after.tolist()
    told = "<Attack on 2 buckets reaching 2 members: predicts 1, since class 1 passes every other class>"
    assert repr(attack) == told
    assert repr(named).endswith("predicts dog, since class dog passes every other class>")
    carried = attacks.carried_out(rule, ballots, members, buckets)
    assert (carried.prediction, carried.how, carried.members is members) == (1, "class 1 passes class 0", True)
