"""Radii against an adversary that tries every takeover and every ballot."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runoff
from reference import IN_PAPER, RULES, ballots_of, cert_2v1, dp, gap, paper_certificate, true_cost, votes_of
from tests.torture import elections as many
from tests.torture.oracle import NEVER, truth

ELECTIONS = sorted(RULES)


@st.composite
def small_scores(draw, members=(1, 5), classes=(2, 4)):
    """Draw the scores of one input from few values, so that ties are frequent."""
    m, c = draw(st.integers(*members)), draw(st.integers(*classes))
    if c == 4:
        m = min(m, 4)
    values = draw(st.lists(st.integers(0, draw(st.sampled_from([1, 2, 9]))), min_size=m * c, max_size=m * c))
    return np.array(values, dtype=np.float32).reshape(1, m, c)


@st.composite
def scores_and_spread(draw):
    """Draw scores and any spread: ragged, overlapping, with empty buckets, with more or fewer buckets than members."""
    scores = draw(small_scores(members=(1, 4), classes=(2, 3)))
    members = st.integers(0, scores.shape[1] - 1)
    return scores, draw(st.lists(st.lists(members, unique=True, max_size=3), min_size=1, max_size=5))


def attacked(scores, attack):
    row = scores[0].astype(float)
    row[attack.members] = attack.ballots
    return row


@pytest.mark.parametrize("election", ELECTIONS)
@given(scores=small_scores())
def test_one_bucket_per_member_is_exact(election, scores):
    ballots = ballots_of(scores[0])
    tight = runoff.certify(scores, election=election)
    assert (tight.prediction[0], tight.runner_up[0]) == RULES[election](ballots)
    assert tight.radius[0] + 1 == true_cost(election, ballots)
    if election in IN_PAPER:
        paper = runoff.certify(scores, election=election, bound="paper")
        assert paper.radius[0] + 1 == paper_certificate(election, ballots) <= tight.radius[0] + 1


@pytest.mark.parametrize("election", ELECTIONS)
@given(scores=small_scores(members=(1, 9), classes=(2, 6)))
def test_the_attack_has_exactly_radius_plus_one_members_and_works(election, scores):
    certificates = runoff.certify(scores, election=election)
    attack = certificates.attack(0)
    assert len(attack) == len(attack.members) == certificates.radius[0] + 1
    new_winner = RULES[election](ballots_of(attacked(scores, attack)))[0]
    assert attack.prediction == new_winner != certificates.prediction[0]


@pytest.mark.parametrize("election", ELECTIONS)
@given(case=scores_and_spread())
def test_a_spread_is_never_certified_above_the_truth(election, case):
    scores, spread = case
    ballots = ballots_of(scores[0])
    truth = true_cost(election, ballots, spread)
    tight = runoff.certify(scores, election=election, spread=spread)
    radius, attack = int(tight.radius[0]), tight.attack(0)
    assert radius <= min(len(spread), truth - 1)
    if election in IN_PAPER:
        paper = runoff.certify(scores, election=election, spread=spread, bound="paper")
        assert paper.radius[0] == min(len(spread), paper_certificate(election, ballots, spread) - 1) <= radius
    if truth == inf:
        assert attack is None
        assert radius == len(spread)
    else:
        assert len(attack) >= truth > radius
        assert set(attack.members) == {j for b in attack.buckets for j in spread[b]}
        assert RULES[election](ballots_of(attacked(scores, attack)))[0] == attack.prediction != tight.prediction[0]
        if election == "plurality":  # one row per threat: a search that completes finds the exact cost
            assert radius + 1 == truth == len(attack)


@st.composite
def larger(draw):
    """Draw elections of 5 to 9 members, with spreads that overlap and may leave members out."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    m, c = draw(st.integers(5, 9)), draw(st.integers(3, 5))
    scores = rng.integers(0, draw(st.sampled_from([3, 50])), size=(1, m, c)).astype(np.float32)
    scores[0, :, rng.integers(c)] += draw(st.sampled_from([0, 20]))
    sizes = rng.integers(draw(st.integers(0, 2)), 4, size=draw(st.integers(1, 7)))
    return scores, [rng.choice(m, size, replace=False).tolist() for size in sizes]


