"""Fast kernels against slow, literal versions, on elections too large for the exhaustive adversary."""

from math import ceil, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import runoff
from reference import IN_PAPER, RULES, ballots_of, dp, paper_certificate
from runoff import elections, spreads
from runoff._kernels.runoff import elimination_cost
from runoff.ballots import readable
from runoff.elections.base import Election

ELECTIONS = sorted(RULES)


@st.composite
def ensembles(draw, n_members=(2, 40), n_classes=(2, 9)):
    """Draw a few inputs whose members mostly agree, so that classes with many, few and no votes occur."""
    m, c = draw(st.integers(*n_members)), draw(st.integers(*n_classes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    agreement = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0]))
    levels = draw(st.sampled_from([2, 5, 1000]))  # few levels: ties in scores
    noise = rng.normal(size=(4, m, c)) + agreement * rng.normal(size=(4, 1, c))
    return np.round(noise * levels).astype(np.float32)


@st.composite
def spreads_for(draw, n_members):
    """Cyclic, random or ragged."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["cyclic", "random", "ragged"]))
    d = draw(st.integers(1, min(6, n_members)))
    if kind == "cyclic":
        return spreads.cyclic(n_members, rng.permutation(n_members)[:d]).tolist()
    n_buckets = draw(st.integers(1, 2 * n_members))
    sizes = np.full(n_buckets, d) if kind == "random" else rng.integers(0, d + 1, n_buckets)
    return [rng.choice(n_members, size, replace=False).tolist() for size in sizes]


def test_the_table_of_lemma_36_has_a_closed_form():
    for i in range(80):
        for j in range(80):
            assert elimination_cost(i, j) == dp(i, j) == max(ceil(i / 2), ceil(j / 2), ceil((i + j) / 3))


@pytest.mark.parametrize("election", IN_PAPER)
@given(scores=ensembles())
def test_paper_bound_one_bucket_per_member(election, scores):
    certificates = runoff.certify(scores, election=election, bound="paper")
    for i, row in enumerate(scores):
        ballots = ballots_of(row)
        assert (certificates.prediction[i], certificates.runner_up[i]) == RULES[election](ballots)
        assert certificates.radius[i] == paper_certificate(election, ballots) - 1


@pytest.mark.parametrize("election", IN_PAPER)
@given(data=st.data(), scores=ensembles())
def test_paper_bound_any_spread(election, data, scores):
    spread = data.draw(spreads_for(scores.shape[1]))
    certificates = runoff.certify(scores, election=election, spread=spread, bound="paper")
    for i, row in enumerate(scores):
        cost = paper_certificate(election, ballots_of(row), spread)
        assert certificates.radius[i] == (len(spread) if cost == inf else cost - 1)


@pytest.mark.parametrize("election", ELECTIONS)
@given(data=st.data(), scores=ensembles(n_members=(2, 16), n_classes=(2, 5)))
def test_compiled_bounds_are_those_that_follow_from_the_threats(election, data, scores):
    """The base class uses only `hold` and `threats`: kernels must not certify more, and attacks lie in between."""
    spread = data.draw(st.none() | spreads_for(scores.shape[1]))
    rule = elections.get(election)
    tight = runoff.certify(scores, election=election, spread=spread)
    slow = runoff.certify(scores, election=FromThreats(rule), spread=spread)
    np.testing.assert_array_equal(tight.prediction, slow.prediction)
    np.testing.assert_array_equal(tight.runner_up, slow.runner_up)
    if spread is None or election == "plurality":
        np.testing.assert_array_equal(tight.radius, slow.radius)
    assert (tight.radius <= slow.radius).all()  # it searches longer, and over every rival
    for i in range(len(tight)):
        attack = tight.attack(i)
        if attack is None:
            assert slow.radius[i] == tight.radius[i] == len(spread)
        else:
            assert len(attack) > slow.radius[i]


class FromThreats(Election):
    """An election without kernels, as a new contributor writes it."""

    name = "from-threats"

    def __init__(self, rule):
        self.rule = rule

    def hold(self, ballots):
        return self.rule.hold(ballots)

    def threats(self, ballots, outcome):
        return self.rule.threats(ballots, outcome)


def test_an_election_of_ones_own_needs_only_a_winner_and_threats():
    scores = np.random.default_rng(0).normal(size=(6, 9, 4))
    own = FromThreats(elections.get("runoff"))
    certificates = runoff.certify(scores, election=own)
    np.testing.assert_array_equal(certificates.radius, runoff.certify(scores).radius)
    assert all(len(certificates.attack(i)) == certificates.radius[i] + 1 for i in range(6))
    with pytest.raises(ValueError, match=r"bound='paper' needs an election of the paper, got 'from-threats'"):
        runoff.certify(scores, election=own, bound="paper")
    scores[4, 3, 2] = np.nan
    with pytest.raises(ValueError, match="got nan for input 4, member 3, class 2"):
        runoff.certify(scores, election=own)


@pytest.mark.parametrize("election", IN_PAPER)
def test_a_large_spread_is_bracketed_by_its_attacks(election):
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(40, 240, 6)) + 1.5 * rng.normal(size=(40, 1, 6))
    spread = spreads.cyclic(240, rng.permutation(240)[:12])
    paper = runoff.certify(scores, election=election, spread=spread, bound="paper")
    tight = runoff.certify(scores, election=election, spread=spread)
    sizes = np.array([len(tight.attack(i)) for i in range(40)])
    assert (paper.radius <= tight.radius).all()
    assert (tight.radius < sizes).all()
    assert (tight.radius > paper.radius).any()
    assert (sizes == tight.radius + 1).mean() > 0.5
    np.testing.assert_array_equal(sizes, [len(paper.attack(i)) for i in range(40)])


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # where they are not compiled
@pytest.mark.parametrize("election", ELECTIONS)
def test_kernels_say_which_input_is_not_finite(election):
    rule, reach = elections.get(election), spreads.Spread.from_any([[0, 1], [2], [1, 4]], 5).reach
    scores = np.random.default_rng(0).normal(size=(6, 5, 3))
    out = np.empty((3, 6), np.int64)
    for bad in (-1, 0, 3):
        if bad >= 0:
            scores[bad, 4, 2] = np.inf if bad else np.nan
        given, results = readable(scores[max(0, bad) :]), out[:, max(0, bad) :]
        for tight in (False, True):
            assert rule.certify_disjoint(given, tight, *results) == min(bad, 0)
            assert rule.certify_spread(given, tight, reach, 200, *results) == min(bad, 0)
        scores[max(0, bad)] = 0
    scores[4, 0, 0] = -np.inf
    given = readable(scores)
    assert rule.certify_disjoint(given, True, *out) == rule.certify_spread(given, True, reach, 200, *out) == 4


@pytest.mark.parametrize("number", range(60))
def test_fixed_paper_bounds_with_spreads_of_every_kind(number):
    """Fixed cases with large buckets, so that a few examples detect many errors."""
    rng = np.random.default_rng(number)
    m, c = int(rng.integers(6, 24)), int(rng.integers(3, 7))
    scores = np.round(rng.normal(size=(6, m, c)) + rng.choice([0.3, 1, 2]) * rng.normal(size=(6, 1, c)), 1)
    d = int(rng.integers(1, 7))
    spread = spreads.cyclic(m, rng.permutation(m)[: min(d, m)]).tolist()
    if number % 2:
        sizes = rng.integers(0, d + 1, int(rng.integers(2, 16)))
        spread = [rng.choice(m, size, replace=False).tolist() for size in sizes]
    for election in IN_PAPER:
        certificates = runoff.certify(scores, election=election, spread=spread, bound="paper")
        costs = [paper_certificate(election, ballots_of(row), spread) for row in scores]
        assert certificates.radius.tolist() == [len(spread) if cost == inf else cost - 1 for cost in costs]


def lopsided(number):
    """Return votes for two or three of many classes, and a few members that most buckets share."""
    rng = np.random.default_rng([number, 9])
    m, c = int(rng.integers(8, 16)), int(rng.integers(4, 8))
    voted = rng.permutation(c)[: int(rng.integers(1, 4))]
    scores = rng.permuted(np.broadcast_to(np.arange(c), (5, m, c)), axis=-1)
    share = rng.choice([0.6, 0.75, 0.9])
    first = np.where(rng.random((5, m)) < share, voted[0], voted[rng.integers(len(voted), size=(5, m))])
    np.put_along_axis(scores, first[..., None], c, axis=-1)
    if rng.integers(2):
        scores[..., voted[0]] = np.maximum(scores[..., voted[0]], c - 1.5)  # nearly all rank the winner high
    few = rng.choice(m, 2, replace=False)
    return scores, [[*{int(j), *few[: int(rng.integers(3))].tolist()}] for j in rng.permutation(m)]


@pytest.mark.parametrize("number", range(40))
def test_fixed_paper_bounds_where_most_classes_have_no_votes(number):
    scores, spread = lopsided(number)
    for election in IN_PAPER:
        certificates = runoff.certify(scores, election=election, spread=spread, bound="paper")
        costs = [paper_certificate(election, ballots_of(row), spread) for row in scores]
        assert certificates.radius.tolist() == [len(spread) if cost == inf else cost - 1 for cost in costs]


def test_a_class_without_votes_can_be_the_cheapest_by_lemma_37():
    """Class 1 has the vote of a member that all buckets reach: classes without votes gain by taking it over."""
    ballots = [(0, 1, 2, 3)] * 9 + [(1, 2, 3, 0)]
    scores = np.array([[[-ballot.index(c) for c in range(4)] for ballot in ballots]])
    spread = [[i, 9] for i in range(9)]
    assert paper_certificate("plurality", ballots, spread) == 4
    assert runoff.certify(scores, election="plurality", spread=spread, bound="paper").radius[0] == 3
    assert runoff.certify(scores, election="plurality", spread=spread).radius[0] == 4


@pytest.mark.parametrize("election", ELECTIONS)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("n_buckets", [1, 2, 3, 4])
def test_all_buckets_can_be_needed_or_not_be_enough(election, n_classes, n_buckets):
    """Unanimous members, of which the buckets reach some: half of them change the election, fewer never do."""
    for members in (n_buckets, 2 * n_buckets - 1, 2 * n_buckets, 2 * n_buckets + 1):
        scores = np.array([[[5 - (c != 1) - 0.1 * c for c in range(n_classes)]] * members])
        needed = (members + 1) // 2  # ties go to class 0
        spread = [[b] for b in range(n_buckets)]
        certificates = runoff.certify(scores, election=election, spread=spread)
        assert certificates.prediction[0] == 1
        assert certificates.radius[0] == (needed - 1 if needed <= n_buckets else n_buckets)
        np.testing.assert_array_equal(certificates.radius_to(0), certificates.radius)
        assert (certificates.attack(0) is None) == (needed > n_buckets)
        if election in IN_PAPER:
            paper = runoff.certify(scores, election=election, spread=spread, bound="paper")
            cost = paper_certificate(election, ballots_of(scores[0]), spread)
            assert paper.radius[0] == (n_buckets if cost == inf else cost - 1)


def test_a_class_that_must_pass_three_others():
    """If few members are taken over, they cannot include enough voters of the other classes."""
    ballots = [(0, 1, 2, 3, 4)] * 20 + [(u, 4, 0, *({1, 2, 3} - {u})) for u in (1, 2, 3) for _ in range(6)]
    scores = np.array([[[-ballot.index(c) for c in range(5)] for ballot in ballots]])
    certificates = runoff.certify(scores)
    assert (certificates.prediction[0], certificates.radius[0], len(certificates.attack(0))) == (0, 5, 6)
    assert certificates.attack(0).prediction == 4
    assert runoff.certify(scores, bound="paper").radius[0] == 3


@pytest.mark.filterwarnings("ignore:invalid value")  # of inf - inf, uncompiled
@pytest.mark.parametrize("n_classes", [63, 64, 65, 66, 67, 131])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
def test_first_choices_among_many_classes_are_those_of_argmax(n_classes, dtype):
    """From 64 classes on, they are found in another way."""
    rng = np.random.default_rng(n_classes)
    scores = rng.integers(-3, 3, size=(60, n_classes)).astype(dtype)  # many ties
    scores[np.arange(40), rng.integers(0, n_classes, 40)] = 5
    scores[:8, [0, -1, n_classes // 4 * 4 - 1]] += np.eye(8, 3).astype(dtype) * 9
    if dtype != "int16":
        scores[scores == 0] *= rng.choice([-1, 1], size=(scores == 0).sum())  # -0.0 equals 0.0
    certificates = runoff.certify(scores[:, None], election="plurality")  # elections of one member
    np.testing.assert_array_equal(certificates.prediction, scores.argmax(axis=1))
    for at in range(n_classes) if dtype != "int16" else ():
        for value in (np.nan, np.inf, -np.inf):
            broken = scores[:2, None].copy()
            broken[1, 0, at] = value
            with pytest.raises(ValueError, match=f"for input 1, member 0, class {at}:"):
                runoff.certify(broken)


@pytest.mark.parametrize("election", IN_PAPER)
@given(scores=ensembles(n_members=(2, 6), n_classes=(64, 68)))
def test_elections_of_many_classes(election, scores):
    certificates = runoff.certify(scores, election=election, bound="paper")
    for i, row in enumerate(scores):
        ballots = ballots_of(row)
        assert (certificates.prediction[i], certificates.runner_up[i]) == RULES[election](ballots)
        assert certificates.radius[i] == paper_certificate(election, ballots) - 1
