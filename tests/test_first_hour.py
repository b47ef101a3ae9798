"""First steps with the Python API: baselines, warnings, and errors that say what to do."""

import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from runoff import RunoffClassifier
from runoff.errors import FittedInFrontWarning, InputError

X, Y = load_digits(return_X_y=True)
X, Y, NEW, NEW_Y = X[:700], Y[:700], X[700:900], Y[700:900]


def fitted(**settings):
    return RunoffClassifier(
        **{"estimator": RidgeClassifier(alpha=100), "n_partitions": 9, "classes": range(10)} | settings
    )


def test_the_undefended_baseline_is_one_model_on_all_samples(tmp_path):
    classifier = fitted().fit(X, Y)
    undefended = classifier.fit_undefended()
    alone = RidgeClassifier(alpha=100).fit(X, Y)
    np.testing.assert_array_equal(undefended.predict(NEW), alone.predict(NEW))
    assert undefended.score(NEW, NEW_Y) == alone.score(NEW, NEW_Y)
    assert not undefended.certify(NEW).radius.any()
    assert len(classifier.members_) == 9  # the ensemble is unchanged
    classifier.save(tmp_path / "model")
    loaded = RunoffClassifier.load(tmp_path / "model")
    with pytest.raises(InputError, match=r"pass them, as in fit_undefended\(X, y\)"):
        loaded.fit_undefended()
    np.testing.assert_array_equal(loaded.fit_undefended(X, Y).predict(NEW), undefended.predict(NEW))


def test_the_undefended_baseline_of_texts_and_networks(tmp_path):
    from runoff.torch import TorchClassifier

    texts = [f"{how} film {i}" for i in range(12) for how in ("good", "bad")]
    classifier = RunoffClassifier(n_partitions=3, classes=[0, 1]).fit(texts, [1, 0] * 12)
    assert classifier.fit_undefended().predict(["a good one", "a bad one"]).tolist() == [1, 0]
    images, stored = X[:60].reshape(-1, 8, 8), tmp_path / "networks"
    networks = TorchClassifier(n_partitions=2, classes=range(10), device="cpu", checkpoints=stored, progress=False)
    networks.fit(images, Y[:60])
    kept = {path.name for path in stored.rglob("*")}
    assert networks.fit_undefended().predict(images[:5]).shape == (5,)
    assert {path.name for path in stored.rglob("*")} == kept  # a baseline deletes no member


GAPS = np.where(np.random.default_rng(0).random(X.shape) < 0.05, np.nan, X)


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler(), RidgeClassifier()),
        make_pipeline(StandardScaler(), SimpleImputer(keep_empty_features=True), RidgeClassifier()),
        make_pipeline(FunctionTransformer(np.nan_to_num), RidgeClassifier()),
        make_pipeline(StandardScaler(), DecisionTreeClassifier()),
        BaggingClassifier(make_pipeline(SimpleImputer(keep_empty_features=True), DecisionTreeClassifier()), 2),
        DecisionTreeClassifier(),
        None,
    ],
)
def test_missing_values_are_handled_inside_members(estimator):
    classifier = fitted(estimator=estimator, n_partitions=3).fit(GAPS, Y)
    certificates = classifier.certify(GAPS[:50])
    assert certificates.certified_accuracy(Y[:50], 0) > 0.6
    frame = fitted(estimator=estimator, n_partitions=3).fit(pd.DataFrame(GAPS), Y).certify(pd.DataFrame(GAPS[:50]))
    np.testing.assert_array_equal(frame.radius, certificates.radius)


@pytest.mark.parametrize(
    "estimator",
    [RidgeClassifier(), make_pipeline(StandardScaler(), RidgeClassifier()), VotingClassifier([("a", SVC())])],
)
def test_missing_values_are_refused_with_the_right_way(estimator):
    with pytest.raises(
        ValueError, match=rf"X contains NaN, which {type(estimator).__name__} does not .* put an imputer inside"
    ):
        fitted(estimator=estimator).fit(GAPS, Y)
    with pytest.raises(ValueError, match="X contains NaN, which the default estimator for sparse X"):
        fitted(estimator=None).fit(sparse.csr_matrix(GAPS), Y)


