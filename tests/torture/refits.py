"""Real refits after hostile edits: members that an edit does not reach must stay the same, bit for bit.

Every classifier of scikit-learn, some pipelines, and those of other libraries where they are installed: each is fitted
on a small dataset, then again after each edit. Members outside the spread of the edited buckets must give the same
scores, and predictions whose radius is at least the number of edits must stay; no edit may end in an error.
"""

import importlib.util
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import runoff
from tests.torture import units
from tests.torture.pool import share_out
from tests.torture.tally import Tally

CLASSES = [0, 1, 2]
ROUNDS = 6  # datasets at scale 1
SMALLER = {
    "n_estimators": 4,
    "max_iter": 30,
    "cv": 2,
    "n_restarts_optimizer": 0,
    "min_samples_leaf": 2,
    "Cs": 2,
    "n_iter_no_change": 3,
}


def estimators(defaults: bool) -> dict[str, Callable[[], Any]]:
    """Unfitted estimators by name: small ones, or with the settings that a user gets."""
    from sklearn import utils

    found: dict[str, Callable[[], Any]] = {}
    for name, kind in utils.all_estimators(type_filter="classifier"):
        if name in ("MultiOutputClassifier", "ClassifierChain", "DummyClassifier", "RadiusNeighborsClassifier"):
            continue
        found[name] = _made(name, kind, defaults)
    found |= {name: make for name, make in _pipelines().items() if not defaults}
    return found | {name: make for name, make in _others().items() if not defaults}


def _made(name: str, kind: Any, defaults: bool) -> Callable[[], Any]:
    def make() -> Any:
        from sklearn.linear_model import LogisticRegression
        from sklearn.naive_bayes import GaussianNB
        from sklearn.tree import DecisionTreeClassifier

        inner = DecisionTreeClassifier(max_depth=3)
        special: dict[str, Callable[[], Any]] = {
            "VotingClassifier": lambda: kind([("a", GaussianNB()), ("b", inner)]),
            "StackingClassifier": lambda: kind([("a", GaussianNB()), ("b", inner)], cv=2),
            "FixedThresholdClassifier": lambda: kind(inner),
            "TunedThresholdClassifierCV": lambda: kind(LogisticRegression(), cv=2),
            "SelfTrainingClassifier": lambda: kind(inner),
        }
        if name in special:
            return special[name]()
        import inspect

        names = inspect.signature(kind).parameters
        needed = {n: inner for n in ("estimator",) if n in names and names[n].default is inspect.Parameter.empty}
        made = kind(**needed)
        if not defaults:
            own = made.get_params(deep=False)
            made.set_params(**{n: v for n, v in SMALLER.items() if n in own})
        return made

    return make


def _pipelines() -> dict[str, Callable[[], Any]]:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.decomposition import PCA
    from sklearn.feature_selection import SelectKBest
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.model_selection import GridSearchCV
    from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import KBinsDiscretizer, QuantileTransformer, StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    return {
        "scaler + SVC": lambda: make_pipeline(StandardScaler(), SVC()),
        "scaler + SVC(ovo)": lambda: make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo")),
        "SVC(probability)": lambda: CalibratedClassifierCV(SVC(), cv=2, ensemble=False),
        "PCA + kNN": lambda: make_pipeline(PCA(2), KNeighborsClassifier(3)),
        "bins + tree": lambda: make_pipeline(
            KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), DecisionTreeClassifier()
        ),
        "quantiles + SGD": lambda: make_pipeline(QuantileTransformer(n_quantiles=5), SGDClassifier(max_iter=20)),
        "best features + logistic": lambda: make_pipeline(SelectKBest(k=2), LogisticRegression()),
        "grid search": lambda: GridSearchCV(DecisionTreeClassifier(), {"max_depth": [1, 3]}, cv=2),
        "centroids": lambda: make_pipeline(StandardScaler(), NearestCentroid()),
        "the default": lambda: None,
    }


def _others() -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {}
    known = {
        "xgboost": ("XGBClassifier", {"n_estimators": 3}),
        "lightgbm": ("LGBMClassifier", {"n_estimators": 3, "verbose": -1, "min_child_samples": 2}),
        "catboost": ("CatBoostClassifier", {"iterations": 3, "verbose": 0, "allow_writing_files": False}),
        "imblearn.ensemble": ("BalancedRandomForestClassifier", {"n_estimators": 3}),
    }
    for library, (name, settings) in known.items():
        if importlib.util.find_spec(library.split(".")[0]) is not None:
            kind = getattr(importlib.import_module(library), name)
            found[name] = partial(kind, **settings)
    return found


