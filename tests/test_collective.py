"""Collective certificates: compared with every attack on small cases, and each part of the proof separately."""

import json
import time
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runoff
from helpers import run
from helpers import scores as some_scores
from reference import RULES, ballots_of, true_cost
from runoff import elections
from runoff._kernels import majorants
from runoff.certificates import certified_accuracy
from runoff.collective import _bound, _contested, _search, _semidefinite
from runoff.errors import InputError
from runoff.scores import n_threads
from runoff.spreads import cyclic


@st.composite
def cases(draw, most_members=5):
    """Return scores, labels and a spread or None, small enough for every attack and every ballot."""
    n, k, c = draw(st.integers(1, 4)), draw(st.integers(1, most_members)), draw(st.integers(2, 3))
    values = draw(st.lists(st.integers(0, 3), min_size=n * k * c, max_size=n * k * c))
    labels = draw(st.lists(st.integers(0, c - 1), min_size=n, max_size=n))
    bucket = st.lists(st.integers(0, k - 1), max_size=2, unique=True)
    spread = draw(st.none() | st.lists(bucket, min_size=1, max_size=5))
    return np.array(values, float).reshape(n, k, c), np.array(labels), spread


def left_by_the_worst(election, scores, labels, spread, size):
    """Return the smallest number of inputs that any attack leaves correct, by trying all of them."""
    buckets = [[j] for j in range(scores.shape[1])] if spread is None else spread
    ballots = [ballots_of(row) for row in scores]
    least = len(labels)
    for taken in combinations(buckets, min(size, len(buckets))):
        members = sorted({j for bucket in taken for j in bucket})
        correct = 0
        for own, label in zip(ballots, labels, strict=True):
            # Join all taken members in one bucket: can its takeover change the prediction?
            one = [members]
            correct += RULES[election](own)[0] == label and true_cost(election, own, one, sensible=True) > 1
        least = min(least, correct)
    return least


@pytest.mark.parametrize("election", list(RULES))
@settings(deadline=None, max_examples=15)
@given(case=cases())
def test_it_is_exact_where_all_attacks_can_be_tried(election, case):
    scores, labels, spread = case
    n_buckets = scores.shape[1] if spread is None else len(spread)
    certificates = runoff.certify(scores, election=election, spread=spread)
    budgets = range(n_buckets + 2)
    truth = [left_by_the_worst(election, scores, labels, spread, b) / len(labels) for b in budgets]
    np.testing.assert_array_equal(runoff.collective_accuracy(certificates, labels, budgets), truth)
    assert (certified_accuracy(certificates, labels, budgets) <= truth).all()
    for budget in budgets:
        attack = runoff.collective_attack(certificates, labels, budget)
        assert attack.exact
        assert attack.accuracy == truth[budget]
        for i in attack.flipped:
            single = attack.on(int(i))
            assert ((single.prediction != labels[i]), labels[i]) == (True, certificates.prediction[i])
            again = runoff.certify(single.apply(scores[i])[None], election=election).prediction[0]
            assert again == single.prediction


def relaxed(certificates, labels, budget, rounds=3):
    """Return the bound of the relaxation, which is not computed for small cases."""
    correct = certificates.prediction == labels
    contested = _contested(certificates, correct, budget, None)
    return correct.sum() - _bound.most_flipped(contested, budget, rounds)


@pytest.mark.parametrize(
    ("election", "offsets"), [("plurality", None), ("runoff", None), ("maximin", None), ("runoff", [0, 1, 4])]
)
def test_the_relaxation_is_never_above_the_truth_and_helps(election, offsets):
    scores, labels = some_scores(100, 12, 4)
    spread = None if offsets is None else cyclic(12, offsets)
    certificates = runoff.certify(scores, election=election, spread=spread)
    pointwise = [round(a * 100) for a in certified_accuracy(certificates, labels, range(5))]
    gained = 0
    for budget in (2, 4):
        truth = round(runoff.collective_attack(certificates, labels, budget).accuracy * 100)
        bound = relaxed(certificates, labels, budget)
        assert pointwise[budget] <= bound <= truth
        gained += bound - pointwise[budget]
    assert gained > 3 or offsets is not None  # for a spread, members that several buckets reach count twice


