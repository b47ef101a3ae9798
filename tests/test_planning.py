"""plan and certified_scorer: certified accuracy estimated from training data, to choose settings by."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import runoff
from runoff import RunoffClassifier, estimates

X, Y = (array[np.random.default_rng(0).permutation(1797)] for array in load_digits(return_X_y=True))
TRAIN, TEST = slice(0, 1400), slice(1400, 1797)
RIDGE = RidgeClassifier(alpha=50)


@pytest.fixture(scope="module")
def plan():
    return runoff.plan(X[TRAIN], Y[TRAIN], RIDGE, budgets=(2, 9), n_partitions=(10, 20, 50, 1000))


def test_the_recommendation_is_nearly_the_best_on_a_test_set(plan):
    truth = {}
    for k in (10, 20, 50):
        scores = RunoffClassifier(RIDGE, n_partitions=k, classes=range(10)).fit(X[TRAIN], Y[TRAIN]).scores(X[TEST])
        for election in ("plurality", "runoff", "maximin"):
            certificates = runoff.certify(scores, election=election)
            truth[k, election] = runoff.certified_accuracy(certificates, Y[TEST], [0, 2, 9])
    for choice in plan:
        measured = truth[choice.n_partitions, choice.election]
        np.testing.assert_allclose(choice.estimate.certified, measured, atol=0.1)
    for i, budget in ((1, 2), (2, 9)):
        best = plan.best(budget)
        assert truth[best.n_partitions, best.election][i] > max(found[i] for found in truth.values()) - 0.03
    assert plan.best(9).n_partitions == 50  # not 20, the smallest whose radius can be 9
    assert truth[50, "runoff"][2] > truth[20, "runoff"][2] + 0.1


def test_members_see_the_features_of_a_shared_transformer():
    shared = make_pipeline(StandardScaler(), PCA(20))
    classifier = RunoffClassifier(RIDGE, threat="labels", shared=shared, classes=range(10), n_partitions=10)
    (choice,) = runoff.plan(X[TRAIN], Y[TRAIN], classifier, budgets=2, n_partitions=[10], elections=["runoff"])
    certificates = classifier.fit(X[TRAIN], Y[TRAIN]).certify(X[TEST])
    truth = runoff.certified_accuracy(certificates, Y[TEST], [0, 2])
    np.testing.assert_allclose(choice.estimate.certified, truth, atol=0.05)


@pytest.mark.parametrize("spread", [1, 2, 3])
def test_the_largest_radius_is_that_of_unanimous_members(spread):
    classifier = RunoffClassifier(RIDGE, spread=spread)
    (choice,) = runoff.plan(X[:300], Y[:300], classifier, budgets=1, n_partitions=[9], elections=["runoff"])
    members = RunoffClassifier(RIDGE, n_partitions=9, spread=spread).fit(X[:300], Y[:300]).partition_.spread
    unanimous = np.repeat(np.eye(2)[:, None], 9 * spread, axis=1)
    assert runoff.certify(unanimous, spread=members).radius.min() == choice.largest_radius


def test_a_plan_is_a_table(plan):
    assert [(choice.n_partitions, choice.samples_per_member) for choice in plan[::3]] == [(10, 140), (20, 70), (50, 28)]
    assert plan[0].largest_radius == 4
    assert len(plan) == len(list(plan)) == 9
    frame = plan.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert len(frame) == 27
    row = frame[(frame.n_partitions == 50) & (frame.election == "runoff") & (frame.budget == 9)].iloc[0]
    assert (row.certified_accuracy, row.standard_error) == plan[7].certified(9)
    text = str(plan)
    assert (
        f"\n9 edits: n_partitions=50, election='{plan.best(9).election}' ({100 * plan.best(9).certified(9)[0]:.1f} %"
        in text
    )
    assert "\nn_partitions=1000 is left out: 1,400 samples are less than 2 per member on average" in text
    assert max(map(len, text.splitlines())) < 125
    assert str(plan[0]).startswith("n_partitions=10, election='plurality': estimated certified accuracy")
    with pytest.raises(ValueError, match=r"budget must be one of those planned for \(0, 2, 9\), got 3"):
        plan.best(3)


def test_what_cannot_be_planned():
    with pytest.raises(ValueError, match=r"got none: n_partitions=5000: 200 samples are .* use at most 100 partitions"):
        runoff.plan(X[:200], Y[:200], n_partitions=[5000])
    with pytest.raises(ValueError, match="budgets must be non-negative integers, got -1"):
        runoff.plan(X, Y, budgets=-1)
    with pytest.raises(ValueError, match="members must be a whole number of at least 2, got 1"):
        runoff.plan(X, Y, members=1)
    none = runoff.plan(X[:200], Y[:200], RIDGE, budgets=30, n_partitions=[5, 200, 500], elections=["runoff"])
    assert "\nn_partitions=200, 500 are left out: 200 samples are less than 2 per member on average" in str(none)
    assert "30 edits: nothing is certified" in str(none)
    with pytest.raises(ValueError, match=r"for 30 edits: try more partitions \(at least 61\)"):
        none.best(30)
    many = RunoffClassifier(RIDGE, spread=2)
    with pytest.raises(ValueError, match="members needs one bucket per member"):
        runoff.plan(X[:200], Y[:200], many, members=5, n_partitions=[10])
    assert len(runoff.plan(X[:200], Y[:200], many, n_partitions=[5], elections=["plurality"])) == 1  # spread is kept


def test_few_members_give_about_the_same_with_larger_errors(plan):
    few = runoff.plan(X[TRAIN], Y[TRAIN], RIDGE, budgets=(2, 9), n_partitions=(50,), members=15)
    for choice, full in zip(few, plan[6:], strict=True):
        difference = np.abs(choice.estimate.certified - full.estimate.certified)
        assert (difference < 4 * np.hypot(choice.estimate.errors, full.estimate.errors)).all()
        assert (choice.estimate.errors > full.estimate.errors).all()
        assert choice.estimate.members == pytest.approx(full.estimate.members, abs=0.05)


def test_extrapolation_repeats_ballots_of_members_that_have_not_seen_the_sample():
    scores = np.tile([3.0, 2.0, 1.0], (4, 5, 1))  # 5 of 20 members, all for class 0
    scores[:, 2] = [1.0, 2.0, 3.0]
    learnt = scores.copy()
    learnt[[0, 1], [2, 3]] = [1.0, 9.0, 2.0]  # samples 0 and 1 are those of members 2 and 3
    given = [
        estimates.extrapolated(s, [0, 0, 0, 1], [2, 3, 17, 18], [0, 4, 9], n_members=20).certified
        for s in (scores, learnt)
    ]
    np.testing.assert_array_equal(*given)
    # Sample 0: 19 of 19 for class 0. Sample 1: 14 of 19. Sample 2: 15 of 19. Sample 3: wrong.
    np.testing.assert_array_equal(given[0], [0.75, 0.75, 0.25])


def test_plans_for_sources_and_for_labels():
    """A plan counts what the classifier counts; of a source that all members' neighbours know, nothing is held out."""
    x, y = X[:700], Y[:700]
    groups = np.array([f"client {i}" for i in np.random.default_rng(1).zipf(1.6, 700) % 120])
    settings = {"budgets": (2,), "n_partitions": (10, 20), "elections": ["runoff"]}
    by_source = runoff.plan(x, y, RIDGE, groups=groups, **settings)
    assert [choice.unit for choice in by_source] == ["sources", "sources"]
    fitted = RunoffClassifier(RIDGE, n_partitions=20, classes=range(10)).fit(x, y, groups)
    expected = estimates.of_classifier(fitted, x, y, [0, 2], groups=groups)
    np.testing.assert_array_equal(by_source[1].estimate.certified, expected.certified)
    text, largest = str(by_source), np.unique(groups, return_counts=True)[1].max() / 7
    assert text.startswith("Estimated certified accuracy in % by number of sources, on 700 training samples")
    assert "\n2 sources: n_partitions=" in text
    assert f"sources, the largest with {largest:.1f}% of the samples" in text
    assert by_source[0].balance.endswith("of the samples")
    assert by_source.to_frame().attrs == {"unit": "sources"}
    shared = make_pipeline(StandardScaler())
    labels = RunoffClassifier(RIDGE, threat="labels", shared=shared, classes=range(10))
    by_label = runoff.plan(x, y, labels, **settings)
    assert "by number of changed labels" in str(by_label)
    assert "Inserted and deleted samples are not covered." in str(by_label)
    fitted = RunoffClassifier(**labels.get_params(deep=False) | {"n_partitions": 20}).fit(x, y)
    expected = estimates.of_classifier(fitted, x, y, [0, 2])
    np.testing.assert_array_equal(by_label[1].estimate.certified, expected.certified)


