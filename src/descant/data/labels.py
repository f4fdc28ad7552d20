"""Class names, and the numbers that stand for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def encode(words: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """The place of every word among all that occur, sorted; and these, the class names.

    >>> encode(np.array(["well", "ill", "well"]))
    (array([1, 0, 1]), ('ill', 'well'))
    """
    names, places = np.unique(words.astype(np.str_), return_inverse=True)
    return places.reshape(words.shape).astype(np.int64), tuple(str(name) for name in names)