def test_members_that_learn_nothing_are_counted_and_warned_of(tmp_path):
    with pytest.warns(UserWarning, match="members learn nothing") as caught:
        classifier = fitted(n_partitions=1000).fit(X[:200], Y[:200])
    rows, codes = classifier.partition_.rows(classifier._buckets, classifier._digests, Y[:200]), Y[:200]
    empty, single = sum(len(r) == 0 for r in rows), sum(len({*codes[r]}) == 1 for r in rows)
    assert empty + single == sum(not member.fitted for member in classifier.members_)
    assert (
        f"{empty + single} of 1,000 members learn nothing: {empty} have no samples and {single} have samples of one"
        in str(caught[0].message)
    )
    assert "use fewer partitions for 200 samples; runoff.plan compares them" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert classifier.balance().endswith(f"{empty} without any, {single} with one class only")
    classifier.save(tmp_path / "model")
    assert RunoffClassifier.load(tmp_path / "model").balance() == classifier.balance()
    assert fitted().fit(X, Y).balance().endswith(" 0 without any")


def test_texts_that_are_missing_are_named():
    texts = [f"{how} film {i}" for i in range(10) for how in ("good", "bad")]
    for value, shown in ((None, "a missing value"), (float("nan"), "a missing value"), (7, "a int"), (["a"], "a list")):
        for kind in (list, pd.Series, lambda given: np.array(given, dtype=object)):
            if isinstance(value, list) and kind is not list:
                continue
            with pytest.raises(ValueError, match=f"texts must be strings, got {shown} for text 3: use ''") as caught:
                RunoffClassifier(n_partitions=2, classes=[0, 1]).fit(kind([*texts[:3], value, *texts[4:]]), [1, 0] * 10)
            assert len(str(caught.value)) < 120
    classifier = RunoffClassifier(n_partitions=2, classes=[0, 1]).fit(texts, [1, 0] * 10)
    with pytest.raises(ValueError, match="a missing value for text 1"):
        classifier.predict(["good", None])


class First(ClassifierMixin, BaseEstimator):
    """Predict the first class, whatever X is."""

    def fit(self, X, y):  # noqa: ARG002
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.repeat(self.classes_[:1], X.shape[0])

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags


FIRST = First()
NORMED = Normalizer().fit_transform(X + 0.37)
TFIDF = TfidfVectorizer().fit_transform([f"sign{i % 7} word{i % 11} word{i % 5} a{i}" for i in range(200)])
WIDE = np.random.default_rng(1).normal(size=(300, 40))


@pytest.mark.parametrize(
    ("x", "step"),
    [
        (StandardScaler().fit_transform(X), "StandardScaler"),
        (StandardScaler().fit_transform(X).astype(np.float32), "StandardScaler"),
        (StandardScaler().fit_transform(GAPS), "StandardScaler"),
        (pd.DataFrame(StandardScaler().fit_transform(X)).add_prefix("x").assign(name="a"), "StandardScaler"),
        (((X - X.mean()) / X.std()).reshape(-1, 8, 8), "StandardScaler"),
        (NORMED, "TfidfVectorizer"),
        (TFIDF, "TfidfVectorizer"),
        (TFIDF.toarray(), "TfidfVectorizer"),
    ],
)
def test_a_step_fitted_in_front_is_warned_of(x, step):
    y = Y[: x.shape[0]]
    with pytest.warns(FittedInFrontWarning, match=f"as {step} makes them; if it was fitted on all samples") as caught:
        fitted(estimator=FIRST).fit(x, y)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():  # as the message says
        warnings.filterwarnings("ignore", category=FittedInFrontWarning)
        fitted(estimator=FIRST).fit(x, y)