def dataset(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Small counts, so that every classifier takes them, and inputs to predict."""
    X = rng.integers(0, 9, (60, 4)).astype(np.float64)
    y = (X[:, 0] > 4).astype(int) + (X[:, 1] > 5)
    y = np.where(rng.random(60) < 0.1, rng.integers(0, 3, 60), y)
    return X, y, rng.integers(0, 9, (12, 4)).astype(np.float64)


Edited = tuple[str, Any, Any, int]  # name, X, y, and the number of edits


def edits(X: Any, y: Any, rng: np.random.Generator) -> Iterator[Edited]:
    """Insertions, deletions, relabellings, copies, extreme values; and what is no edit: order, types, containers."""
    i, j = (int(v) for v in rng.choice(len(X), 2, replace=False))
    label = int(rng.integers(3))

    def inserted(row: Any, times: int = 1) -> tuple[Any, Any]:
        return np.concatenate([X, np.tile(row, (times, 1))]), np.concatenate([y, np.full(times, label)])

    for what, row in {
        "insert": rng.integers(0, 9, 4).astype(float),
        "insert a copy": X[i],
        "insert zeros": np.zeros(4),
        "insert fractions": rng.random(4),
        "insert negative values": -X[i] - 1,
        "insert 1e6": np.full(4, 1e6),
        "insert 1e12": np.array([1e12, 0, 0, 0]),
        "insert 1e300": np.array([1e300, -1e300, 0, 1]),
        "insert the smallest number": np.full(4, 5e-324),
        "insert the largest number": np.full(4, np.finfo(float).max),
    }.items():
        yield what, *inserted(row), 1
    yield "insert three copies", *inserted(X[j], 3), 3
    keep = np.arange(len(X)) != i
    yield "delete", X[keep], y[keep], 1
    yield "delete two", X[keep & (np.arange(len(X)) != j)], y[keep & (np.arange(len(X)) != j)], 2
    other = y.copy()
    other[i] = (y[i] + 1 + label % 2) % 3
    yield "relabel", X, other, 1
    gone = y == label
    yield "relabel a whole class", X, np.where(gone, (label + 1) % 3, y), int(gone.sum())
    order = rng.permutation(len(X))
    yield "another order", X[order], y[order], 0
    for what, xs, ys in (
        ("X as float32", X.astype(np.float32), y),
        ("X as int16", X.astype(np.int16), y),
        ("X as big-endian", X.astype(">f8"), y),
        ("X as lists", X.tolist(), y.tolist()),
        ("X in Fortran order", np.asfortranarray(X), y),
        ("y as float", X, y.astype(float)),
        ("y as uint8", X, y.astype(np.uint8)),
        ("y as objects", X, y.astype(object)),
        ("y as a list with one float", X, [float(v) if n == i else int(v) for n, v in enumerate(y)]),
    ):
        yield what, xs, ys, 0


def run(scale: float, seed: int, jobs: int) -> Tally:
    """Every estimator, every edit; the defaults on one dataset."""
    names = list(estimators(False))
    rounds = max(1, round(ROUNDS * scale))
    few = scale < 0.1
    tasks = [(seed, number, name, False, few) for number in range(rounds) for name in names]
    if not few:
        tasks += [(seed, 100, name, True, False) for name in estimators(True)]
    by_unit = [(seed, number, name) for number in range(rounds) for name in units.ESTIMATORS[:: 3 if few else 1]]
    return share_out(one, tasks, jobs).merge([share_out(unit, by_unit, jobs)])


def unit(seed: int, number: int, name: str) -> Tally:
    """One estimator where an edit is a source, and where it is a label."""
    make = estimators(False)[name]
    return units.sources(seed, number, name, make).merge([units.labels(seed, number, name, make)])


def one(seed: int, number: int, name: str, defaults: bool, few: bool) -> Tally:
    """One estimator on one dataset, and all edits of it."""
    rng = np.random.default_rng([seed, number])
    X, y, inputs = dataset(rng)
    tally, spread = Tally(), 1 + number % 2
    make = estimators(defaults)[name]

    def fitted(X: Any, y: Any) -> Any:
        classifier = runoff.RunoffClassifier(make(), n_partitions=6 // spread, spread=spread, classes=CLASSES)
        return classifier.fit(X, y)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            before = fitted(X, y)
            scores, certificates = np.asarray(before.scores(inputs)), before.certify(inputs)
        except ValueError as error:
            tally.add(f"classifiers refused as a whole ({type(error).__name__})")
            return tally
        tally.add("classifiers by default" if defaults else "classifiers")
        for at, (what, new_X, new_y, count) in enumerate(edits(X, y, rng)):
            if few and (at + number + len(name)) % 5:
                continue
            told = f"{name}, {what}, dataset {seed}/{number}, spread {spread}"
            try:
                after = fitted(new_X, new_y)
                new, again = np.asarray(after.scores(inputs)), after.predict(inputs)
            except Exception as error:
                tally.fail("refits without an error", f"{told}: {type(error).__name__}: {error}", tried=1)
                continue
            tally.add("refits without an error")
            untouched = _untouched(before, X, y, np.asarray(new_X, float), np.asarray(new_y, float).astype(int))
            same = [np.array_equal(scores[:, m], new[:, m]) for m in untouched]
            tally.add("members that an edit does not reach", len(same))
            for m in untouched[~np.array(same, bool)]:
                tally.fail("members that an edit does not reach", f"{told}: member {m} changed")
            bound = certificates.radius >= count
            moved = bound & (certificates.prediction != again)
            tally.add("predictions within their radius", int(bound.sum()))
            for i in np.flatnonzero(moved):
                tally.fail(
                    "predictions within their radius", f"{told}: input {i} of radius {certificates.radius[i]} changed"
                )
    return tally


def _untouched(classifier: Any, X: Any, y: Any, new_X: Any, new_y: Any) -> Any:
    """The members outside the spread of all buckets whose samples differ."""
    rows = [sorted(map(tuple, np.c_[a, b].tolist())) for a, b in ((X, y), (new_X, new_y))]
    changed = [row for row in {*rows[0], *rows[1]} if rows[0].count(row) != rows[1].count(row)]
    members = np.arange(classifier.partition_.n_members)
    if not changed:
        return members
    from runoff import samples

    placed = samples.from_any(np.array([row[:-1] for row in changed]))
    buckets = classifier.partition_.buckets(placed, classifier.partition_.digests(placed))
    return np.setdiff1d(members, classifier.partition_.spread[buckets])
