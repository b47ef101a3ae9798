"""Real refits where an edit is a source or a label: everything a source contributes, under any name; any labels.

Members that the edited sources or samples do not reach must stay the same, bit for bit, predictions must stay within
their radius, and a name that cannot be a source must be refused in one sentence.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import runoff
from runoff.verify import _content  # the verifier's own hash, which shares no code with the partition
from tests.torture.tally import Tally

CLASSES = [0, 1, 2]
NAMES = ["a", "A", "a ", "7", "-3", "é", "../a", "a\nb", "0x7", "nan", "1e3", "", "None", "\u200b", "９"]
ESTIMATORS = (
    "GaussianNB", "DecisionTreeClassifier", "KNeighborsClassifier", "LogisticRegression", "scaler + SVC",
    "RandomForestClassifier", "LinearDiscriminantAnalysis", "best features + logistic", "the default",
)  # fmt: skip
# Names of an attacker, and the source that each must be (None: another one), or refused (False).
HOSTILE: tuple[tuple[Any, Any], ...] = (
    ("mallory", None), (7, "7"), (7.0, "7"), ("7.0", "7"), (np.float32(7), "7"), (np.uint8(7), "7"), (-3, "-3"),
    (np.float64(-3.0), "-3"), ("-3.0", "-3"), ("e\u0301", "é"), ("A", "A"), ("a\x00", None), ("07", None), ("+7", None),
    (" 7", None), ("7.00", None), (10**30, None), (2**53 + 1, None), (-1, None), ("x" * 10**5, None), ("\ud800", None),
    (np.str_("a"), "a"), (float("nan"), False), (None, False), (0.5, False), (True, False), (b"a", False),
    (float("inf"), False), (2.0**60, False), (("a",), False), (10**400, False), (np.datetime64(7, "D"), False),
)  # fmt: skip

Edited = tuple[str, Any, Any, Any, set[Any], int]  # name, X, y, groups, edited sources, and the number of edits


def dataset(rng: np.random.Generator) -> tuple[Any, Any, list[Any], Any]:
    """Small counts, their sources, and inputs to predict."""
    X = rng.integers(0, 9, (75, 4)).astype(np.float64)
    y = (X[:, 0] > 4).astype(int) + (X[:, 1] > 5)
    groups = [NAMES[int(g)] for g in rng.integers(0, len(NAMES), len(X))]
    return X, y, groups, rng.integers(0, 9, (12, 4)).astype(np.float64)


def edits(X: Any, y: Any, groups: list[Any], rng: np.random.Generator) -> Iterator[Edited]:
    """Yield everything that one or two sources can do, and changes that are no edits: orders and containers."""
    worst = np.array([[1e300, -1e300, 0, 5e-324], [np.finfo(float).max] * 4, [0.5] * 4, [-1e6] * 4])
    for name, known in HOSTILE:
        rows = rng.integers(0, 4, int(rng.choice([1, 30])))
        new_y = np.append(y, rng.integers(0, 3, len(rows)))
        touched = {False} if known is False else {name if known is None else known}
        yield (
            f"insert {name!r:.20}",
            np.concatenate([X, worst[rows]]),
            new_y,
            [*groups, *[name] * len(rows)],
            touched,
            1,
        )
    own = str(rng.choice(groups))
    mine = np.array([g == own for g in groups])
    left = [g for g in groups if g != own]
    yield "delete a source", X[~mine], y[~mine], left, {own}, 1
    yield "relabel a source", X, np.where(mine, (y + 1) % 3, y), groups, {own}, 1
    yield "replace a source", np.where(mine[:, None], worst[0], X), np.where(mine, 2, y), groups, {own}, 1
    yield "rename a source", X, y, [("mallory" if g == own else g) for g in groups], {own, "mallory"}, 2
    other = next(g for g in NAMES if g not in (own, "A") and g in left)
    yield "join two sources", X, y, [(other if g == own else g) for g in groups], {own, other}, 2
    order = rng.permutation(len(X))
    yield "another order", X[order], y[order], [groups[i] for i in order], set(), 0
    yield "names as an array", X, y, np.array(groups), set(), 0
    yield "names as objects", X, y, np.array(groups, object), set(), 0
    numbers = [int(g) if g in ("7", "-3") else g for g in groups]
    yield "numbers among the names", X, y, numbers, set(), 0
    yield "floats among the names", X, y, [float(g) if isinstance(g, int) else g for g in numbers], set(), 0


def sources(seed: int, number: int, name: str, make: Callable[[], Any]) -> Tally:
    """One estimator, and every edit of sources."""
    rng = np.random.default_rng([seed, number, 1])
    X, y, groups, inputs = dataset(rng)
    spread, key = 1 + number % 2, bytes(range(32))

    def fitted(X: Any, y: Any, groups: Any) -> Any:
        settings = {"n_partitions": 8 // spread, "spread": spread, "classes": CLASSES, "hash_key": key}
        return runoff.RunoffClassifier(make(), **settings).fit(X, y, groups)

    tally, kind = Tally(), "sources"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = fitted(X, y, groups)
        scores, certificates = np.asarray(before.scores(inputs)), before.certify(inputs)
        for what, new_X, new_y, new_groups, touched, count in edits(X, y, groups, rng):
            told = f"{name}, {what}, dataset {seed}/{number}, spread {spread}"
            try:
                after = fitted(new_X, new_y, new_groups)
            except runoff.errors.InputError as error:
                good = touched == {False} and "\n" not in str(error)
                tally.check("names that cannot be sources, refused in one sentence", good, f"{told}: {error}")
                continue
            if touched == {False}:
                tally.fail("names that cannot be sources, refused in one sentence", f"{told}: accepted", tried=1)
                continue
            digests = _content.source_digests(list(touched), len(touched), key)
            buckets = [int.from_bytes(digest[:8], "little") % 8 for digest in digests]
            members = np.setdiff1d(np.arange(8), before.partition_.spread[buckets])
            _compare(tally, kind, told, scores, certificates, after, inputs, members, count)
    return tally


def labels(seed: int, number: int, name: str, make: Callable[[], Any]) -> Tally:
    """One estimator behind a transformer that all members share, and every edit of labels."""
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng([seed, number, 2])
    X, y, _, inputs = dataset(rng)
    X[3], X[4] = X[0], X[0]  # copies, whatever their labels
    shared = (None, StandardScaler(), make_pipeline(StandardScaler(), PCA(3)))[number % 3]

    def fitted(X: Any, y: Any) -> Any:
        settings = {"n_partitions": 7, "classes": CLASSES, "threat": "labels", "shared": shared}
        return runoff.RunoffClassifier(make(), **settings).fit(X, y)

    tally = Tally()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = fitted(X, y)
        scores, certificates = np.asarray(before.scores(inputs)), before.certify(inputs)
        relabelled = []
        for size in (1, 1, 1, 2, 3, 5):
            rows = rng.choice(len(X), size, replace=False)
            relabelled.append((f"{size} labels", np.where(np.isin(np.arange(len(X)), rows), (y + 1) % 3, y)))
        relabelled += [("a copy's label", np.where(np.arange(len(X)) == 3, (y + 1) % 3, y))]
        relabelled += [(f"all of class {c}", np.where(y == c, (c + 1) % 3, y)) for c in CLASSES]
        relabelled += [(f"everything to {c}", np.full(len(X), c)) for c in CLASSES]
        cases = [(what, X, new, np.flatnonzero(new != y)) for what, new in relabelled]
        order, none = rng.permutation(len(X)), np.array([], int)
        cases += [("another order", X[order], y[order], none), ("y as floats", X, y.astype(float), none)]
        cases += [("y as objects", X, y.astype(object), none), ("X as lists", X.tolist(), y.tolist(), none)]
        places = {row: place for place, row in enumerate(_by_digest(X, before.partition_.key))}
        for what, new_X, new_y, rows in cases:
            told = f"{name}, {what}, dataset {seed}/{number}, shared {shared}"
            after = fitted(new_X, new_y)
            reached = [places[tuple(X[i].tolist())] % 7 for i in rows]
            members = np.setdiff1d(np.arange(7), before.partition_.spread[reached])
            _compare(tally, "labels", told, scores, certificates, after, inputs, members, len(rows))
    return tally


def _by_digest(X: Any, key: bytes) -> list[tuple[float, ...]]:
    """The distinct rows in the order of their digests, as the verifier computes them."""
    digests = {tuple(row.tolist()): digest for row, digest in zip(X, _content.digests(X, key), strict=True)}
    return sorted(digests, key=lambda row: tuple(np.frombuffer(digests[row], "<u8").tolist()))


def _compare(
    tally: Tally, kind: str, told: str, scores: Any, certificates: Any, after: Any, inputs: Any, members: Any, n: int
) -> None:
    try:
        new, again = np.asarray(after.scores(inputs)), after.predict(inputs)
    except Exception as error:
        tally.fail(f"refits without an error, {kind}", f"{told}: {type(error).__name__}: {error}", tried=1)
        return
    tally.add(f"refits without an error, {kind}")
    what = f"members that an edit does not reach, {kind}"
    for m in members:
        tally.check(what, np.array_equal(scores[:, m], new[:, m]), f"{told}: member {m} changed")
    what = f"predictions within their radius, {kind}"
    for i in np.flatnonzero(certificates.radius >= n):
        radius = certificates.radius[i]
        tally.check(what, certificates.prediction[i] == again[i], f"{told}: input {i} of radius {radius} changed")
