"""Labels are fixed in advance: the effects of labels that appear, vanish or change their type."""

import re
from itertools import combinations

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import runoff
from runoff import RunoffClassifier, report
from runoff.fitting import labels

NEAREST = KNeighborsClassifier(1, algorithm="brute")  # trees store uninitialised memory
pytestmark = pytest.mark.filterwarnings("ignore:.*members learn nothing")  # tiny ensembles, for exhaustive tests
RNG = np.random.default_rng(0)
POINTS = RNG.normal(size=(20, 2))


def states(classifier):
    return [joblib.hash((m.classes.tolist(), m.shares, m.fitted)) for m in classifier.members_]


@pytest.mark.parametrize(("y", "extra"), [([0, 1] * 10, -1), ([0] + [1] * 10 + [2] * 9, None)])
def test_without_classes_nothing_is_certified(y, extra):
    """Both were once certified: inserting -1, or deleting the only 0, flipped predictions with radii of 12 to 17."""
    fitted = RunoffClassifier(NEAREST, n_partitions=50).fit(POINTS, y)
    assert len(fitted.predict(POINTS)) == 20
    sentence = "certify needs all possible labels, fixed in advance: pass classes= to the classifier"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        fitted.certify(POINTS)
    with pytest.raises(ValueError, match=re.escape(sentence)):
        runoff.certify(fitted.scores(POINTS))
    with pytest.raises(ValueError, match=re.escape(sentence)):
        runoff.certify(fitted.scores(POINTS)[3:5])
    with pytest.raises(ValueError, match=re.escape(sentence)):
        report.Source.from_classifier(fitted, POINTS, y)
    known = sorted({*y, *([] if extra is None else [extra])})
    fixed = RunoffClassifier(NEAREST, n_partitions=50, classes=known).fit(POINTS, y)
    assert (fixed.certify(POINTS).radius >= 0).all()


def test_a_saved_classifier_remembers_that_its_labels_were_not_fixed(tmp_path):
    y = [0, 1] * 10
    for classes in (None, [0, 1]):
        RunoffClassifier(LogisticRegression(), n_partitions=3, classes=classes).fit(POINTS, y).save(
            tmp_path / f"{classes}"
        )
    assert (RunoffClassifier.load(tmp_path / "[0, 1]").certify(POINTS).radius >= 0).all()
    with pytest.raises(ValueError, match="certify needs all possible labels"):
        RunoffClassifier.load(tmp_path / "None").certify(POINTS)


def edits(X, y, new, classes):
    """Yield every single edit: each sample deleted or relabelled, each new sample inserted with each label."""
    n = len(y)
    for i in range(n):
        yield np.delete(X, i, axis=0), np.delete(y, i)
        for label in classes:
            if label != y[i]:
                yield X, np.concatenate([y[:i], [label], y[i + 1 :]])
    for point in new:
        for label in classes:
            yield np.concatenate([X, point[None]]), np.concatenate([y, [label]])