@pytest.mark.parametrize(
    "x",
    [
        X,
        X / 16,
        WIDE,
        (WIDE - WIDE.mean(axis=0)) * 3,
        (WIDE - 0.01) / WIDE.std(axis=0),
        StandardScaler().fit_transform(WIDE)[:200],  # can no longer be detected
        Normalizer().fit_transform(X),  # of whole numbers, row by row
        np.eye(10)[Y],
        np.where(np.arange(300)[:, None] // [1, 2, 4, 8] % 2, 1.0, -1.0)[:288],  # a design: mean 0 and deviation 1
        HashingVectorizer(n_features=64).fit_transform(["a b b c", "b c d", "d d e"] * 10),
        np.ones((30, 4)),
    ],
)
def test_no_warning_without_a_step_in_front(x):
    fitted(estimator=FIRST, n_partitions=1).fit(x, Y[: x.shape[0]])


def test_a_pipeline_around_is_warned_of_and_trusted_samples_are_not():
    with pytest.warns(FittedInFrontWarning, match="put it inside"):
        make_pipeline(StandardScaler(), fitted()).fit(X, Y)
    fitted(threat="labels").fit(StandardScaler().fit_transform(X), Y)


def test_a_column_of_texts_is_warned_of():
    words = pd.Series([f"{'win money' if y else 'see you'} {i}" for i, y in enumerate(Y[:60] > 4)])
    table = pd.DataFrame({"text": words, "length": words.str.len(), "day": ["Monday", "Friday"] * 30})
    settings = {"n_partitions": 3, "classes": [False, True]}
    with pytest.warns(UserWarning, match="the column 'text' has a different string in most rows") as caught:
        RunoffClassifier(**settings).fit(table, Y[:60] > 4)
    assert [(warning.filename, "as categories" in str(warning.message)) for warning in caught] == [(__file__, True)]
    columns = make_column_transformer((TfidfVectorizer(), "text"), remainder="drop")
    for estimator, x in (
        (None, table.drop(columns="text")),
        (None, table[:15]),
        (make_pipeline(columns, RidgeClassifier()), table),
        (None, list(words)),
    ):
        RunoffClassifier(estimator, **settings).fit(x, Y[: len(x)] > 4)


class Types(First):
    """Record the types of the training data and of the inputs."""

    def fit(self, X, y):
        self.types_ = [np.dtype(X.dtype if hasattr(X, "dtype") else X.dtypes.iloc[0]).name]
        return super().fit(X, y)

    def predict(self, X):
        self.types_.append(np.dtype(X.dtype if hasattr(X, "dtype") else X.dtypes.iloc[0]).name)
        return super().predict(X)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, pd.DataFrame])
def test_members_see_numbers_in_a_type_that_is_fixed_beforehand(form):
    for dtype, seen in (("float32", "float32"), (np.float64, "float64"), (None, "float64")):
        for given in (np.float32, np.float64, np.uint8):
            classifier = fitted(estimator=Types(), dtype=dtype, n_partitions=3).fit(form(X.astype(given)), Y)
            classifier.predict(form(NEW.astype(given)))
            assert {name for member in classifier.members_ for name in member.fitted[0].types_} == {seen}
    exact = X + 1e-12 * np.arange(len(X))[:, None]  # equal as float32, and still other contents
    a, b = (fitted(dtype=dtype).fit(exact, Y) for dtype in (None, "float32"))
    np.testing.assert_array_equal(a._buckets, b._buckets)
    assert a._training_sets == b._training_sets
    with pytest.raises(InputError, match="dtype must be 'float32', 'float64' or None, got 'int8'"):
        fitted(dtype="int8").fit(X, Y)


