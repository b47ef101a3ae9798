"""The object that `certify` returns, and certified accuracy."""

import doctest
import re
import sys

import numpy as np
import pytest

import runoff
from runoff import spreads

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(20, 12, 5)) + 2 * RNG.normal(size=(20, 1, 5))
LABELS = SCORES.mean(axis=1).argmax(axis=1)


def test_it_behaves_like_its_arrays():
    certificates = runoff.certify(SCORES)
    assert len(certificates) == 20
    for which in (slice(3, 9), certificates.radius > 2, np.array([4, -1]), 7):
        part = certificates[which]
        assert isinstance(part, runoff.Certificates)
        np.testing.assert_array_equal(part.radius, np.atleast_1d(certificates.radius[which]))
        np.testing.assert_array_equal(part.prediction, np.atleast_1d(certificates.prediction[which]))
        np.testing.assert_array_equal(part.runner_up, np.atleast_1d(certificates.runner_up[which]))
    assert len(certificates[certificates.radius > 99]) == 0
    assert repr(certificates).startswith("<Certificates of 20 inputs: runoff of 12 members, tight bound, median radius")
    assert certificates.prediction.dtype == certificates.radius.dtype == certificates.runner_up.dtype == np.int64


@pytest.mark.filterwarnings("error")
def test_a_selection_may_be_empty():
    """Such as the inputs of one class, if there are none."""
    none = runoff.certify(SCORES)[np.zeros(20, bool)]
    labels = np.empty(0, np.int64)
    for accuracy in (runoff.certified_accuracy, runoff.collective_accuracy):
        np.testing.assert_array_equal(accuracy(none, labels, [0, 2]), [np.nan, np.nan])
    assert none.radius_to(1).tolist() == none.to_frame(to=1)["radius_to"].tolist() == []
    with pytest.raises(ValueError, match="certificates must be of at least one input, got none"):
        runoff.collective_attack(none, labels, 2)
    with pytest.raises(ValueError, match="y_true must have inputs of other classes than 1, which the rate is about"):
        runoff.targeted_rate(none, labels, None, 1, [0])


def test_attacks_follow_a_selection():
    certificates = runoff.certify(SCORES)
    part = certificates[5:][np.array([2, 0])]
    for i, at in enumerate((7, 5)):
        assert part.explain(i) == certificates.explain(at)
        np.testing.assert_array_equal(part.attack(i).members, certificates.attack(at).members)
    np.testing.assert_array_equal(certificates.attack(-1).members, certificates.attack(19).members)
    for method in (certificates.attack, certificates.explain):
        with pytest.raises(IndexError, match="there is no input 20: these certificates are of 20 inputs, 0 to 19"):
            method(20)
    with pytest.raises(ValueError, match="an input is given by its position, a whole number, got 'a'"):
        certificates.explain("a")


def test_an_attack_is_printed_as_one_sentence():
    certificates = runoff.certify(SCORES, spread=spreads.cyclic(12, [0, 3]))
    attack = certificates.named(["ant", "bee", "cow", "dog", "eel"]).attack(2)
    reached = f"{len(attack)} bucket{'s' * (len(attack) > 1)} reaching {len(attack.members)} member"
    assert repr(attack).startswith(f"<Attack on {reached}")
    assert repr(attack).endswith(f": predicts {attack.prediction}, since {attack.how}>")
    assert attack.prediction in {"ant", "bee", "cow", "dog", "eel"}


def test_to_frame(monkeypatch):
    certificates = runoff.certify(SCORES)
    frame = certificates.to_frame()
    assert list(frame.columns) == ["prediction", "radius", "runner_up"]
    np.testing.assert_array_equal(frame["radius"], certificates.radius)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="Install it with: pip install pandas"):
        certificates.to_frame()


def test_attack_and_explain_after_an_iterator_need_the_scores():
    certificates = runoff.certify(iter([SCORES[:11], SCORES[11:]]))
    with pytest.raises(ValueError, match="which keeps no scores: pass those of input 3 as scores="):
        certificates.attack(3)
    assert len(certificates.attack(3, SCORES[3])) == certificates.radius[3] + 1
    with pytest.raises(ValueError, match=re.escape("scores must have shape (12, 5), got (5,)")):
        certificates.explain(3, SCORES[3, 0])
    other = np.flatnonzero(certificates.prediction != certificates.prediction[3])[0]
    with pytest.raises(ValueError, match="scores must be those certified, but input 3's prediction is now"):
        certificates.attack(3, SCORES[other])


def test_scores_that_changed_since_are_noticed():
    scores = np.array([[[3, 2, 1]] * 9 + [[1, 3, 2]] * 2])
    certificates = runoff.certify(scores)
    scores[0, :3] = [1, 3, 2]
    with pytest.raises(ValueError, match="input 0's radius is now 0 and was 3"):
        certificates.explain(0)
    with pytest.raises(ValueError, match="input 0's radius is now 0 and was 3"):
        certificates.radius_to(1)
    with pytest.raises(ValueError, match="input 0's radius is now 0 and was 3"):
        runoff.collective_accuracy(certificates, [0], [4])
    scores[0] = [[3, 1, 2]] * 9 + [[1, 2, 3]] * 2
    with pytest.raises(ValueError, match="input 0's runner_up is now 2 and was 1"):
        certificates.radius_to(1)
    named = certificates.named(["a", "b", "c"])
    with pytest.raises(ValueError, match="input 0's runner_up is now c and was b"):
        named.radius_to("b")