@settings(deadline=None, max_examples=15)
@given(case=cases(), data=st.data())
def test_small_relaxations_are_sound(case, data):
    scores, labels, spread = case
    election = data.draw(st.sampled_from(list(RULES)))
    certificates = runoff.certify(scores, election=election, spread=spread)
    for budget in {1, max(1, certificates.n_buckets // 2)}:
        attack = runoff.collective_attack(certificates, labels, budget)
        assert relaxed(certificates, labels, budget) <= round(attack.accuracy * len(labels))


@pytest.mark.parametrize(("election", "offsets"), [("plurality", None), ("runoff", None), ("runoff", [0, 2])])
def test_functions_are_above_the_indicator_of_every_attack(election, offsets):
    """For every attack, the sum of all functions is at least the number of flipped inputs, in integers."""
    scores, labels = some_scores(60, 9, 4, seed=3)
    certificates = runoff.certify(scores, election=election, spread=None if offsets is None else cyclic(9, offsets))
    for edits in (2, 4):
        contested = _contested(certificates, certificates.prediction == labels, edits, None)
        cells = _bound.describe(contested, edits)
        attacks = np.array([np.isin(np.arange(9), taken) for taken in combinations(range(9), edits)])
        flips = contested.flips(attacks)
        uniform = _semidefinite.uniform(9, edits)
        single = np.outer(np.append(1, attacks[5]), np.append(1, attacks[5]))
        for moments in (uniform, 0.7 * uniform + 0.3 * single, single.astype(float)):
            for i in range(len(contested)):
                form = np.zeros((10, 10), np.int64)
                value = majorants.fit_all(*cells, i, i + 1, edits, moments, form)
                z = np.concatenate([np.ones((len(attacks), 1), np.int64), attacks.astype(np.int64)], axis=1)
                above = ((z @ form) * z).sum(axis=1)
                assert (above >= 2 * majorants.UNIT * flips[:, i]).all()
                assert value <= 1 + 1e-9
                assert (moments * form).sum() / 2 / majorants.UNIT == pytest.approx(value, abs=1e-6)


def test_one_function_per_input_is_as_small_as_a_linear_programme_finds():
    from scipy.optimize import linprog

    scores, labels = some_scores(40, 15, 3, seed=5)
    certificates = runoff.certify(scores, election="plurality")
    edits, n = 5, 15
    contested = _contested(certificates, certificates.prediction == labels, edits, None)
    cells = _bound.describe(contested, edits)
    moments = _semidefinite.uniform(n, edits)
    for i in range(len(contested)):
        value = majorants.fit_all(*cells, i, i + 1, edits, moments, np.zeros((n + 1, n + 1), np.int64))
        here = np.array(
            [p for p in product(range(edits + 1), repeat=4) if sum(p) == edits and (p <= cells.sizes[i]).all()], float
        )
        member = np.eye(4)[cells.group[i]]
        mean, square = member.T @ moments[0, 1:], member.T @ moments[1:, 1:] @ member
        pairs = [(g, h) for g in range(3) for h in range(g, 3)]
        columns = [np.ones(len(here)), *here[:, :3].T, *(here[:, g] * here[:, h] for g, h in pairs)]
        target = [1, *mean[:3], *(square[g, h] for g, h in pairs)]
        marks = cells.marks[cells.marks_at[i] : cells.marks_at[i + 1]]
        best = linprog(target, A_ub=-np.array(columns).T, b_ub=-marks.astype(float), bounds=(None, None)).fun
        assert value == pytest.approx(best, abs=1e-4)


@given(st.integers(2, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1), st.integers(0, 2**32 - 1))))
@settings(deadline=None, max_examples=25)
def test_no_set_of_buckets_exceeds_what_is_proven(case):
    n, edits, seed = case
    form = np.random.default_rng(seed).integers(-50, 51, (n + 1, n + 1)).astype(object)
    form = form + form.T
    unit = 2**20
    best = _semidefinite.relax([[form.astype(float)]], edits, 0.01)
    proven = _semidefinite.prove(form * unit, edits, best.multipliers, best.value, unit)
    z = [np.array([1, *(b in taken for b in range(n))]) for taken in combinations(range(n), edits)]
    largest = max(v @ form @ v for v in z)
    assert proven is not None
    assert largest <= proven / unit <= best.value + 0.1
    if edits == 1:
        assert proven / unit <= largest + 0.1  # z has no products of two buckets: the bound is exact
    # Wrong multipliers and a value that is too low prove nothing false.
    for multipliers, value in ((best.multipliers * 0.5, largest - 40.0), (best.multipliers, largest - 1.0)):
        wrong = _semidefinite.prove(form * unit, edits, multipliers, value, unit)
        assert wrong is None or wrong >= largest * unit


