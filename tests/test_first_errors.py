"""First mistakes with the Python API: each error is one sentence with what was expected, what was given and the fix."""

import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import runoff
from runoff import RunoffClassifier
from runoff.errors import InputError, MemberError

X, Y = load_iris(return_X_y=True)
SCORES = np.random.default_rng(0).random((20, 5, 3))


def fit(*data, **settings):
    return RunoffClassifier(**{"n_partitions": 5} | settings).fit(*(data or (X, Y)))


def plan(**settings):
    return runoff.plan(X, Y, LogisticRegression(), **{"n_partitions": [5], "budgets": 1} | settings)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: fit(pd.DataFrame(X, columns=["a", "b", "a", "c"]), Y),
            "X must have columns of different names, got 'a' twice: rename one of them",
        ),
        (lambda: plan(n_partitions=("a",)), "n_partitions must be whole numbers of at least 1, as in .*, got ('a',)"),
        (lambda: plan(n_partitions="20"), "n_partitions must be whole numbers of at least 1, as in .*, got '20'"),
        (lambda: plan(n_partitions=()), "n_partitions must be whole numbers of at least 1, as in .*, got ()"),
        (lambda: plan(n_partitions=[0]), "n_partitions must be whole numbers of at least 1, as in .*, got [0]"),
        (lambda: plan(n_partitions=[10.5]), "n_partitions must be whole numbers of at least 1, as in .*, got [10.5]"),
        (lambda: plan(n_partitions=None), "n_partitions must be whole numbers of at least 1, as in .*, got None"),
        (lambda: plan(elections=()), "elections must name at least one of 'maximin', 'plurality', 'runoff', got none"),
        (lambda: plan(elections="run-off"), "election must be one of 'maximin', 'plurality', 'runoff', got 'run-off'"),
        (lambda: plan(elections=3), "election must be one of 'maximin', 'plurality', 'runoff', got 3"),
        (lambda: plan(members="a"), "members must be a whole number of at least 2, got 'a'"),
        (lambda: plan(members=2.5), "members must be a whole number of at least 2, got 2.5"),
        (lambda: runoff.plan(X, None), "the target y is None: pass one label per sample"),
        (lambda: runoff.plan(X, Y, LogisticRegression), "got the class LogisticRegression: write LogisticRegression()"),
        (lambda: fit(classes=10), "classes must list all possible labels, got 10: write classes=range(10)"),
        (lambda: fit(classes="abc"), "classes must list all possible labels, got 'abc': write them as in classes=["),
        (lambda: fit(classes=[]), "classes must list all possible labels, got []"),
        (lambda: fit(classes=[[0, 1]]), "classes must list all possible labels, got [[0, 1]]"),
        (lambda: fit(classes=2.5), "classes must list all possible labels, got 2.5"),
        (lambda: fit(estimator=LogisticRegression), "estimator must be an instance, got the class LogisticRegression"),
        (lambda: fit(estimator="svm"), "estimator must be a scikit-learn classifier, got 'svm': pass one such as"),
        (lambda: fit(estimator=print), "estimator must be a scikit-learn classifier, got <built-in function print>"),
        (lambda: fit(estimator=StandardScaler()), "a scikit-learn classifier, got StandardScaler without predict"),
        (lambda: fit(estimator=Ridge()), "estimator must be a classifier, since members vote for classes, got the "
         "regressor Ridge: pass one such as LogisticRegression()"),
        (lambda: fit(estimator=make_pipeline(StandardScaler(), Ridge())), "got the regressor Pipeline"),
        (lambda: fit(estimator=KMeans(3)), "got the clusterer KMeans"),
        (lambda: fit(X, None), "the target y is None: pass one label per sample"),
        (lambda: fit(X, "abc"), "y must be one label per sample, a 1d array, got shape ()"),
        (lambda: fit(X, np.eye(3)[Y]), "got shape (150, 3): if it has one column per class, pass y.argmax(axis=1)"),
        (lambda: fit(X, X[:, 0]), "y must hold class labels, got numbers such as 5.1 (Unknown label type: cont"),
        (lambda: fit(X, np.where(Y == 1, np.nan, Y)), "Input y contains NaN: give every sample a label"),
        (lambda: fit(None, Y), "X must have one row per sample, got None"),
        (lambda: fit(X[:, 0], Y), "X must have one row per sample, got shape (150,). Reshape your data"),
        (lambda: fit(X.reshape(-1, 2, 2), Y).predict(X), "must hold samples of shape (2, 2) as in fit, got shape (1"),
        (lambda: fit(pd.DataFrame(X), Y).predict(X), "be a table with the columns 0, 1, 2, 3, as in fit, got an array"),
        (lambda: fit().predict(sparse.csr_matrix(X)), "an array of shape (n, 4), as in fit, got a sparse matrix of"),
        (lambda: fit().predict(X[0]), "got shape (4,). Reshape your data: .* if it is a single sample"),
        (lambda: runoff.certified_accuracy(runoff.certify(SCORES), ["a"] * 20, 1), "y_true must be class indices "
         "(integers), got dtype <U1: these certificates have no names of classes; give them names with"),
        (lambda: runoff.out_of_part(SCORES, ["a"] * 20, [0] * 20, 1), "shape (20,) and dtype <U1: pass class indices"),
        (lambda: runoff.certify(SCORES).named(["a", "b"]), "classes must name each of 3 classes, got shape (2,)"),
    ],
)  # fmt: skip
def test_mistakes_get_one_sentence(call, sentence):
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert re.search(re.escape(sentence).replace(r"\.\*", ".*"), message)
    assert "\n" not in message
    assert len(message) < 260
    assert caught.value.__suppress_context__ or caught.value.__context__ is None  # one traceback, not two