def test_attacks_of_many_thousand_buckets_are_found():
    m = 41_000
    scores = np.zeros((1, m, 2), np.uint8)
    scores[..., 0] = 1
    certificates = runoff.certify(scores, election="plurality", spread=[[j] for j in range(m)] + [[0]])
    assert certificates.radius[0] == 20_500 == len(certificates.attack(0)) - 1


def test_explanations_say_what_is_so():
    ballots = [(0, 1, 2)] * 3 + [(1, 0, 2)] * 2 + [(2, 0, 1)] * 2
    scores = np.array([[[-ballot.index(c) for c in range(3)] for ballot in ballots]])
    assert runoff.certify(scores).explain(0) == (
        "Round 1: of 7 votes, 3 for class 0, 2 for class 1, 2 for class 2; classes 0 and 1 advance. Round 2: 5 of 7 "
        "members rank class 0 above class 1, so class 0 wins. Proven: no single edit of the training data can change "
        "this. The cheapest attack found takes over 2 members: class 1 reaches round 2 and beats class 0 there; so the "
        "radius is exact."
    )
    assert runoff.certify(scores, election="plurality").explain(0) == (
        "Class 0 has the most votes: of 7 votes, 3 for class 0, 2 for class 1, 2 for class 2. Nothing is proven: one "
        "edit might change this. The cheapest attack found takes over 1 member: class 1 passes class 0; so the radius "
        "is exact."
    )
    # Class 0 leads round 1 and class 1 wins round 2 clearly: one vote for class 2 eliminates class 1.
    ballots = [(0, 1, 2)] * 5 + [(1, 0, 2)] * 4 + [(2, 1, 0)] * 4
    scores = np.array([[[-ballot.index(c) for c in range(3)] for ballot in ballots]])
    assert "classes 0 and 2 eliminate class 1 in round 1" in runoff.certify(scores).explain(0)


def test_explanations_of_a_spread_say_how_far_the_truth_may_be():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(30, 240, 6)) + 2 * rng.normal(size=(30, 1, 6))
    certificates = runoff.certify(scores, spread=spreads.cyclic(240, rng.permutation(240)[:12]), bound="paper")
    stories = [certificates.explain(i) for i in range(30)]
    assert any(
        re.search(r"takes over \d+ buckets, which reach \d+ members: .*the radius is exact\.$", s) for s in stories
    )
    assert any(re.search(r"so the true radius is \d+ to \d+\.$", story) for story in stories)


def test_the_examples_in_the_docstrings():
    parts = [sys.modules[f"runoff.certificates.{name}"] for name in ("_certify", "_accuracy")]
    assert [doctest.testmod(part) for part in parts] == [(0, 4), (0, 9)]


def test_certified_accuracy():
    certificates = runoff.certify(SCORES)
    budgets = [0, 1, 3, 100]
    expected = [np.mean((certificates.prediction == LABELS) & (certificates.radius >= b)) for b in budgets]
    accuracy = runoff.certified_accuracy(certificates, LABELS, budgets)
    assert accuracy.tolist() == expected
    assert accuracy[0] == np.mean(certificates.prediction == LABELS)
    assert runoff.certified_accuracy(certificates, LABELS.tolist(), 3).tolist() == [expected[2]]
    assert runoff.certified_accuracy(certificates, LABELS.astype(np.uint8), np.array([3])).dtype == np.float64


@pytest.mark.parametrize(
    ("labels", "budgets", "message"),
    [
        (LABELS[1:], [0], "y_true must have one label for each of 20 inputs, got shape (19,)"),
        (LABELS * 1.0, [0], "y_true must be class indices (integers), got dtype float64"),
        (LABELS + 3, [0], "y_true must be classes 0 to 4, got "),
        (LABELS - 9, [0], "y_true must be classes 0 to 4, got -"),
        (LABELS, [3, -1], "budgets must be non-negative integers, got [3, -1]"),
        (LABELS, [0.5], "budgets must be non-negative integers, got [0.5]"),
        (LABELS, [[1]], "budgets must be non-negative integers, got [[1]]"),
    ],
)
def test_bad_labels_and_budgets(labels, budgets, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        runoff.certified_accuracy(runoff.certify(SCORES), labels, budgets)


def test_certified_accuracy_by_class_shows_what_the_overall_number_hides():
    scores = np.tile([3, 2, 1], (100, 9, 1))
    labels = np.repeat([0, 1], [97, 3])
    certificates = runoff.certify(scores)
    assert certificates.certified_accuracy(labels, [0, 4]).tolist() == [0.97, 0.97]
    by_class = certificates.certified_accuracy(labels, [0, 4, 5], by_class=True)
    np.testing.assert_array_equal(by_class, [[1, 1, 0], [0, 0, 0], [np.nan] * 3])
    named = certificates.named(np.array(["common", "rare", "absent"]))
    truth = np.array(["common", "rare"])[labels]
    np.testing.assert_array_equal(runoff.certified_accuracy(named, truth, [0, 4, 5], by_class=True), by_class)
    assert runoff.certified_accuracy(named[:0], truth[:0], [0], by_class=True).shape == (3, 1)


def test_explanations_of_two_classes_speak_of_these_two():
    scores = np.random.default_rng(0).normal(size=(20, 7, 2))
    for election in ("plurality", "runoff", "maximin"):
        certificates = runoff.certify(scores, election=election).named(np.array(["ham", "spam"]))
        for i in range(20):
            assert "new label" not in certificates.explain(i)
            assert set(re.findall(r"class (\w+)", certificates.explain(i))) <= {"ham", "spam"}