@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.integers(0, 3))
@settings(deadline=None, max_examples=100)
def test_only_matrices_without_negative_directions_are_proven(size, seed, kind):
    draws = np.random.default_rng(seed)
    root = draws.integers(-9, 10, (size, size)).astype(object) * 10 ** int(draws.integers(0, 12))
    matrix = root @ root.T
    if kind:
        matrix = matrix + np.diag([int(v) for v in draws.integers(-30, 30, size)]).astype(object) * 10 ** (kind * 4)
    if _semidefinite._is_proven(matrix):
        # Sylvester, exactly: all principal minors of a positive semidefinite matrix are at least 0.
        for m in range(1, size + 1):
            for rows in combinations(range(size), m):
                assert determinant([[Fraction(int(matrix[a, b])) for b in rows] for a in rows]) >= 0


def determinant(rows):
    if not rows:
        return Fraction(1)
    pivot = next((r for r in rows if r[0]), None)
    if pivot is None:
        return Fraction(0)
    sign = -1 if rows.index(pivot) % 2 else 1
    rest = [r for r in rows if r is not pivot]
    return (
        sign
        * pivot[0]
        * determinant([[v - r[0] / pivot[0] * p for v, p in zip(r, pivot, strict=True)][1:] for r in rest])
    )


def test_clearly_positive_matrices_are_proven():
    matrix = np.array([[int(v) for v in row] for row in (10**20 * np.eye(4))], object)
    assert _semidefinite._is_proven(matrix + 10**10)
    assert not _semidefinite._is_proven(-matrix)
    assert not _semidefinite._is_proven(matrix - 10**20)


def test_a_larger_case_lies_between_both_sides():
    scores, labels = some_scores(300, 30, 5, seed=2)
    for election in ("plurality", "runoff"):
        certificates = runoff.certify(scores, election=election)
        budgets = [0, 2, 8, 12]
        pointwise = certified_accuracy(certificates, labels, budgets)
        together = runoff.collective_accuracy(certificates, labels, budgets, rounds=3)
        attacked = [runoff.collective_attack(certificates, labels, b, starts=2).accuracy for b in budgets]
        assert (pointwise <= together).all()
        assert (together <= attacked).all()
        assert together[0] == pointwise[0]
        assert together[2] > pointwise[2] + 0.01
        assert (np.diff(together) <= 0).all()
        # Selections, labels and iterators give the same.
        some = certificates[::-1]
        np.testing.assert_array_equal(runoff.collective_accuracy(some, labels[::-1], [2]), together[1:2])
        streamed = runoff.certify(iter(np.array_split(scores, 3)), election=election)
        with pytest.raises(InputError, match="were made from an iterator"):
            runoff.collective_accuracy(streamed, labels, [2])
        again = runoff.collective_accuracy(streamed, labels, [2], scores=iter(np.array_split(scores, 7)))
        np.testing.assert_array_equal(again, together[1:2])
        named = certificates.named(np.array(list("abcde")))
        np.testing.assert_array_equal(
            runoff.collective_accuracy(named, np.array(list("abcde"))[labels], [2]), together[1:2]
        )


def test_time_and_rounds_limit_the_work_and_never_the_soundness():
    scores, labels = some_scores(200, 30, 4, seed=4)
    certificates = runoff.certify(scores)
    pointwise = certified_accuracy(certificates, labels, [10])
    full = runoff.collective_accuracy(certificates, labels, [10], rounds=6)
    np.testing.assert_array_equal(runoff.collective_accuracy(certificates, labels, [10], time_limit=0), pointwise)
    np.testing.assert_array_equal(runoff.collective_accuracy(certificates, labels, [10], rounds=0), pointwise)
    first = runoff.collective_accuracy(certificates, labels, [10], time_limit=1e-3)
    assert pointwise <= first
    assert first <= full
    assert pointwise + 0.02 < full


class Ticks:
    """A clock that moves on by 1 whenever somebody looks at it."""

    def __init__(self):
        self.now = 0

    def monotonic(self):
        self.now += 1
        return float(self.now)