def test_a_balanced_plan_counts_rare_classes_like_frequent_ones():
    rare = np.flatnonzero(Y == 1)[:60]
    rows = np.sort(np.concatenate([rare, np.flatnonzero(Y != 1)[:1200]]))
    x, y = X[rows], (Y[rows] == 1).astype(int)
    settings = {"budgets": 3, "n_partitions": (30,), "elections": ["runoff"]}
    (plain,), (balanced,) = (runoff.plan(x, y, RIDGE, balanced=b, **settings) for b in (False, True))
    assert plain.certified(3)[0] > 0.9 > balanced.certified(3)[0] + 0.2
    assert "mean of the classes" in str(runoff.plan(x, y, RIDGE, balanced=True, **settings))
    fitted = RunoffClassifier(RIDGE, n_partitions=30, classes=[0, 1]).fit(x, y)
    by_class = [estimates.of_classifier(fitted, x[y == c], y[y == c], [0, 3]).certified for c in (0, 1)]
    scores, buckets = np.asarray(fitted.scores(x)), fitted._buckets
    every = estimates.out_of_part(scores, y, buckets, [0, 3], balanced=True)
    np.testing.assert_allclose(every.certified, np.mean(by_class, axis=0))
    # all samples of the rare class are among those that are certified, so its share is exact
    assert balanced.estimate.certified[1] == pytest.approx(every.certified[1], abs=0.01)
    few = runoff.plan(x, y, RIDGE, balanced=True, members=20, **settings)[0]
    assert few.certified(3)[0] < 0.8 < runoff.plan(x, y, RIDGE, members=20, **settings)[0].certified(3)[0]


