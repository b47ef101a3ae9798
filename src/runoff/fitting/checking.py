"""Checks of X before training: values that members cannot handle, and traces of steps fitted on all samples.

Errors depend only on the estimator and on single samples. Warnings may depend on all samples.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier, is_clusterer, is_regressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from runoff._io.text import one_line
from runoff.errors import FittedInFrontWarning, InputError
from runoff.samples import Samples, from_any

FEWEST = 10  # minimum of samples to distinguish traces of fitted steps from chance
CLOSE = 1e-5  # relative; scaled float32 columns are this close to mean 0 and deviation 1
LOOKED_AT = 16  # columns and rows that are checked first, which almost always suffices
MOST = 0.5  # share of different values in a column above which `fit` warns
IDLE = 0.5  # share of members that learn nothing above which `fit` warns

ADVICE = (
    "if it was fitted on all samples, one edit changes every member and no radius holds: put it inside, as in "
    "RunoffClassifier(make_pipeline({step}(), ...)); if X was prepared by fixed rules or by an encoder that you trust, "
    "silence this with warnings.filterwarnings('ignore', category=runoff.errors.FittedInFrontWarning)"
)

TRY_ALONE = "check that the estimator alone can be fitted on a few of these samples, as in clone(estimator).fit(X, y)"
IMPUTE = (
    "put an imputer inside, as in RunoffClassifier(make_pipeline(SimpleImputer(), LogisticRegression())), so that each "
    "member fills gaps from its samples; an imputer fitted in front would let one edit change every member"
)


def accepts_nan(estimator: Any) -> bool:
    """Return whether an estimator handles missing values, directly, by an imputer inside, or by a function."""
    if estimator is None or isinstance(estimator, str):  # "passthrough" and "drop" in pipelines
        return True
    if _fills_gaps(estimator):
        return True
    if isinstance(estimator, Pipeline):
        return all(accepts_nan(step) for _, step in estimator.steps)
    if isinstance(estimator, FunctionTransformer):
        return not estimator.validate
    if get_tags(estimator).input_tags.allow_nan:
        return True
    inner = getattr(estimator, "estimator", None)  # of a search, a calibration, ...
    return hasattr(inner, "fit") and accepts_nan(inner)


def _fills_gaps(estimator: Any) -> bool:
    """Return whether an estimator contains an imputer, or a function that may be one, at any depth."""
    inside = estimator.get_params(deep=True).values() if hasattr(estimator, "get_params") else ()
    return any(
        type(part).__name__.endswith("Imputer")
        or (isinstance(part, FunctionTransformer) and part.func is not None and not part.validate)
        for part in (estimator, *inside)
    )


def checked_samples(classifier: Any, X: Any, reset: bool) -> Samples:
    """Return X as samples, after the checks of scikit-learn for arrays."""
    if is_text(X):
        return from_any(X)
    if hasattr(X, "columns") and hasattr(X, "iloc"):
        if repeated := [name for name, times in Counter(X.columns).items() if times > 1]:
            raise InputError(
                f"X must have columns of different names, got {repeated[0]!r:.60} twice: rename one of them"
            )
        validate_data(classifier, X, reset=reset, skip_check_array=True)
        return from_any(X)
    estimator = getattr(classifier, "estimator", None)
    if hasattr(X, "tocsr") and X.dtype.kind in "biuf":
        X = X.astype(np.float64)  # before entries at the same place are added: other samples may widen their type
    allow_nan = get_tags(classifier).input_tags.allow_nan and not (hasattr(X, "tocsr") and estimator is None)
    try:
        X = validate_data(
            classifier,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=None,
            allow_nd=True,
            ensure_all_finite=not allow_nan,
        )
    except ValueError as error:
        if "contains NaN" in str(error):
            raise missing_values(estimator) from None
        raise form_of(X, error, getattr(classifier, "_width", None)) from None
    return from_any(X)


def missing_values(estimator: Any) -> InputError:
    """Return the error for missing values in X that the estimator does not handle."""
    name = "the default estimator for sparse X" if estimator is None else type(estimator).__name__
    return InputError(f"X contains NaN, which {name} does not handle: {IMPUTE}")


def refuse(arguments: dict[str, Any]) -> None:
    """Raise an error for unsupported arguments of `fit`."""
    if "sample_weight" in arguments:
        raise InputError(
            "sample_weight is not supported, since radii count samples and not their weights: repeat a sample for a "
            "larger weight (each copy is one edit), or set class_weight inside the estimator, where each member "
            "computes it from its samples"
        )
    if arguments:
        raise TypeError(f"fit() got an unexpected keyword argument {next(iter(arguments))!r}")


def member_estimator(estimator: Any) -> None:
    """Raise InputError unless an estimator is valid for members: an unfitted classifier, or None."""
    if estimator is None:
        return
    if isinstance(estimator, type):
        name = estimator.__name__
        raise InputError(f"estimator must be an instance, got the class {name}: write {name}()")
    scored = any(hasattr(estimator, method) for method in ("predict", "predict_proba", "decision_function"))
    scored |= hasattr(estimator, "__sklearn_tags__") and is_classifier(estimator)  # some have predict only after fit
    if not (scored and hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        what = f"{type(estimator).__name__} without predict" if hasattr(estimator, "fit") else f"{estimator!r:.60}"
        raise InputError(
            f"estimator must be a scikit-learn classifier, got {what}: pass one such as LogisticRegression()"
        )
    for kind, known in (("regressor", is_regressor), ("clusterer", is_clusterer)):
        if known(estimator):
            raise InputError(
                f"estimator must be a classifier, since members vote for classes, got the {kind} "
                f"{type(estimator).__name__}: pass one such as LogisticRegression()"
            )


def form_of(X: Any, error: ValueError, fitted: tuple[str, Any] | None) -> ValueError:
    """Return the error for X without one row per sample, or of another form than in `fit`, or the error unchanged."""
    of_images = fitted is not None and fitted[0] == "dense" and len(fitted[1]) > 1
    if fitted is not None and of_images and str(error).startswith("X has "):
        return InputError(f"X must hold samples of shape {fitted[1]} as in fit, got shape {np.shape(X)}")
    if not str(error).startswith("Expected 2D array"):
        return error
    got = "None" if X is None else f"shape {np.shape(X)}"
    return InputError(
        f"X must have one row per sample, got {got}. Reshape your data: X.reshape(-1, 1) if it has a single feature, "
        "X.reshape(1, -1) if it is a single sample"
    )


def described_form(kind: str, width: Sequence[Any]) -> str:
    """Return the form of samples in words."""
    names = one_line(", ".join(map(str, width)))
    if kind == "texts":
        return "texts"
    if kind == "table":
        return f"a table with {'the column' if len(width) == 1 else 'the columns'} {names}"
    return f"{'a sparse matrix' if kind == 'sparse' else 'an array'} of shape (n, {names})"


def number_type(dtype: Any) -> None:
    """Raise InputError unless a setting is a valid type of numbers for members."""
    try:
        known = dtype is None or np.dtype(dtype) in (np.dtype(np.float32), np.dtype(np.float64))
    except TypeError:
        known = False
    if not known:
        raise InputError(f"dtype must be 'float32', 'float64' or None, got {dtype!r:.60}")


def is_text(X: Any) -> bool:
    """Return whether X is a sequence of texts; raise InputError if only some of its values are strings."""
    if not isinstance(X, (list, tuple)) and not (hasattr(X, "ndim") and X.ndim == 1):
        return False
    are_texts = [isinstance(text, str) for text in X]
    if not any(are_texts) or all(are_texts):
        return bool(are_texts) and are_texts[0]
    at = are_texts.index(False)
    value = list(X)[at]
    instead = "a missing value" if value is None or value != value else f"a {type(value).__name__}"
    raise InputError(
        f"texts must be strings, got {instead} for text {at}: use '' for a text without words, or leave the sample out"
    )


def warn_of_refused_members(members: Sequence[Any], learnt: bool, stacklevel: int) -> None:
    """Warn of members that vote by their class shares because their estimator could not be fitted.

    This is a warning even if no member could be fitted: an edit can cause that, and no edit may turn a prediction
    into an error.
    """
    refused = [member for member in members if member.refused]
    if refused and not learnt:
        warnings.warn(
            f"no member could be trained, so all vote by their class shares; {reason(refused[0])}",
            stacklevel=stacklevel,
        )
        return
    for member in refused:
        warnings.warn(
            f"member {member.index} votes by its class shares, since it could not be trained: {member.refused}",
            stacklevel=stacklevel,
        )


def reason(member: Any) -> str:
    """Return why a member could not be trained, and what to do about it."""
    why = str(member.refused).strip()
    first = why.splitlines()[0].rstrip(".") if "NaN" in why else why.rstrip(".")  # scikit-learn adds a paragraph
    advice = TRY_ALONE
    if "NaN" in why:
        advice = IMPUTE
    elif "Double" in why and "Float" in why:
        advice = "members get float64 unless dtype='float32' is set, which networks need"
    return f"member {member.index}: {first}; {advice}"


def idle_members(empty: int, single: int, n_members: int, n_samples: int, unit: str) -> str | None:
    """Return a warning if many members learn nothing because they have no samples, or samples of one class."""
    if empty + single <= IDLE * n_members:
        return None
    what = "sources" if unit == "sources" else "samples"
    return (
        f"{empty + single:,} of {n_members:,} members learn nothing: {empty:,} have no samples and {single:,} have "
        f"samples of one class. They rank classes by a fixed rule, whatever the input, so large radii may mean little: "
        f"use fewer partitions for {n_samples:,} {what}; runoff.plan compares them"
    )


def warn_of_texts(samples: Samples, stacklevel: int) -> None:
    """Warn if the strings of a column in a table are too different to be categories, as in the default estimator.

    Members ignore categories that they have not seen, so texts and identifiers teach them nothing about other samples.
    """
    data: Any = samples.data
    if samples.kind != "table" or len(data) < 2 * FEWEST:
        return
    for i, name in enumerate(data.columns):
        texts = [value for value in data.iloc[:, i] if isinstance(value, str)]
        if len({*texts}) > MOST * len(data):
            warnings.warn(
                f"the column {one_line(name, 40)!r} has a different string in most rows, and the default estimator "
                "treats strings in a table as categories, from which members learn nothing about new samples: leave it "
                "out, or pass RunoffClassifier an estimator that reads it, such as a pipeline with TfidfVectorizer",
                stacklevel=stacklevel + 1,
            )


def warn_of_fitted_steps(samples: Samples, stacklevel: int) -> None:
    """Warn if X appears to be transformed by a step that was fitted on all samples."""
    if len(samples) < FEWEST:
        return
    with np.errstate(all="ignore"):  # in a process that raises floating-point errors, one sample could cause one
        trace = _trace(samples)
    if trace is None:
        return
    sign, step = trace
    warnings.warn(f"{sign}; {ADVICE.format(step=step)}", FittedInFrontWarning, stacklevel=stacklevel + 1)


def _trace(samples: Samples) -> tuple[str, str] | None:
    """Return a trace of a fitted step and the name of the step, or None if there is no trace."""
    data: Any = samples.data
    if samples.kind == "sparse":
        return _norms(data)
    if samples.kind == "table":
        data = data.select_dtypes("float").to_numpy()
    if samples.kind == "texts" or data.dtype.kind != "f" or not data.size:
        return None
    if data.ndim > 2:
        with np.errstate(all="ignore"):
            scaled = abs(data.mean(dtype=np.float64)) < CLOSE and abs(data.std(dtype=np.float64) - 1) < CLOSE
        sign = "the values of X have mean 0 and deviation 1, as StandardScaler makes them"
        return (sign, "StandardScaler") if scaled and not _whole(data[:LOOKED_AT]) else None
    return _columns(data) or (_norms(data) if samples.kind == "dense" else None)


def _columns(data: NDArray[Any]) -> tuple[str, str] | None:
    """Return a trace if every column, except constant ones, has mean 0 and deviation 1."""
    for part in (data[:, :LOOKED_AT], data):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about columns without any value
            means, deviations = (f(part, axis=0, dtype=np.float64) for f in (np.nanmean, np.nanstd))
        varying = ~(deviations < CLOSE)
        if not ((np.abs(means) < CLOSE) & (~varying | (np.abs(deviations - 1) < CLOSE))).all():
            return None
    if not varying.any() or _whole(data[:, varying]):
        return None
    return "every column of X has mean 0 and deviation 1, as StandardScaler makes them", "StandardScaler"


def _norms(data: Any) -> tuple[str, str] | None:
    """Return a trace if all rows have norm 1, unless they are multiples of whole numbers, such as counts."""
    if data.shape[1] < 2 or data.dtype.kind != "f":
        return None
    for part in (data[:LOOKED_AT], data):
        if hasattr(part, "tocsr"):
            squares = np.asarray(part.multiply(part).sum(axis=1)).ravel()
        else:
            squares = np.einsum("ij,ij->i", part, part, dtype=np.float64, casting="same_kind")
        unit = np.abs(squares - 1) < CLOSE
        if not (unit | (squares == 0)).all() or not unit.any():
            return None
    first = data[:100].toarray() if hasattr(data, "tocsr") else data[:100]
    sizes = np.where(first == 0, np.inf, np.abs(first)).min(axis=1, keepdims=True)
    parts = np.arange(1, 17)[:, None, None]
    if (np.abs(parts * (first / sizes) - np.round(parts * (first / sizes))) < 1e-3).all(axis=2).any(axis=0).all():
        return None  # counts of hashed words, or pixels, with each row scaled separately: nothing was fitted
    return "every row of X has norm 1, as TfidfVectorizer makes them", "TfidfVectorizer"


def _whole(values: NDArray[Any]) -> bool:
    with np.errstate(all="ignore"):
        return bool((np.abs(values - np.round(values)) < 1e-3).all())