@pytest.mark.parametrize(("election", "offsets"), [("plurality", None), ("runoff", None), ("runoff", [0, 1, 4])])
def test_whenever_the_time_is_up_the_result_is_proven(election, offsets, monkeypatch):
    """The clock stops the work at every place in turn, with fine steps at first and coarser ones later."""
    scores, labels = some_scores(60, 13, 4, seed=11)
    certificates = runoff.certify(scores, election=election, spread=None if offsets is None else cyclic(13, offsets))
    budgets = [2, 4, 5]
    pointwise = certified_accuracy(certificates, labels, budgets)
    truth = [runoff.collective_attack(certificates, labels, b, starts=4).accuracy for b in budgets]
    monkeypatch.setattr(_search, "ALL", 40_000)  # too few for all attacks of the larger budgets
    seen = set()
    for limit in [*range(0, 60, 7), *range(60, 1500, 97), 4000, 10**6]:
        clock = Ticks()
        monkeypatch.setattr("time.monotonic", clock.monotonic)
        found = runoff.collective_accuracy(certificates, labels, budgets, rounds=3, time_limit=limit)
        monkeypatch.undo()
        monkeypatch.setattr(_search, "ALL", 40_000)
        assert (pointwise <= found).all()
        assert (found <= truth).all()
        assert clock.now < limit + 20 or limit == 10**6
        seen.add(tuple(found))
    assert len(seen) > 1 or offsets is not None


def test_the_time_limit_holds_in_long_steps():
    """One step of this size took 20 seconds: each round's programme alone, with 200 buckets, takes several."""
    scores, labels = some_scores(1200, 200, 3, seed=12)
    certificates = runoff.certify(scores, election="plurality")
    runoff.collective_accuracy(certificates[:40], labels[:40], [60], rounds=1)  # compiles kernels
    for limit in (0.2, 1.5):
        began = time.process_time()  # of all threads: other programs can delay this one, but not add to it
        runoff.collective_accuracy(certificates, labels, [60, 50], time_limit=limit)
        assert time.process_time() - began < (limit + 1) * n_threads()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@given(
    seed=st.integers(0, 2**32 - 1),
    weights=st.lists(st.floats(-1, 2) | st.sampled_from([0.0, np.nan, np.inf, 1e308, 5e-324]), min_size=2, max_size=2),
    spoilt=st.sampled_from([None, np.nan, np.inf, -1e300, 1e300]),
    edits=st.integers(1, 4),
)
@settings(deadline=None, max_examples=30)
def test_whatever_the_solver_returns_nothing_false_is_proven(seed, weights, spoilt, edits):
    """Weights, multipliers and values only steer the proof, whose sums are in integers."""
    scores, labels = some_scores(14, 6, 3, seed=seed)
    certificates = runoff.certify(scores, election="plurality")
    contested = _contested(certificates, certificates.prediction == labels, edits, None)
    if len(contested) < 2:
        return
    attacks = np.array([np.isin(np.arange(6), taken) for taken in combinations(range(6), edits)])
    truth = contested.count(attacks).max()
    forms = [_bound._constant(6, len(contested)), np.zeros((7, 7), np.int64)]
    moments = _semidefinite.uniform(6, edits)
    majorants.fit_all(*_bound.describe(contested, edits), 0, len(contested), edits, moments, forms[1])
    relaxed = _semidefinite.Relaxed(0.0, np.zeros(6), [np.array(weights)], moments)
    assert truth <= _bound._proven([forms], relaxed, edits, len(contested))
    unit = 2 * majorants.UNIT
    best = _semidefinite.relax([[forms[1] / unit]], edits, 0.1)
    d = best.multipliers.copy()
    if spoilt is not None:
        d[seed % 6] = spoilt
    for value in (best.value, truth - 1.0, -1e6, np.nan, np.inf):
        proven = _semidefinite.prove(forms[1].astype(object), edits, d, value, unit)
        assert proven is None or proven >= truth * unit


@given(
    size=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    digits=st.integers(0, 40),
    kind=st.sampled_from(["any", "lopsided", "nearly singular", "one entry"]),
)
@settings(deadline=None, max_examples=150)
def test_no_matrix_deceives_the_proof(size, seed, digits, kind):
    """Matrices of huge, tiny, unbalanced and asymmetric entries, against exact arithmetic."""
    draws = np.random.default_rng(seed)
    root = draws.integers(-3, 4, (size, size)).astype(object) * 10**digits
    matrix = root @ root.T
    if kind == "any":
        matrix = draws.integers(-5, 6, (size, size)).astype(object) * 10**digits
        matrix = (
            matrix if seed % 3 == 0 else matrix + matrix.T + 7 * 10**digits * np.eye(size, dtype=int).astype(object)
        )
    elif kind == "lopsided":
        scale = np.array([10 ** int(e) for e in draws.integers(0, 15, size)], object)
        matrix = (matrix + np.diag([int(v) for v in draws.integers(-2, 3, size)])) * scale * scale[:, None]
    elif kind == "nearly singular":
        matrix = matrix + np.diag([int(v) for v in draws.integers(-1, 2, size)])
    else:
        matrix[0, size - 1] += int(draws.integers(-1, 2))
    if _semidefinite._is_proven(matrix):
        assert (matrix == matrix.T).all()
        for m in range(1, size + 1):
            for rows in combinations(range(size), m):
                assert determinant([[Fraction(int(matrix[a, b])) for b in rows] for a in rows]) >= 0