@pytest.mark.parametrize(("election", "spread"), [("runoff", 1), ("runoff", 2), ("plurality", 1)])
@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([1] * 12, [-1, 1, 2]),  # two of the labels do not occur
        ([0] + [1] * 8 + [2] * 3, [-1, 0, 1, 2]),  # one sample has the only 0
        ([1, 1, 1, 1, 1, 2] * 2, [0, 1, 2]),
    ],
)
def test_every_label_that_an_attacker_can_use_refitted_for_real(election, spread, y, classes):
    """All one-edit attacks, and two-edit attacks for the inputs that are certified for two, on an ensemble this small.

    Labels appear in front of all others, vanish, and fill empty members; everything is refitted.
    """
    rng = np.random.default_rng(1)
    X, y, inputs, new = rng.normal(size=(12, 1)), np.array(y), rng.normal(size=(6, 1)), rng.normal(size=(4, 1))
    settings = {"n_partitions": 6 // spread + 1, "spread": spread, "election": election, "classes": classes}
    base = RunoffClassifier(NEAREST, **settings).fit(X, y)
    certificates = base.certify(inputs)
    assert certificates.radius.max() >= 1
    tried = 0
    for once in edits(X, y, new, classes):
        now = RunoffClassifier(NEAREST, **settings).fit(*once).predict(inputs)
        safe = certificates.radius >= 1
        np.testing.assert_array_equal(now[safe], certificates.prediction[safe])
        tried += 1
    for first, second in combinations(new, 2) if certificates.radius.max() >= 2 else ():
        for a in classes:
            for b in classes:
                X2, y2 = np.concatenate([X, [first, second]]), np.concatenate([y, [a, b]])
                now = RunoffClassifier(NEAREST, **settings).fit(X2, y2).predict(inputs)
                safe = certificates.radius >= 2
                np.testing.assert_array_equal(now[safe], certificates.prediction[safe])
                tried += 1
    assert tried > 40


@pytest.mark.parametrize("data", [load_iris, load_wine])
def test_the_defaults_hold_on_real_tables_when_labels_vanish_or_take_over(data):
    """Default settings, as in the quick start, but for `classes`: delete or relabel a whole class up to the radius."""
    X, y = data(return_X_y=True)
    test = np.arange(len(y)) % 6 == 0
    train, labels_, inputs = X[~test], y[~test], X[test][:25]
    default = {"classes": [-1, 0, 1, 2]}
    certificates = RunoffClassifier(**default).fit(train, labels_).certify(inputs)
    radius = int(certificates.radius.max())
    assert radius >= 1
    for r in sorted({1, radius}):
        for label in (-1, 2):
            changed = labels_.copy()
            changed[np.flatnonzero(changed != label)[:r]] = label
            keep = np.delete(np.arange(len(labels_)), np.flatnonzero(labels_ == max(label, 0))[:r])
            for rows, now in ((np.arange(len(labels_)), changed), (keep, labels_)):
                again = RunoffClassifier(**default).fit(train[rows], now[rows]).predict(inputs)
                safe = certificates.radius >= r
                np.testing.assert_array_equal(again[safe], certificates.prediction[safe])


BIG = [2**53, 2**53 + 1, 1]


@pytest.mark.parametrize(
    ("classes", "given", "with_edit"),
    [
        (BIG, BIG[:2] * 10, [*BIG[:2] * 10, 1.0]),  # as an array, 2**53 and 2**53 + 1 would be one
        ([0, 1, 2], [False, True] * 10, [*[False, True] * 10, 2]),
        ([False, True], np.array([False, True] * 10), np.array([0, 1] * 10 + [1])),
        ([0, 1], np.array([0, 1] * 10), np.array([0, 1] * 10 + [1.0])),
        (["a", "b", "much longer"], np.array(["a", "b"] * 10), np.array(["a", "b"] * 10 + ["much longer"])),
        (["a", "b"], np.array(["a", "b"] * 10), pd.Series(["a", "b"] * 10 + ["a"], dtype="category")),
        ([0, 1], pd.Series([0, 1] * 10), pd.Series([0, 1] * 10 + [1], dtype="Int8")),
        ([0, 1], np.array([0, 1] * 10), np.array([0, 1] * 10 + [1], dtype=object)),
        (["a", "b"], np.array(["a", "b"] * 10), np.array(["a", "b"] * 10 + ["a"], dtype=object)),
    ],
)
def test_one_label_of_another_type_touches_its_member_only(classes, given, with_edit):
    settings = {"n_partitions": 8, "classes": classes}
    a = RunoffClassifier(NEAREST, **settings).fit(POINTS, given)
    b = RunoffClassifier(NEAREST, **settings).fit(np.concatenate([POINTS, [[9.0, 9.0]]]), with_edit)
    changed = [m for m, (before, after) in enumerate(zip(states(a), states(b), strict=True)) if before != after]
    assert changed == [b._buckets[-1]]
    assert a.classes_.dtype == b.classes_.dtype == labels.sorted_classes(classes).dtype


def test_labels_that_an_array_has_rounded_are_refused():
    rounded = np.array([2**53, 2**53 + 1] * 10 + [1.0])
    X = np.concatenate([POINTS, [[9.0, 9.0]]])
    with pytest.raises(ValueError, match=r"labels must be exact, got .*9007199254740992.0.* in an array of float64"):
        RunoffClassifier(NEAREST, n_partitions=8, classes=BIG).fit(X, rounded)
    with pytest.raises(ValueError, match=r"labels must be exact, got .*2.048e.03.* in an array of float16"):
        RunoffClassifier(NEAREST, n_partitions=8, classes=[0, 2048]).fit(POINTS, np.float16([0, 2048] * 10))


def test_classes_that_cannot_be_distinguished_are_rejected():
    for classes in (np.array([2**53, 2**53 + 1, 1.0]), [2**53, 2**53 + 1, 0.5]):
        with pytest.raises(ValueError, match=r"labels must be exact|classes must stay distinct in one array"):
            RunoffClassifier(NEAREST, classes=classes).fit(POINTS, [1] * 20)
    with pytest.raises(ValueError, match="classes must be all strings or all numbers"):
        RunoffClassifier(NEAREST, classes=[1, "1"]).fit(POINTS, [1] * 20)
    with pytest.raises(ValueError, match="classes must list all possible labels"):
        RunoffClassifier(NEAREST, classes=[]).fit(POINTS, [1] * 20)
    for outside in ("1", 3, 2**53 + 1, 1.5):
        with pytest.raises(ValueError, match=r"y must hold labels from classes=\[0, 1\], got|Unknown label type"):
            RunoffClassifier(NEAREST, classes=[0, 1]).fit(POINTS, [outside] * 20)


def test_classes_in_any_order_and_container_are_the_same():
    y = ["b", "a"] * 10
    given = (
        ["a", "b", "c"],
        ("c", "b", "a"),
        {"b", "a", "c"},
        np.array(["c", "a", "b"]),
        pd.Index(["a", "b", "c", "a"]),
    )
    fitted = [RunoffClassifier(NEAREST, n_partitions=5, classes=classes).fit(POINTS, y) for classes in given]
    for other in fitted:
        assert other.classes_.tolist() == ["a", "b", "c"]
        assert states(other) == states(fitted[0])


def test_members_are_trained_on_the_labels_themselves():
    """A class_weight by label works inside a member."""
    weighted = LogisticRegression(class_weight={"ham": 1.0, "spam": 50.0})
    y = np.where(POINTS[:, 0] > 0.4, "spam", "ham")
    plain, heavy = (
        RunoffClassifier(member, n_partitions=2, classes=["ham", "spam"]).fit(POINTS, y).predict(POINTS)
        for member in (LogisticRegression(), weighted)
    )
    assert (heavy == "spam").sum() > (plain == "spam").sum()


def test_an_update_that_brings_a_label_without_classes_equals_a_fit():
    fitted = RunoffClassifier(NEAREST, n_partitions=5).fit(POINTS[:18], ["a", "b"] * 9)
    fitted.update(add=(POINTS[18:], ["much longer", "a"]))
    assert fitted.updated_members_.tolist() == [0, 1, 2, 3, 4]
    assert states(fitted) == states(
        RunoffClassifier(NEAREST, n_partitions=5).fit(POINTS, [*["a", "b"] * 9, "much longer", "a"])
    )
    with pytest.raises(ValueError, match="y must hold labels like 'a' as in fit, got 3"):
        fitted.update(add=(POINTS[:1], [3]))