@pytest.mark.parametrize("election", ELECTIONS)
@given(case=larger())
def test_larger_spreads_against_sensible_ballots(election, case):
    scores, spread = case
    ballots = ballots_of(scores[0])
    truth = true_cost(election, ballots, spread, sensible=True)
    tight = runoff.certify(scores, election=election, spread=spread)
    assert tight.radius[0] <= min(len(spread), truth - 1)
    if election in IN_PAPER:
        assert runoff.certify(scores, election=election, spread=spread, bound="paper").radius[0] <= tight.radius[0]
    attack = tight.attack(0)
    if truth == inf:
        assert attack is None
        assert tight.radius[0] == len(spread)
    else:
        assert len(attack) == truth == tight.radius[0] + 1  # small enough for the search to complete with all rivals


@given(scores=small_scores(), spread=st.lists(st.lists(st.just(0), max_size=1), min_size=1, max_size=2))
def test_sensible_ballots_are_all_that_an_adversary_needs(scores, spread):
    ballots = ballots_of(scores[0])
    for election in ELECTIONS:
        for placed in (None, spread):
            assert true_cost(election, ballots, placed) == true_cost(election, ballots, placed, sensible=True)


def test_where_the_paper_gives_something_away_the_tight_bound_is_exact():
    scores = np.random.default_rng(0).integers(0, 50, size=(4000, 8, 5))
    tight, paper = runoff.certify(scores), runoff.certify(scores, bound="paper")
    better = np.flatnonzero(tight.radius > paper.radius)
    assert len(better) > 20
    for i in better[:60]:
        assert tight.radius[i] + 1 == true_cost("runoff", ballots_of(scores[i]), sensible=True)
        assert len(tight.attack(i)) == tight.radius[i] + 1


@pytest.mark.parametrize("number", range(40))
def test_fixed_elections_against_the_compiled_adversary(number):
    """Ties, types, spreads and empty buckets of every kind; a search that completes must give the exact cost."""
    scores, spread = many.cases(np.random.default_rng(number), size=12)
    tally = many.batch(0, number, size=12)
    assert not tally.failed, [line.examples for line in tally.lines.values()]
    for election in ELECTIONS:
        cost = truth(scores, election, spread)[2]
        radius = runoff.certify(scores, election=election, spread=spread).radius
        buckets = scores.shape[1] if spread is None else len(spread)
        if election != "runoff" or scores.shape[2] < 6:  # with more rivals, run-off may stay below
            np.testing.assert_array_equal(radius, np.where(cost == NEVER, buckets, cost - 1))


@given(
    scores=small_scores(), spread=st.none() | st.lists(st.lists(st.integers(0, 0), max_size=1), min_size=1, max_size=3)
)
def test_the_compiled_adversary_agrees_with_the_one_that_tries_every_ballot(scores, spread):
    agrees_with_every_ballot(scores, spread)


def agrees_with_every_ballot(scores, spread):
    for election in ELECTIONS:
        ballots = ballots_of(scores[0])
        prediction, runner_up, cost = truth(scores, election, spread)
        assert (prediction[0], runner_up[0]) == RULES[election](ballots)
        assert cost[0] == min(NEVER, true_cost(election, ballots, spread))


@pytest.mark.slow
@pytest.mark.parametrize("election", ELECTIONS)
@settings(max_examples=5000, deadline=None)
@given(case=scores_and_spread())
def test_many_spreads(election, case):
    test_a_spread_is_never_certified_above_the_truth.hypothesis.inner_test(election, case)