def test_an_attack_is_the_best_of_all_where_they_are_few():
    scores, labels = some_scores(80, 11, 3, seed=6)
    certificates = runoff.certify(scores, election="plurality")
    contested = _contested(certificates, certificates.prediction == labels, 4, None)
    every = np.array([np.isin(np.arange(11), taken) for taken in combinations(range(11), 4)])
    best = contested.count(every).max()
    for found in (_search.best_of_all(contested, 4), _search.best_found(contested, 4)):
        assert contested.count(np.isin(np.arange(11), found)[None])[0] == best


def test_bad_input_is_refused_in_one_sentence():
    scores, labels = some_scores(5, 6, 3)
    certificates = runoff.certify(scores)
    for call, message in (
        (lambda: runoff.collective_accuracy(certificates, labels, [-1]), "budgets must be non-negative integers"),
        (lambda: runoff.collective_accuracy(certificates, labels[:2], [1]), "one label for each of 5 inputs"),
        (
            lambda: runoff.collective_accuracy(certificates, labels, [1], rounds=-1),
            "rounds must be a whole number of at least 0",
        ),
        (lambda: runoff.collective_accuracy(certificates, labels, [1], time_limit=-1), "time_limit must be a number"),
        (lambda: runoff.collective_accuracy(certificates, labels, [1], time_limit="5"), "time_limit must be a number"),
        (lambda: runoff.collective_attack(certificates, labels, [1, 2]), "edits must be one non-negative integer"),
        (
            lambda: runoff.collective_attack(certificates, labels, 2, starts=0),
            "starts must be a whole number of at least 1",
        ),
        (lambda: runoff.collective_attack(certificates, labels, 2, scores=iter([])), "scores must be an array"),
        (lambda: runoff.collective_accuracy(certificates, labels, [6], scores=-scores), "prediction is now"),
        (lambda: runoff.collective_accuracy(certificates, labels, [6], scores=scores[:2]), "those of the 5 inputs"),
        (lambda: runoff.collective_accuracy(certificates, labels, [6], scores=scores[:, :2]), "must have 6 members"),
        (lambda: runoff.collective_attack(certificates, labels, 6).on(99), "the input must be one of"),
    ):
        with pytest.raises(InputError, match=message):
            call()


def test_an_election_of_ones_own_has_collective_certificates():
    scores, labels = some_scores(100, 8, 3, seed=8)

    class Named(type(elections.get("plurality"))):
        name = "mine"

    certificates = runoff.certify(scores, election=Named())
    known = runoff.certify(scores, election="plurality")
    np.testing.assert_array_equal(
        runoff.collective_accuracy(certificates, labels, range(5)), runoff.collective_accuracy(known, labels, range(5))
    )


def test_the_command_prints_a_column(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scores, labels = some_scores(60, 10, 4, seed=9)
    np.save("scores.npy", scores)
    np.save("y.npy", labels)
    given = ("certify", "scores.npy", "--labels", "y.npy", "--budgets", "3,0,2")
    found = json.loads(run(*given, "--collective", "--json").stdout)
    certificates = runoff.certify(scores)
    expected = runoff.collective_accuracy(certificates, labels, [3, 0, 2]).tolist()
    assert found["collective_accuracy"] == expected
    assert expected > found["certified_accuracy"]
    assert json.loads(run(*given, "--json").stdout)["collective_accuracy"] is None
    table = run(*given, "--collective").stdout
    assert "Collective accuracy: proven" in table
    assert f"{100 * expected[0]:.2f} %" in table
    assert "collective" not in run(*given).stdout
    limited = json.loads(run(*given, "--collective", "--time-limit", 0, "--json").stdout)
    assert limited["collective_accuracy"] == limited["certified_accuracy"]
    for words, message in (
        (("certify", "scores.npy", "--collective"), "--collective counts correct predictions, so it needs --labels"),
        ((*given, "--time-limit", 5), "--time-limit applies to --collective only"),
    ):
        result = run(*words)
        assert result.exit_code == 2
        assert message in result.stderr
