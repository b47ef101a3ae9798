"""Functions of the maximin election, one by one, against literal versions: most of their errors only cost time."""

import numpy as np
import pytest

import runoff
from reference import ballots_of, cert_fa, maximin
from runoff import spreads
from runoff._kernels.covering import UNREACHABLE
from runoff.elections import maximin as rules
from runoff.elections.overtaking import Overtaking
from test_work import as_python

NUMBERS = range(150)


def kernel(name):
    """Return a function of the kernels as Python."""
    return as_python(lambda *_: None)["runoff._kernels.maximin"][name]


def an_election(number):
    """Return scores of a few members by class, their ballots, all duels, and the two best classes."""
    rng = np.random.default_rng([13, number])
    m, c = int(rng.integers(2, 12)), int(rng.integers(2, 7))
    scores = rng.integers(0, 6, (m, c)) + rng.integers(0, 4, c)
    order = ballots_of(scores)
    duels = np.array([[sum(b.index(a) < b.index(u) for b in order) for u in range(c)] for a in range(c)], np.int32)
    return np.ascontiguousarray(scores.T), order, duels, *maximin(order)


def worst_of(duels):
    """Return m of each class."""
    return np.array([min(np.delete(row, a)) for a, row in enumerate(duels)], np.int32)


def power_of(order, w, b, a, c):
    """Return the power of each member on the row of class a: it can lower M[w, b], and raise M[c, a]."""
    return [(ballot.index(w) < ballot.index(b)) + (ballot.index(a) < ballot.index(c)) for ballot in order]


def test_scores_by_class_are_those_of_each_member():
    by_class = kernel("_by_class")
    row = np.random.default_rng(0).normal(size=(5, 3))
    columns = np.empty((3, 5))
    assert by_class(row, columns) is True
    np.testing.assert_array_equal(columns, row.T)
    for bad in (np.nan, np.inf, -np.inf):
        for at in ((0, 0), (4, 2), (2, 1)):
            broken = row.copy()
            broken[at] = bad
            with np.errstate(invalid="ignore"):
                assert not by_class(broken, columns)


def test_duels_and_preferences_are_those_of_the_ballots():
    add_preferences, count_duels = kernel("_add_preferences"), kernel("_count_duels")
    for number in NUMBERS:
        columns, order, duels, *_ = an_election(number)
        n_classes, m = columns.shape
        found, worst = np.full((n_classes, n_classes), -1, np.int32), np.full(n_classes, m, np.int32)
        known = np.zeros(n_classes, np.bool_)
        for done, a in enumerate(np.random.default_rng(number).permutation(n_classes), 1):
            count_duels(columns, int(a), found, worst, known)
            assert known[a]
            assert known.sum() == done
            compared = known[:, None] | known
            np.fill_diagonal(compared, False)
            np.testing.assert_array_equal(found[compared], duels[compared])
            assert (np.diag(found) == -1).all()
            np.testing.assert_array_equal(worst, [min([m, *duels[u][compared[u]]]) for u in range(n_classes)])
        np.testing.assert_array_equal(worst, worst_of(duels))
        out = np.full(m, 5, np.int32)
        a, b = (int(u) for u in np.random.default_rng(number).permutation(n_classes)[:2])
        add_preferences(columns, a, b, out)
        assert out.tolist() == [5 + (ballot.index(a) < ballot.index(b)) for ballot in order]


def test_leaders_are_the_two_best_classes_and_few_duels_are_counted():
    leaders = kernel("_leaders")
    for number in NUMBERS:
        columns, _, duels, w, s = an_election(number)
        n_classes = len(columns)
        found, worst = np.full((n_classes, n_classes), -1, np.int32), np.full(n_classes, -1, np.int32)
        known = np.ones(n_classes, np.bool_)  # left over from the input before
        assert leaders(columns, found, worst, known) == (w, s)
        truth = worst_of(duels)
        assert (worst >= truth).all()
        np.testing.assert_array_equal(worst[known], truth[known])
        assert known[[w, s]].all()


def test_the_bound_is_that_of_the_largest_row_of_the_cheapest_threat():
    bound, leaders = kernel("_bound"), kernel("_leaders")
    for number in NUMBERS:
        columns, order, duels, w, s = an_election(number)
        (n_classes, m), rng = columns.shape, np.random.default_rng(number)
        lists = [rng.choice(m, size, replace=False).tolist() for size in rng.integers(0, min(m, 4) + 1, m)]
        lists = spreads.cyclic(m, rng.permutation(m)[: 1 + number % 2]).tolist() if number % 3 else lists
        reach = spreads.Spread.from_any(lists, m).reach
        costs = {}
        for c in (c for c in range(n_classes) if c != w):
            a = min((u for u in range(n_classes) if u != c), key=lambda u, c=c: duels[c, u])
            for b in (b for b in range(n_classes) if b != w):
                power = power_of(order, w, b, a, c)
                costs[c, b] = cert_fa(
                    [sum(power[j] for j in bucket) for bucket in lists], duels[w, b] - duels[c, a] + (c > w)
                )
        found, worst = np.zeros((n_classes, n_classes), np.int32), np.zeros(n_classes, np.int32)
        known = np.zeros(n_classes, np.bool_)
        assert leaders(columns, found, worst, known) == (w, s)
        bounds, power, sums = np.zeros_like(found), np.zeros(m, np.int32), np.zeros(m, np.int32)
        tally = np.zeros(2 * max(1, reach.largest) + 1, np.int32)
        best = bound(columns, found, worst, known, w, s, reach, bounds, power, sums, tally)
        assert best == min(UNREACHABLE, *costs.values())
        for c, b in costs:
            if known[c]:
                assert bounds[c, b] <= min(UNREACHABLE, costs[c, b])
                assert bounds[c, b] >= min(costs[c, b], best)


