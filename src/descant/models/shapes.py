"""What a model must know of the data."""

from __future__ import annotations

from copy import copy
from math import prod
from numbers import Integral

from torch import nn

from descant.data import FederatedData
from descant.errors import SettingError, TaskError, shown


def check_widths(model: str, **widths: tuple[int, ...]) -> None:
    """Refuse widths of layers that are not positive, by the name of the model and of the setting."""
    for field, values in widths.items():
        if any(isinstance(value, bool) or not isinstance(value, Integral) or value < 1 for value in values):
            raise SettingError(f"{model}: {field} = {shown(values)}: they must be positive whole numbers")


def outputs_of(data: FederatedData) -> int:
    """How many numbers a model predicts: a score for every class, or the target's own size."""
    return data.classes if data.classes is not None else prod(data.train.targets.shape[1:])


def one_logit(data: FederatedData) -> FederatedData:
    """The data as a model sees it that gives one logit a label (for the loss "bce") instead of a score a class."""
    seen = copy(data)
    object.__setattr__(seen, "classes", None)  # of this copy, whose examples need no second check
    return seen


def images_of(data: FederatedData) -> tuple[list[nn.Module], tuple[int, int, int]]:
    """The layers that lay an example out as an image, and its channels, height and width."""
    shape = data.input_shape
    if len(shape) == 2:  # grey images without an axis for the channel
        return [nn.Unflatten(1, (1, shape[0]))], (1, *shape)
    if len(shape) != 3:
        raise TaskError(
            f"a convolutional model needs images [channels, height, width] or [height, width], and the examples of "
            f"data {data.name!r} are of shape {list(shape)}"
        )
    return [], shape