def test_float32_survives_updates_saving_and_values_that_are_too_large(tmp_path):
    classifier = fitted(dtype="float32").fit(X, Y)
    again = fitted(dtype="float32").fit(X[:600], Y[:600]).update(add=(X[600:], Y[600:]))
    np.testing.assert_array_equal(again.scores(NEW), classifier.scores(NEW))
    classifier.save(tmp_path / "model")
    loaded = RunoffClassifier.load(tmp_path / "model")
    assert loaded.dtype == "float32"
    np.testing.assert_array_equal(loaded.scores(NEW), classifier.scores(NEW))
    assert not np.array_equal(fitted().fit(X, Y).scores(NEW), classifier.scores(NEW))
    with pytest.warns(UserWarning, match=r"member \d votes by its class shares"):
        broken = fitted(dtype="float32").fit(np.concatenate([X, np.full((1, 64), 1e300)]), np.append(Y, 0))
    assert sum(member.refused is not None for member in broken.members_) == 1


def test_a_skorch_network_learns_from_float32():
    skorch = pytest.importorskip("skorch")
    import torch

    network = skorch.NeuralNetClassifier(
        torch.nn.Linear, module__in_features=64, module__out_features=10, criterion=torch.nn.CrossEntropyLoss,
        max_epochs=1, train_split=None, verbose=0,
    )  # fmt: skip
    network.set_params(classes=range(10))
    classifier = fitted(estimator=network, dtype="float32", n_partitions=2).fit(X.astype(np.float32), Y)
    assert not any(member.refused for member in classifier.members_)
    assert classifier.predict(NEW.astype(np.float32)).shape == (200,)


@pytest.mark.parametrize("election", ["plurality", "runoff", "maximin"])
def test_shares_of_votes_agree_with_the_prediction(election):
    classifier = fitted(n_partitions=30, election=election).fit(X, Y)
    shares = classifier.decision_function(NEW)
    predicted = classifier.predict(NEW)
    np.testing.assert_array_equal(shares.argmax(axis=1), predicted)
    first = classifier.scores(NEW).values.argmax(axis=2)
    np.testing.assert_allclose(shares, np.stack([(first == c).mean(axis=1) for c in range(10)], axis=1), atol=0.5)
    plain = shares.sum(axis=1) < 1 + 1e-9
    np.testing.assert_allclose(shares[plain].max(axis=1), (first == predicted[:, None]).mean(axis=1)[plain])
    assert election == "plurality" or not plain.all()  # another class had more first choices
    two = fitted(classes=[0, 1], election=election).fit(X, (Y > 4).astype(int))
    margin = two.decision_function(NEW)
    np.testing.assert_array_equal(margin > 0, two.predict(NEW) == 1)
    assert -1 <= margin.min() < 0 < margin.max() <= 1
    assert roc_auc_score(NEW_Y > 4, margin) > 0.8


def test_arguments_of_fit_that_cannot_be_used():
    with pytest.raises(InputError, match="sample_weight is not supported, since radii count samples"):
        fitted().fit(X, Y, sample_weight=np.ones(len(X)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weights'"):
        fitted().fit(X, Y, weights=1)


def test_verbose_shows_progress(capsys):
    quiet = fitted().fit(X, Y)
    assert capsys.readouterr().err == ""
    shown = fitted(verbose=True).fit(X, Y)
    assert capsys.readouterr().err == "training members: 9 of 9\n"
    np.testing.assert_array_equal(quiet.scores(NEW), shown.scores(NEW))


def test_the_page_on_the_first_hour_names_tests_that_exist():
    tests = Path(__file__).parent
    page = (tests.parent / "docs" / "first-hour.md").read_text().split("## A second first hour")[0]
    shown = [line.split("|")[2] for line in page.splitlines() if line.startswith("|") and "`" in line.split("|")[2]]
    named = {name for cell in shown for name in re.findall("`([a-z_/]+\\.py|[a-z_]+)`", cell)}
    source = "\n".join(path.read_text() for path in tests.rglob("test_*.py"))
    for name in named:
        known = (tests / name).is_file() if name.endswith(".py") else re.search(f"def test_{name}", source)
        assert known, name
    assert len(named) > 30
