"""Radii of targets, compared with an adversary that tries every takeover and every ballot."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runoff
from reference import RULES, ballots_of, true_cost
from runoff import elections
from runoff.elections.base import Election, threat_cost
from runoff.spreads import Spread, cyclic, disjoint
from test_adversary import attacked, scores_and_spread, small_scores
from test_reference import FromThreats, ensembles, spreads_for

ELECTIONS = sorted(RULES)


def check_every_target(election, scores, spread):
    """Compare radius_to and attack with the truth, for every class of one input."""
    ballots = ballots_of(scores[0])
    certificates = runoff.certify(scores, election=election, spread=spread)
    rule = elections.get(election)
    n_buckets = certificates.n_buckets
    reach = (disjoint(scores.shape[1]) if spread is None else Spread.from_any(spread, scores.shape[1])).reach
    for target in range(scores.shape[2]):
        radius = int(certificates.radius_to(target)[0])
        if target == certificates.prediction[0]:
            assert radius == -1
            continue
        truth = true_cost(election, ballots, spread, to=target)
        assert certificates.radius[0] <= radius == min(n_buckets, truth - 1)
        points = runoff.rank(scores)[0]
        costs = [threat_cost(t, reach, 10**6) for t in rule.threats_to(points, rule.hold(points), target)]
        assert min(min(costs), n_buckets + 1) == min(truth, n_buckets + 1)  # the claim of docs/proofs.md
        attack = certificates.attack(0, to=target)
        if truth == inf:
            assert attack is None
        else:
            assert len(attack) == truth
            assert RULES[election](ballots_of(attacked(scores, attack)))[0] == attack.prediction == target


@pytest.mark.parametrize("election", ELECTIONS)
@settings(max_examples=50)
@given(scores=small_scores())
def test_one_bucket_per_member_is_exact(election, scores):
    check_every_target(election, scores, None)


@pytest.mark.parametrize("election", ELECTIONS)
@settings(max_examples=50)
@given(case=scores_and_spread())
def test_small_spreads_are_exact(election, case):
    check_every_target(election, *case)


@pytest.mark.slow
@pytest.mark.parametrize("election", ELECTIONS)
@settings(max_examples=3000)
@given(case=scores_and_spread() | small_scores().map(lambda scores: (scores, None)))
def test_many_small_elections(election, case):
    check_every_target(election, *case)


@settings(max_examples=20)
@given(scores=small_scores(members=(1, 4)), spread=st.none() | st.just([[0], [0, 1][:1]]))
def test_sensible_ballots_are_all_that_an_adversary_with_a_target_needs(scores, spread):
    ballots = ballots_of(scores[0])
    for election in ELECTIONS:
        for to in range(scores.shape[2]):
            anything = true_cost(election, ballots, spread, to=to)
            assert anything == true_cost(election, ballots, spread, to=to, sensible=True)


@pytest.mark.parametrize("election", ["plurality", "runoff"])
def test_medium_elections_against_sensible_ballots(election):
    """Five classes and up to eight members: weak classes have to be promoted, and finalists have votes to spare."""
    rng = np.random.default_rng(0)
    for members in (5, 6, 7, 8) * 2:
        scores = rng.integers(0, 50, size=(1, members, 5)).astype(np.float32)
        scores[0, : members // 2, rng.integers(5)] += 50
        for target in range(5):
            certificates = runoff.certify(scores, election=election)
            truth = true_cost(election, ballots_of(scores[0]), to=target, sensible=True)
            assert certificates.radius_to(target)[0] == truth - 1


def test_a_cycle_of_duels_can_be_what_a_target_needs_in_maximin():
    """Elections in which no common order of the taken members elects the target, but different orders do."""
    rng = np.random.default_rng(5)
    rule, needed = elections.get("maximin"), 0
    for _ in range(400):
        ballots = runoff.rank(rng.integers(0, 50, size=(1, 7, 4)))[0]
        outcome, target = rule.hold(ballots), int(rng.integers(4))
        if target != outcome.prediction:
            cost = rule.target_cost(ballots, outcome, target, disjoint(7).reach, 10**5)
            threat, members = rule.smallest_to(ballots, outcome, target, disjoint(7), cost)
            assert len(members) == cost
            needed += len({tuple(ballot) for ballot in threat.new_ballots(ballots, members)}) > 1
            assert threat.met_by(members)
    assert needed > 0


@pytest.mark.parametrize("election", ["plurality", "runoff"])
@settings(max_examples=40)
@given(data=st.data(), scores=ensembles(n_members=(2, 30), n_classes=(2, 7)))
def test_compiled_targets_are_those_that_follow_from_the_threats(election, data, scores):
    spread = data.draw(st.none() | spreads_for(scores.shape[1]))
    rule, target = elections.get(election), data.draw(st.integers(0, scores.shape[2] - 1))
    reach = (disjoint(scores.shape[1]) if spread is None else Spread.from_any(spread, scores.shape[1])).reach
    certificates = runoff.certify(scores, election=election, spread=spread)
    radius = certificates.radius_to(target)
    prediction, cost = np.empty((2, len(scores)), np.int64)
    Election.target_spread(rule, scores, target, reach, 2000, prediction, cost)
    np.testing.assert_array_equal(prediction, certificates.prediction)
    np.testing.assert_array_equal(radius == -1, prediction == target)
    slow = np.minimum(cost - 1, certificates.n_buckets)
    if spread is None:
        assert (radius >= slow).all()  # where the slow search ended, they are equal
    for i in np.flatnonzero(prediction != target):
        attack = certificates.attack(i, to=target)
        if attack is None:
            assert radius[i] == slow[i] == certificates.n_buckets
        else:
            assert len(attack) > max(radius[i], slow[i])
            if spread is None:
                assert len(attack) == radius[i] + 1


def test_large_ensembles_are_exact_with_an_attack_in_hand():
    rng = np.random.default_rng(1)
    scores = (rng.normal(size=(40, 250, 10)) + 0.7 * rng.normal(size=(40, 1, 10))).astype(np.float32)
    for election in ("plurality", "runoff"):
        certificates = runoff.certify(scores, election=election)
        for target in (0, 9):
            radius = certificates.radius_to(target)
            for i in np.flatnonzero(radius >= 0)[::4]:
                assert len(certificates.attack(i, to=target)) == radius[i] + 1
    certificates = runoff.certify(scores[:6], election="maximin")
    radius = certificates.radius_to(4)
    for i in np.flatnonzero(radius >= 0):
        assert len(certificates.attack(i, to=4)) >= radius[i] + 1


def test_every_change_is_the_cheapest_of_its_targets():
    """With one bucket per member both are exact, so the smallest of all targets is the radius."""
    scores = np.random.default_rng(2).integers(0, 9, size=(300, 15, 4))
    for election in ELECTIONS:
        certificates = runoff.certify(scores, election=election)
        every = np.array([certificates.radius_to(c) for c in range(4)])
        others = np.where(every < 0, 99, every)
        np.testing.assert_array_equal(others.min(axis=0), certificates.radius)
        assert ((every < 0).sum(axis=0) == 1).all()


def ensemble():
    rng = np.random.default_rng(3)
    return (rng.normal(size=(30, 21, 3)) + rng.normal(size=(30, 1, 3))).astype(np.float32)


def test_radius_to_reads_selections_labels_and_files(tmp_path):
    scores, spread = ensemble(), cyclic(21, [0, 4])
    certificates = runoff.certify(scores, spread=spread)
    radius = certificates.radius_to(2)
    named = certificates.named(np.array(["cat", "dog", "owl"]))
    np.testing.assert_array_equal(named.radius_to("owl"), radius)
    np.testing.assert_array_equal(named.radius_to(np.str_("owl")), radius)
    np.testing.assert_array_equal(certificates[5:9].radius_to(2), radius[5:9])
    np.testing.assert_array_equal(certificates[radius >= 0][::2].radius_to(2), radius[radius >= 0][::2])
    np.save(tmp_path / "scores.npy", scores)
    mapped = runoff.certify(np.load(tmp_path / "scores.npy", mmap_mode="r"), spread=spread)
    np.testing.assert_array_equal(mapped.radius_to(2), radius)
    streamed = runoff.certify(iter([scores]), spread=spread)
    np.testing.assert_array_equal(streamed.radius_to(2, scores), radius)
    np.testing.assert_array_equal(streamed.radius_to(2, iter([scores[:7], scores[7:]])), radius)
    np.testing.assert_array_equal(certificates.to_frame(to=2)["radius_to"], radius)
    assert "radius_to" not in certificates.to_frame()
    paper = runoff.certify(scores, spread=spread, bound="paper")
    np.testing.assert_array_equal(paper.radius_to(2) < 0, radius < 0)
    assert (paper.radius_to(2) >= np.where(radius < 0, -1, paper.radius)).all()
    i = int(np.flatnonzero(radius >= 0)[0])
    assert named.attack(i, to="owl").prediction == "owl"
    assert len(streamed.attack(i, scores[i], to=2)) > radius[i]


def test_errors_of_targets_are_one_sentence():
    scores = ensemble()
    certificates = runoff.certify(scores)
    for label in (3, -1, "owl", True, [1]):
        with pytest.raises(ValueError, match="the target must be a class index from 0 to 2, got"):
            certificates.radius_to(label)
    with pytest.raises(ValueError, match=r"the target must be one of \['cat', 'dog', 'owl'\], got 1"):
        certificates.named(np.array(["cat", "dog", "owl"])).radius_to(1)
    with pytest.raises(ValueError, match=r"made from an iterator.*pass all scores again as scores=, an array \(30, 21"):
        runoff.certify(iter([scores])).radius_to(1)
    with pytest.raises(ValueError, match="scores must be those of the 30 inputs certified, got 29"):
        certificates.radius_to(1, scores[1:])
    with pytest.raises(ValueError, match=r"scores must be those certified, but input \d+'s prediction is now"):
        certificates.radius_to(1, scores[::-1])
    with pytest.raises(ValueError, match="scores must have 21 members and 3 classes, got shape"):
        certificates.radius_to(1, scores[:, 1:])
    broken = scores.copy()
    broken[17, 2, 1] = np.inf
    for election in ELECTIONS:
        with pytest.raises(ValueError, match="got inf for input 17, member 2, class 1"):
            runoff.certify(scores, election=election).radius_to(1, broken)
    predicted = int(certificates.prediction[4])
    with pytest.raises(ValueError, match=f"to must be another class than the prediction, got {predicted}, which is"):
        certificates.attack(4, to=predicted)
    own = runoff.certify(scores, election=FromThreats(elections.get("runoff")))
    with pytest.raises(ValueError, match="a target needs an election that defines threats_to, got 'from-threats'"):
        own.radius_to(1)


def test_explain_says_what_a_target_needs():
    ballots = [(0, 1, 2)] * 5 + [(1, 0, 2)] * 3 + [(2, 1, 0)]
    scores = np.array([[[-ballot.index(c) for c in range(3)] for ballot in ballots]])
    certificates = runoff.certify(scores).named(np.array(["cat", "dog", "owl"]))
    np.testing.assert_array_equal([certificates.radius_to(c)[0] for c in ("cat", "dog", "owl")], [-1, 0, 3])
    assert certificates.explain(0, to="cat").endswith("Class cat is already the prediction.")
    assert "Nothing is proven: one edit might make this class dog. The cheapest attack found takes over 1 member: " in (
        certificates.explain(0, to="dog")
    )
    text = certificates.explain(0, to="owl")
    assert "Proven: no 3 edits of the training data can make this class owl." in text
    assert text.endswith("classes owl and cat advance to round 2, which class owl wins; so the radius is exact.")
    unreached = runoff.certify(scores, spread=[[8]])
    assert unreached.radius_to(2)[0] == unreached.n_buckets == 1
    assert unreached.explain(0, to=2).endswith(
        "Proven: no single edit of the training data can make this class 2. "
        "No attack of any size can: the members that a bucket reaches are too few."
    )


def test_targeted_rate_counts_inputs_of_the_source_that_might_become_the_target():
    scores = ensemble()
    certificates = runoff.certify(scores)
    y = np.random.default_rng(4).integers(0, 3, 30)
    radius, budgets = certificates.radius_to(1), [0, 1, 5, 30]
    rate = runoff.targeted_rate(certificates, y, 2, 1, budgets)
    assert rate.tolist() == [np.mean(radius[y == 2] < b) for b in budgets]
    assert rate[0] == np.mean(certificates.prediction[y == 2] == 1)
    assert rate[-1] == 1
    anything = runoff.targeted_rate(certificates, y, None, 1, budgets)
    assert anything.tolist() == [np.mean(radius[y != 1] < b) for b in budgets]
    # what is certified correct cannot become the target
    certified = certificates[y == 2]
    safe = runoff.certified_accuracy(certified, y[y == 2], budgets)
    assert (rate <= 1 - safe + 1e-12).all()
    named = certificates.named(np.array(["cat", "dog", "owl"]))
    labels = named.classes[y]
    np.testing.assert_array_equal(runoff.targeted_rate(named, labels, "owl", "dog", budgets), rate)
    streamed = runoff.certify(iter([scores]))
    np.testing.assert_array_equal(runoff.targeted_rate(streamed, y, 2, 1, budgets, scores=scores), rate)
    with pytest.raises(ValueError, match="source and target must be two classes, got 1 twice"):
        runoff.targeted_rate(certificates, y, 1, 1, budgets)
    with pytest.raises(ValueError, match="y_true must have inputs of class 2, which the rate is about, got none"):
        runoff.targeted_rate(certificates, np.zeros(30, int), 2, 1, budgets)
    with pytest.raises(ValueError, match="budgets must be non-negative integers"):
        runoff.targeted_rate(certificates, y, 2, 1, [-1])