def test_a_class_is_at_least_as_far_away_as_the_worst_duels_say():
    least_bound = kernel("_least_bound")
    worst = np.array([7, 5, 7, 2], np.int32)
    pairs = [(0, 1), (0, 2), (2, 0), (0, 3), (2, 3), (2, 1)]
    for most, expected in ((1, [3, 1, 0, 6, 6, 2]), (2, [2, 1, 0, 3, 3, 1]), (4, [1, 1, 0, 2, 2, 1])):
        assert [least_bound(worst, w, c, most) for w, c in pairs] == expected


def test_rows_are_those_with_the_largest_gaps_and_their_sum():
    limiting_gap, rows = kernel("_limiting_gap"), kernel("_rows")
    for number in NUMBERS:
        columns, order, duels, w, _ = an_election(number)
        n_classes, m = columns.shape
        rng = np.random.default_rng(number)
        c, b = (int(rng.choice([u for u in range(n_classes) if u != w])) for _ in range(2))
        all_gaps = {a: int(duels[w, b] - duels[c, a] + (c > w)) for a in range(n_classes) if a != c}
        for limit in range(1, n_classes + 1):
            falling = sorted(all_gaps.values(), reverse=True)
            least = max(1, falling[limit - 1]) if limit <= len(falling) else 1
            assert limiting_gap(duels, w, c, b, limit) == least
            kept = [a for a, gap in all_gaps.items() if gap >= least][:limit]
            gaps, powers = np.full(n_classes + 1, -1, np.int32), np.full((n_classes + 1, m), -1, np.int32)
            n_rows = rows(columns, duels, w, c, b, limit, gaps, powers)
            assert n_rows == len(kept) + (len(kept) > 1)
            expected = [power_of(order, w, b, a, c) for a in kept]
            assert gaps[: len(kept)].tolist() == [all_gaps[a] for a in kept]
            assert powers[: len(kept)].tolist() == expected
            if len(kept) > 1:
                assert gaps[len(kept)] == sum(all_gaps[a] for a in kept)
                assert powers[len(kept)].tolist() == np.sum(expected, axis=0).tolist()
            assert (gaps[n_rows:] == -1).all()


@pytest.mark.parametrize("part", range(2))
def test_the_members_with_the_largest_sums_suffice_or_do_not(part):
    """Of members with equal sums the first are taken."""
    suffice = kernel("_suffice")
    answers = []
    for number in range(part, 600, 2):
        rng = np.random.default_rng([14, number])
        m, rows = int(rng.integers(1, 10)), int(rng.integers(1, 5))
        powers = rng.integers(0, 3, (rows, m)).astype(np.int32)
        if rows > 1:
            powers[-1] = powers[:-1].sum(axis=0)
        size = int(rng.integers(0, m + 1))
        taken = sorted(range(m), key=lambda j, powers=powers: (-powers[-1, j], j))[:size]
        gaps = (powers[:, taken].sum(axis=1) + rng.choice([0, 0, 0, 0, 1], rows)).astype(np.int32)
        gaps -= rng.integers(0, 2, rows).astype(np.int32)
        expected = bool((powers[:, taken].sum(axis=1) >= gaps).all())
        tally = np.full(2 * max(1, rows) + 1, 9, np.int32)
        answer = suffice(gaps, powers, size, tally)
        assert answer is expected
        answers.append(answer)
    assert 50 < sum(answers) < 250


def test_attacks_with_a_target_are_searched_for_up_to_all_buckets(monkeypatch):
    """Three unanimous members: two must be taken over, and ties go to class 0."""
    noted = []

    class Noting(Overtaking):
        def search(self, size, bound, reach, budget):
            noted.append((size, budget))
            return super().search(size, bound, reach, budget)

        def cost(self, reach, budget):
            noted.append(budget)
            return super().cost(reach, budget)

    monkeypatch.setattr(rules, "Overtaking", Noting)
    scores, rule, out = np.array([[[1, 2, 0]] * 3]), rules.ELECTION, np.zeros((2, 1), np.int64)
    assert rule.target_disjoint(scores, 0, *out) == -1
    assert (out.tolist(), noted[0]) == ([[1], [2]], 2000)
    ballots = runoff.rank(scores)[0]
    outcome = rule.hold(ballots)
    for n_buckets, cost, sizes in ((1, 1, [1]), (2, 1, [1, 2]), (2, 2, [2]), (3, 1, [1, 2])):
        noted.clear()
        spread = spreads.Spread.from_any([[j] for j in range(n_buckets)], 3)
        found = rule.smallest_to(ballots, outcome, 0, spread, cost)
        assert noted == [(size, 2000 + n_buckets) for size in sizes]
        assert (found is None) == (n_buckets == 1)
        assert found is None or found[1].tolist() == [0, 1]
