"""Labels: the set of possible classes, and the class code of each label in y.

One sample can change the type of the whole label array: an inserted 1.0 turns every integer into a float, and rounds
those beyond 2**53. So labels are compared one by one, by value, with `classes`, which are fixed in advance: True, 1 and
1.0 are one label. Members are trained on labels with the type of `classes`, whatever the type of y.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from runoff.errors import InputError

Labels = NDArray[Any]


def sorted_classes(classes: Iterable[Any]) -> Labels:
    """Return all possible labels, sorted and without duplicates."""
    if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
        raise InputError(f"classes must list all possible labels, got {classes}: write classes=range({classes})")
    if isinstance(classes, (str, bytes)) or not isinstance(classes, Iterable):
        raise InputError(f"classes must list all possible labels, got {classes!r:.60}: write them as in classes=[0, 1]")
    given = list(classes)
    if not given or any(np.ndim(label) for label in given):
        raise InputError(f"classes must list all possible labels, got {given!r:.60}: write them as in classes=[0, 1]")
    values = _values(classes, np.asarray(given))
    if len({isinstance(label, str) for label in values}) != 1:
        raise InputError(f"classes must be all strings or all numbers, got {values!r:.200}")
    array = np.unique(np.asarray(values))
    if set(array.tolist()) != set(values):
        raise InputError(
            f"classes must stay distinct in one array, got {values!r:.200}: numpy rounds some of them to one number; "
            "use integers of one type, or strings"
        )
    return array


def checked(y: Any, fixed: bool = False) -> tuple[Labels, list[Any]]:
    """Check y as scikit-learn does; return it as an array and as a list of Python values.

    Where the classes are `fixed`, any of them may occur: a label of 0.5 among them must not be refused as a regression
    target, which one sample could cause.
    """
    if y is None:
        raise InputError("a classifier requires y to be passed, but the target y is None: pass one label per sample")
    try:
        array = column_or_1d(y, warn=True)
    except ValueError:
        shape = np.shape(y)
        one_hot = ": if it has one column per class, pass y.argmax(axis=1)" if len(shape) == 2 else ""
        raise InputError(f"y must be one label per sample, a 1d array, got shape {shape}{one_hot}") from None
    try:
        assert_all_finite(array, input_name="y")
    except ValueError as error:
        what = str(error).split("\n")[0].rstrip(".")
        raise InputError(f"{what}: give every sample a label, or leave it out") from None
    values = _values(y, array)
    if len({isinstance(label, str) for label in values}) > 1:
        raise InputError("y must hold labels of one kind, got strings and numbers: use strings only or numbers only")
    if array.dtype.kind == "O" and values and not isinstance(values[0], str):
        array = np.array(values)  # scikit-learn rejects labels that are numbers of dtype object
    if len(array) and not fixed:
        try:
            check_classification_targets(array)
        except ValueError:
            kind = type_of_target(array)
            raise InputError(
                f"y must hold class labels, got numbers such as {values[0]!r:.40} (Unknown label type: {kind}): turn "
                "them into a few classes, for example with numpy.digitize"
            ) from None
    return array, values


def codes(values: list[Any], classes: Labels) -> NDArray[np.int64]:
    """Return the index of each label in `classes`."""
    index = {label: code for code, label in enumerate(classes.tolist())}
    try:
        return np.array([index[label] for label in values], np.int64)
    except KeyError as error:
        raise InputError(
            f"y must hold labels from classes={classes.tolist()!r:.200}, got {error.args[0]!r:.60}"
        ) from None


def same_classes(a: Labels, b: Labels) -> bool:
    """Return whether sorted classes are equal, including their type, since members are trained on such labels."""
    return a.dtype == b.dtype and np.array_equal(a, b)


def _values(labels: Any, array: Labels) -> list[Any]:
    """Return labels as Python values, for a list from the list itself, since `array` converts them to one type."""
    if isinstance(labels, (list, tuple, set, frozenset, range)) and all(np.ndim(label) == 0 for label in labels):
        return [label.item() if isinstance(label, np.generic) else label for label in labels]
    if array.dtype.kind == "f":
        limit = 2.0 ** (np.finfo(array.dtype).nmant + 1)
        if (rounded := array[np.abs(array) >= limit]).size:
            raise InputError(
                f"labels must be exact, got {rounded[0]!r} in an array of {array.dtype}, which may stand for several "
                "integers: pass an array of integers, or strings"
            )
    return list(array.tolist())
