"""Labels: which there can be, and the class code of each label in y.

Others decide the type of the array around a label: one inserted 1.0 makes floats of everybody's integers, and rounds
those beyond 2**53. So labels are compared one by one, by their value, with `classes`, which are fixed beforehand: True,
1 and 1.0 are one label. Members learn from labels in the type of `classes`, whatever the type of y.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from runoff.errors import InputError

Labels = NDArray[Any]


def fixed(classes: Iterable[Any]) -> Labels:
    """Return all labels there can be, sorted, each once."""
    values = _values(classes, np.asarray(list(classes)))
    if len({isinstance(label, str) for label in values}) != 1:
        raise InputError(f"classes must hold labels of one kind, all texts or all numbers, got {values!r:.200}")
    array = np.unique(np.asarray(values))
    if set(array.tolist()) != set(values):
        raise InputError(
            f"classes must stay apart in one array, got {values!r:.200}: numpy rounds some of them to the same number; "
            "use whole numbers of one type, or texts"
        )
    return array


def checked(y: Any) -> tuple[Labels, list[Any]]:
    """Check y as scikit-learn does; return it as an array, and its labels one by one as Python values."""
    array = column_or_1d(y, warn=True)
    assert_all_finite(array, input_name="y")
    values = _values(y, array)
    if len({isinstance(label, str) for label in values}) > 1:
        raise InputError("y must hold labels of one kind, got texts among others: make them all texts or all numbers")
    if array.dtype.kind == "O" and values and not isinstance(values[0], str):
        array = np.array(values)  # numbers kept as objects, which scikit-learn takes for no labels at all
    if len(array):
        check_classification_targets(array)
    return array, values


def codes(values: list[Any], classes: Labels) -> NDArray[np.int64]:
    """Return the place of each label among `classes`."""
    places = {label: code for code, label in enumerate(classes.tolist())}
    try:
        return np.array([places[label] for label in values], np.int64)
    except KeyError as error:
        raise InputError(
            f"y must hold labels out of classes={classes.tolist()!r:.200}, got {error.args[0]!r}"
        ) from None


def _values(given: Any, array: Labels) -> list[Any]:
    """Return labels one by one: those of a list as they are, before an array makes them all of one type."""
    if isinstance(given, (list, tuple, set, frozenset, range)) and all(np.ndim(label) == 0 for label in given):
        return [label.item() if isinstance(label, np.generic) else label for label in given]
    if array.dtype.kind == "f":
        limit = 2.0 ** (np.finfo(array.dtype).nmant + 1)
        if (rounded := array[np.abs(array) >= limit]).size:
            raise InputError(
                f"labels must be exact, got {rounded[0]!r} in an array of {array.dtype}, which may stand for several "
                "whole numbers: pass an array of integers, or texts"
            )
    return list(array.tolist())
