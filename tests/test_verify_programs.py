"""The verifier's integer programs: bounds on the cost of a model, and the models of attacks, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize

from runoff import check
from runoff.verify import _programs


def model(n, least):
    """Return the program for the fewest of n columns whose sum is large enough."""
    ones = np.ones(n)
    return _programs.Model(ones, ones, np.ones(n, np.int64), ones[None], np.array([least]))


@pytest.mark.parametrize(
    ("n", "least", "radius", "expected"),
    [
        (300, 3.5, 3, (4, 4)), (300, 3.5, 9, (4, 4)), (300, 400, 3, (501, 501)),
        (301, 3.5, 3, (4, 501)), (301, 3.5, 4, (4, 4)), (301, 3.0, 2, (3, 501)), (301, 3.0, 3, (3, 3)),
        (301, 3 + 1e-9, 3, (3, 3)), (301, 400, 3, (501, 501)), (5, 0, 3, (1, 0)),
    ],
)  # fmt: skip
def test_a_program_is_solved_until_its_cost_exceeds_the_radius(n, least, radius, expected):
    """The relaxation of a large program suffices if its cost, rounded up, exceeds the radius."""
    low, high = _programs._solved(model(n, least), 500, radius)
    assert (low, high) == (expected if expected[1] else (0, 0))


@pytest.mark.parametrize(
    ("status", "bound", "x", "fun", "expected"),
    [
        (1, None, None, None, (1, 501)), (1, 2.3, None, None, (3, 501)), (1, 3 + 1e-9, None, None, (3, 501)),
        (1, 2.3, [1], 4 + 1e-9, (3, 4)), (0, 4.0, [1], 4 - 1e-9, (4, 4)), (0, 5.0, [1], 4.0, (4, 4)),
        (1, -3.0, None, None, (1, 501)), (2, None, None, None, (501, 501)),
    ],
)  # fmt: skip
def test_a_program_that_is_stopped_leaves_bounds(status, bound, x, fun, expected, monkeypatch):
    options = []

    def stopped(cost, **known):
        options.append((cost.tolist(), known["options"], known["integrality"].tolist()))
        return SimpleNamespace(status=status, mip_dual_bound=bound, x=x, fun=fun)

    monkeypatch.setattr(optimize, "milp", stopped)
    assert _programs._solved(model(3, 2.0), 500, 3) == expected
    assert options == [([1, 1, 1], {"time_limit": 10.0}, [1, 1, 1])]


def test_the_cheapest_of_several_attacks():
    assert _programs._least([], 5) == (6, 6)
    assert _programs._least([(2, 9), (3, 4)], 5) == (2, 4)
    assert _programs._least(iter([(7, 7)]), 5) == (6, 6)


def ballots(*orders):
    return [bytes(len(order) - 1 - order.index(str(c)) for c in range(len(order))) for order in orders]


def test_the_columns_and_rows_of_a_model():
    """Four members of two kinds: votes taken, votes received, and the classes that overtake the winner."""
    builder = _programs._Builder([0, 0, 0, 1], [True, True, True, False], None, 3)
    assert (builder.kinds, builder.counts, builder.n_buckets) == ([(0, True), (1, False)], [3, 1], 0)
    builder.lead(1, 0, strict=True)
    builder.beaten(0, 2)
    builder.eliminated(0)
    found = builder.model()
    assert found.cost.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert found.upper.tolist() == [3, 1, 4, 4, 4, 1, 1, 1]
    assert found.integral.tolist() == [1] * 8
    assert found.matrix.tolist() == [
        [1, 1, -1, -1, -1, 0, 0, 0],
        [1, -1, -1, 1, 0, 0, 0, 0],
        [0, 1, 0, -1, 1, 0, 0, 0],
        [2, 0, 0, 0, 0, 0, 0, 0],
        [1, -1, -1, 1, 0, 0, -10, 0],
        [1, 0, -1, 0, 1, 0, 0, -10],
        [0, 0, 0, 0, 0, 0, 1, 1],
    ]
    assert found.least.tolist() == [0, 3, 2, 3, -7, -6, 2]


def test_the_model_of_a_spread_has_a_column_for_each_bucket_and_member():
    builder = _programs._Builder([0, 1], [True, False], check.Spread([[0, 1], [1], []], 2), 2)
    builder.lead(1, 0, strict=False)
    found = builder.model()
    assert found.cost.tolist() == [1, 1, 1, 0, 0, 0, 0, 0, 0]
    assert found.upper.tolist() == [1, 1, 1, 1, 1, 2, 2, 1, 1]
    assert found.integral.tolist() == [1, 1, 1, 0, 0, 0, 0, 1, 1]
    assert found.matrix.tolist() == [
        [0, 0, 0, 1, 1, -1, -1, 0, 0],
        [1, 0, 0, -1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, -1, 0, 0, 0, 0],
        [0, 0, 0, 1, -1, -1, 1, 0, 0],
    ]
    assert found.least.tolist() == [0, 0, 0, 0]


def test_the_rows_of_a_model_of_duels():
    """One row for each pair: no more members count for it than are taken; and two for the duels that must be won."""
    kinds = np.array([[0, 1, 1], [0, 1, 1], [1, 0, 0]])  # of members, for the pairs (1, 0), (1, 2) and (0, 1)
    found = _programs._duel_model(kinds, [(1, 0), (1, 2), (0, 1)], strict=True, spread=None)
    assert found.cost.tolist() == found.integral.tolist() == [1, 1, 0, 0, 0]
    assert found.upper.tolist() == [2, 1, 3, 3, 3]
    assert found.matrix.tolist() == [
        [1, 1, -1, 0, 0],
        [-1, -1, 1, 0, 1],
        [1, -1, 1, 0, -1],
        [1, 1, 0, -1, 0],
        [0, 0, 0, 1, -1],
        [1, 1, 0, 0, -1],
    ]
    assert found.least.tolist() == [0, 0, 2, 0, 1, 0]
    spread = check.Spread([[0, 1], [2]], 3)
    found = _programs._duel_model(kinds, [(1, 0), (1, 2), (0, 1)], strict=False, spread=spread)
    assert found.cost.tolist() == found.integral.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]
    assert found.upper.tolist() == [1, 1, 1, 1, 1, 3, 3, 3]
    assert found.matrix[:5].tolist() == [
        [1, 0, -1, 0, 0, 0, 0, 0],
        [1, 0, 0, -1, 0, 0, 0, 0],
        [0, 1, 0, 0, -1, 0, 0, 0],
        [0, 0, 1, 1, 1, -1, 0, 0],
        [0, 0, -1, -1, -1, 1, 0, 1],
    ]
    assert found.least.tolist() == [0, 0, 0, 0, 0, 1, 0, 0, 0]


def test_the_last_duel_may_be_that_of_any_pair():
    kinds = np.array([[1, 1, 0], [0, 0, 1]])  # of members, for the pairs (0, 1), (0, 2) and (2, 0)
    found = _programs._duel_model(kinds, [(0, 1), (0, 2), (2, 0)], strict=False, spread=None)
    assert found.upper.tolist() == [1, 1, 2, 2, 2]  # members by kind: those of class 2 first
    assert found.matrix.tolist() == [
        [1, 1, -1, 0, 0],
        [1, -1, 1, 0, -1],
        [1, 1, 0, -1, 0],
        [-1, -1, 0, 1, 1],
        [1, -1, 0, 1, -1],
        [1, 1, 0, 0, -1],
    ]
    assert found.least.tolist() == [0, 0, 0, 0, 0, 0]


def test_programs_for_more_than_a_few_members(monkeypatch):
    """What is cheap is not solved: classes that cannot overtake, and duels that are too far apart."""
    rows = ballots(*["0123"] * 70, *["1023"] * 20, *["2013"] * 9, "3012")
    spread = check.Spread([[j, (j + 1) % 100] for j in range(100)], 100)
    solved, solve = [], _programs._solved
    monkeypatch.setattr(_programs, "_solved", lambda m, n, r: solved.append(len(m.cost)) or solve(m, n, r))
    for election, reach, radius, expected, most in (
        ("plurality", None, 30, (26, 26), 3), ("plurality", spread, 30, (13, 13), 3), ("runoff", None, 31, (31, 31), 4),
        ("maximin", None, 2, (31, 101), 0), ("maximin", spread, 2, (16, 101), 0),
    ):  # fmt: skip
        solved.clear()
        assert _programs.by_programming(election, rows, reach, radius) == expected
        assert len(solved) == most