def test_the_statement_of_lemma_38_overclaims_where_its_proof_does_not():
    """One class already beats the prediction in round 1: clipping its gap at 0 ignores its surplus votes."""
    ballots = [(0, 1, 2)] * 4 + [(1, 2, 0)] * 3 + [(2, 1, 0)] * 3  # votes 4, 3, 3; class 1 wins the run-off 6 to 4
    spread = [[0], [1]]
    assert RULES["runoff"](ballots) == (1, 0)
    assert (
        RULES["runoff"]([(2, 0, 1), *ballots[1:]])[0] != 1
    )  # member 0 moves to class 2: votes 3, 3, 4, class 1 is eliminated
    assert true_cost("runoff", ballots, spread) == 1
    assert paper_certificate("runoff", ballots, spread, clip=True) == inf  # "no attack exists"
    assert paper_certificate("runoff", ballots, spread) == 1
    scores = np.array([[[-ballot.index(c) for c in range(3)] for ballot in ballots]])
    for bound in ("paper", "tight"):
        assert runoff.certify(scores, spread=spread, bound=bound).radius[0] == 0


def test_the_statement_of_lemma_38_overclaims_in_ordinary_finite_aggregation():
    """The example of docs/proofs.md: k = 23, d = 4, offsets 0 to 3, 50 classes."""
    votes = "cccwccc" * 4 + "oooc" * 16
    rivals = iter(range(2, 50))
    rest = tuple(range(2, 50))
    ballots = [
        (0, 1, *rest)
        if vote == "c"
        else (1, *rest, 0)
        if vote == "w"
        else (own := next(rivals), 1, *({*rest} - {own}), 0)
        for vote in votes
    ]
    spread = [[(bucket + offset) % 92 for offset in range(4)] for bucket in range(92)]
    assert (len(ballots), next(rivals, None)) == (92, None)
    assert votes_of(ballots)[:3] == [40, 4, 1]
    assert RULES["runoff"](ballots) == (1, 0)
    assert paper_certificate("runoff", ballots, spread, clip=True) == 2  # the statement: no single edit can change it
    taken = [(2, 0, *range(3, 50), 1) if member in spread[0] else ballot for member, ballot in enumerate(ballots)]
    assert votes_of(taken)[:3] == [37, 3, 5]
    assert 1 not in RULES["runoff"](taken)  # eliminated by one bucket
    assert paper_certificate("runoff", ballots, spread) == 1  # the proof
    scores = np.array([[[-ballot.index(c) for c in range(50)] for ballot in ballots]])
    for bound in ("paper", "tight"):
        assert runoff.certify(scores, spread=spread, bound=bound).radius[0] == 0


def test_definition_33_needs_an_or():
    """With its "and", Lemma 3.6 would be wrong: one member makes class 2 beat class 0, whatever class 1 does."""
    first = [0, 0, 0, 1, 2, 2, 2]
    assert (gap(first, 0, 1), gap(first, 0, 2)) == (3, 1)
    assert cert_2v1(first, 0, 1, 2, None) == dp(3, 1) == 2
    assert gap([2, *first[1:]], 0, 2) <= 0 < gap([2, *first[1:]], 0, 1)


def test_the_runner_up_need_not_be_the_cheapest_rival():
    """The runner-up gains nothing from its own voters, but the class behind it does."""
    first = [0, 0, 0, 0, 0, 1, 1, 1, 2, 2]
    ballots = [(c, *(o for o in range(3) if o != c)) for c in first]
    spread = [[0, 5, 6], [1]]  # one voter of the winner and two of the runner-up; another voter of the winner
    assert true_cost("plurality", ballots, spread, sensible=True) == 1
    assert paper_certificate("plurality", ballots, spread) == 1
    scores = np.array([[[-ballot.index(c) for c in range(3)] for ballot in ballots]])
    for bound in ("paper", "tight"):
        assert runoff.certify(scores, election="plurality", spread=spread, bound=bound).radius[0] == 0


def test_an_election_like_figure_1():
    """7 members: one edit turns plurality, while run-off needs two."""
    cat, dog, fox = 0, 1, 2
    ballots = [(cat, dog, fox)] * 3 + [(dog, cat, fox)] * 2 + [(fox, cat, dog)] * 2
    scores = np.array([[[-ballot.index(c) for c in range(3)] for ballot in ballots]])
    assert runoff.certify(scores, election="plurality").radius[0] == 0
    for bound in ("paper", "tight"):
        certificates = runoff.certify(scores, election="runoff", bound=bound)
        assert (certificates.prediction[0], certificates.runner_up[0], certificates.radius[0]) == (cat, dog, 1)