def test_texts_and_labels_of_any_type():
    texts, labels = [f"sample{i} digit{y}" for i, y in enumerate(Y[:300])], [f"digit {y}" for y in Y[:300]]
    assert runoff.plan(texts, labels, n_partitions=[5], budgets=[1])[0].estimate.members > 0.5


def test_certified_scorer_in_scikit_learns_tools():
    scorer = runoff.certified_scorer(2)
    classifier = RunoffClassifier(RIDGE, classes=range(10))
    search = GridSearchCV(classifier, {"n_partitions": [3, 10]}, scoring=scorer, cv=2).fit(X[:600], Y[:600])
    assert search.best_params_ == {"n_partitions": 10}
    half = RunoffClassifier(RIDGE, n_partitions=10, classes=range(10)).fit(X[:300], Y[:300])
    expected = runoff.certified_accuracy(half.certify(X[300:600]), Y[300:600], [2])[0]
    split = [(np.arange(300), np.arange(300, 600))]
    assert cross_val_score(half, X[:600], Y[:600], scoring=scorer, cv=split)[0] == expected
    assert repr(scorer) == "certified_scorer(2)"
    with pytest.raises(ValueError, match="budget must be a whole number of at least 0, got -1"):
        runoff.certified_scorer(budget=-1)
    with pytest.raises(ValueError, match=r"needs a RunoffClassifier or a TorchClassifier, got Pipeline: put pipelines"):
        scorer(make_pipeline(StandardScaler(), classifier), X, Y)


def test_dir_lists_what_is_imported_on_first_use():
    assert set(runoff.__all__) <= set(dir(runoff))
    assert all(getattr(runoff, name) is not None for name in dir(runoff))
    assert not {"Any", "TYPE_CHECKING", "import_module", "_LATER"} & {*dir(runoff)}


def test_plan_does_not_warn_of_members_without_samples_but_shows_how_little_they_know():
    plan = runoff.plan(X[:60], Y[:60] > 4, RIDGE, budgets=2, n_partitions=(3, 30), elections=("plurality",))
    assert [choice.n_partitions for choice in plan] == [3, 30]  # warnings are errors here
    assert plan[1].estimate.members < plan[0].estimate.members


def test_the_recommendation_certifies_far_more_than_the_smallest_k_that_could():
    """A k whose radius just covers the attack certifies far less than the recommended one."""
    X_cancer, y_cancer = load_breast_cancer(return_X_y=True)
    split = train_test_split(X_cancer, y_cancer, test_size=0.2, random_state=0)
    X_train, X_test, y_train, y_test = split
    best = runoff.plan(X_train, y_train, budgets=9, n_partitions=(20, 100), elections=("runoff",)).best(9)
    assert best.n_partitions == 100
    certified = {}
    for k in (20, 100):
        classifier = RunoffClassifier(n_partitions=k, classes=[0, 1]).fit(X_train, y_train)
        certified[k] = classifier.certify(X_test).certified_accuracy(y_test, 9)[0]
    assert certified[100] > certified[20] + 0.2