def test_a_single_number_or_election_is_a_list_of_one():
    one = plan(n_partitions=5, elections="runoff")
    assert [(choice.n_partitions, choice.election) for choice in one] == [(5, "runoff")]
    assert plan(n_partitions=np.int64(5), elections=runoff.elections.get("runoff"))[0].estimate.certified.tolist() == (
        one[0].estimate.certified.tolist()
    )


def test_names_given_to_certificates_of_scores_are_those_of_labels():
    certificates = runoff.certify(SCORES)
    named = certificates.named(["ant", "bee", "cow"])
    y = np.arange(20) % 3
    labels = np.array(["ant", "bee", "cow"])[y]
    np.testing.assert_array_equal(named.certified_accuracy(labels, [0, 1]), certificates.certified_accuracy(y, [0, 1]))


class Unusual(ClassifierMixin):
    """A classifier without scikit-learn's base class, as in other libraries."""

    def get_params(self, deep=True):  # noqa: ARG002
        return {}

    def set_params(self):
        return self

    def fit(self, X, y):  # noqa: ARG002
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.repeat(self.classes_[:1], len(X))

    def __sklearn_tags__(self):
        return LogisticRegression().__sklearn_tags__()


def test_probabilities_are_absent_with_a_reason():
    classifier = fit(classes=range(3))
    assert not hasattr(classifier, "predict_proba")
    with pytest.raises(AttributeError, match=r"RunoffClassifier has no predict_proba, .*: use decision_function\(X\)"):
        classifier.predict_proba(X)


def test_classifiers_of_other_libraries_are_no_mistake():
    assert fit(estimator=Unusual(), classes=range(3)).predict(X[:2]).shape == (2,)


def test_members_that_cannot_be_trained_are_explained_where_fit_was_called():
    with pytest.warns(UserWarning, match="no member could be trained") as caught:
        classifier = fit(estimator=LogisticRegression(C=-1), classes=range(3))
    assert caught[0].filename == __file__
    told = "Got -1 instead; check that the estimator alone can be fitted on a few of these samples, as in clone"
    assert told in str(caught[0].message)
    with pytest.raises(MemberError, match=re.escape(told)):
        classifier.certify(X)
    with pytest.warns(UserWarning, match="no member could be trained") as caught:
        classifier.update(add=(X[:1] + 1, Y[:1]))
    assert caught[0].filename == __file__
    texts = pd.DataFrame({"name": ["a", "b", "c"] * 50})
    with pytest.warns(UserWarning, match="no member could be trained.*; check that the estimator alone"):
        fit(texts, Y, estimator=LogisticRegression(), classes=range(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(classes=range(3))


class NeedsFloat32(Unusual):
    """A classifier that raises PyTorch's error for float64, as networks in skorch do."""

    def fit(self, X, y):
        if X.dtype != np.float32:
            raise RuntimeError("mat1 and mat2 must have the same dtype, but got Double and Float")
        return super().fit(X, y)


def test_members_that_cannot_be_trained_on_these_numbers_are_explained_with_the_right_way():
    gaps = pd.DataFrame(np.where(X < 0.3, np.nan, X))
    with pytest.warns(UserWarning, match="Input X contains NaN; put an imputer inside, as in Runoff") as caught:
        fit(gaps, Y, estimator=LogisticRegression(), classes=range(3))
    assert "\n" not in str(caught[0].message)
    with pytest.warns(UserWarning, match="got Double and Float; members get float64 unless dtype='float32' is set"):
        fit(estimator=NeedsFloat32(), classes=range(3))
    assert fit(estimator=NeedsFloat32(), classes=range(3), dtype="float32").certify(X).radius.shape == (150,)


def test_public_modules_need_no_import_of_their_own():
    program = (
        "import sys, runoff; light = {*sys.modules}; names = {*dir(runoff)}; assert not {'torch', 'sklearn'} & light; "
        "print(runoff.heads.RidgeHead.__name__, runoff.errors.InputError.__name__, runoff.spreads.__name__, "
        "runoff.datasets.NAMES[0], runoff.verify.run.__name__, {'heads', 'torch', 'datasets', 'report'} <= names)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["RidgeHead", "InputError", "runoff.spreads", "digits", "run", "True"]
