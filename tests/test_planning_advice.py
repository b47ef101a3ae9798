"""What a plan is compared with, and what it does not recommend: members that learn nothing."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import train_test_split

import runoff
from runoff import RunoffClassifier
from runoff.errors import InputError

RNG = np.random.default_rng(0)
RARE = (RNG.random(1000) < 0.05).astype(int)  # one class in twenty samples, which small members do not have
X = RNG.normal(size=(1000, 5)) + RARE[:, None]
RIDGE = RidgeClassifier()


def test_members_that_learn_nothing_are_counted_and_not_recommended():
    plan = runoff.plan(X, RARE, RIDGE, budgets=(3, 40), n_partitions=(10, 300, 500))
    with pytest.warns(UserWarning, match="members learn nothing"):
        idle = RunoffClassifier(RIDGE, n_partitions=300, classes=[0, 1]).fit(X, RARE)
    assert plan[1].n_idle == idle.n_idle() == sum(not member.fitted for member in idle.members_) > 150
    assert [choice.learns for choice in plan] == [True, False, False]
    assert plan[1].certified(40)[0] > 0.9  # all votes for the frequent class: the largest estimate
    assert plan.best(3).n_partitions == 10
    with pytest.raises(InputError, match="no choice whose members learn certifies any training sample for 40 edits"):
        plan.best(40)
    lines = str(plan).splitlines()
    assert f"n_partitions=300: {plan[1].n_idle} of 300 members learn nothing (no samples, or one class); " in str(plan)
    assert not any("*" in line for line in lines if line.strip().startswith(("300", "500")))
    assert any(line.startswith("3 edits: n_partitions=10") for line in lines)
    assert any(line.startswith("40 edits: nothing is certified") for line in lines)
    assert plan.to_frame().groupby("n_partitions").idle_members.first().tolist() == [c.n_idle for c in plan]


def test_a_plan_of_idle_members_alone_recommends_nothing():
    plan = runoff.plan(X, RARE, RIDGE, budgets=3, n_partitions=(300,))
    with pytest.raises(InputError, match=r"most members learn nothing .*: use fewer partitions than 300"):
        plan.best(3)
    assert "3 edits: no choice can be recommended, since most members learn nothing" in str(plan)
    assert max(map(len, str(plan).splitlines())) < 140


def test_a_constant_prediction_is_the_measure_of_recommendations():
    plan = runoff.plan(X, RARE, RIDGE, budgets=3, n_partitions=30)
    assert plan.constant == np.mean(RARE == 0)
    assert f"The most frequent class alone: {100 * plan.constant:.1f} %." in str(plan)
    assert "), not clearly more than always predicting one class" in str(plan)
    balanced = runoff.plan(X, RARE, RIDGE, budgets=1, n_partitions=5, balanced=True)
    assert balanced.constant == 0.5
    assert "Always predicting one class: 50.0 %." in str(balanced)
    digits = runoff.plan(*load_digits(return_X_y=True), RIDGE, budgets=3, n_partitions=20, elections="runoff")
    assert "not clearly more" not in str(digits)


@pytest.mark.parametrize("balanced", [False, True])
def test_the_undefended_number_is_that_of_one_model_on_held_out_samples(balanced):
    train, test, y_train, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0, stratify=None)
    plan = runoff.plan(train, y_train, RIDGE, budgets=3, n_partitions=(10, 20), elections="runoff", balanced=balanced)
    accuracy, error = plan.undefended
    assert abs(accuracy - RIDGE.fit(train, y_train).score(test, y_test)) < 3 * error + 0.02
    assert 0.005 < error < 0.03
    assert f"One undefended model: {100 * accuracy:.1f} % ± {100 * error:.1f} without attack" in str(plan)
    quick = runoff.plan(train, y_train, RIDGE, budgets=3, n_partitions=20, members=5, balanced=balanced)
    assert np.isnan(quick.undefended[0])
    assert "undefended" not in str(quick)


def test_the_undefended_number_holds_out_whole_sources():
    sources = RNG.integers(0, 40, 400)
    noise = RNG.normal(size=(40, 30))[sources] + 0.01 * RNG.normal(size=(400, 30))  # a source's samples are alike
    plan = runoff.plan(
        noise, sources % 2, RIDGE, budgets=1, n_partitions=10, groups=sources.astype(str), elections="runoff"
    )
    accuracy, _ = plan.undefended
    assert accuracy < 0.8  # with other samples of a source in training it would be 1
    assert plan[0].unit == "sources"


def test_one_election_stands_for_all_if_there_are_two_classes():
    data, y = load_breast_cancer(return_X_y=True)
    plan = runoff.plan(data, y, RIDGE, budgets=3, n_partitions=(10, 20))
    assert [(choice.n_partitions, choice.election) for choice in plan] == [(10, "runoff"), (20, "runoff")]
    assert "Of two classes all elections elect the same one" in str(plan)
    scores = RunoffClassifier(RIDGE, n_partitions=20, classes=[0, 1]).fit(data, y).scores(data[:200])
    found = [runoff.certify(scores, election=name) for name in ("plurality", "runoff", "maximin")]
    for other in found[1:]:
        np.testing.assert_array_equal(other.prediction, found[0].prediction)
        np.testing.assert_array_equal(other.radius, found[0].radius)
    asked = runoff.plan(data, y, RIDGE, budgets=3, n_partitions=10, elections=("plurality", "maximin"))
    assert [choice.election for choice in asked] == ["plurality"]
    assert "Of two classes" not in str(
        runoff.plan(*load_digits(return_X_y=True), RIDGE, budgets=1, n_partitions=5, elections="runoff")
    )
