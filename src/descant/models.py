"""Models by name, sized to the data."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod

from torch import nn

from descant.data import FederatedData


def _outputs(data: FederatedData) -> int:
    """How many numbers a model predicts: a score for every class, or the target's own size."""
    return data.classes if data.classes is not None else prod(data.train.targets.shape[1:])


def linear(data: FederatedData) -> nn.Module:
    """One linear layer: logistic regression for classes, linear regression for numbers."""
    return mlp(data, hidden=())


def mlp(data: FederatedData, hidden: tuple[int, ...] = (100,)) -> nn.Module:
    """Linear layers with ReLU between them; `hidden` gives their widths."""
    widths = [prod(data.input_shape), *hidden, _outputs(data)]
    layers: list[nn.Module] = [nn.Flatten()] if len(data.input_shape) != 1 else []
    for i, (before, after) in enumerate(pairwise(widths)):
        layers += [nn.ReLU(), nn.Linear(before, after)] if i else [nn.Linear(before, after)]
    return nn.Sequential(*layers)


MODELS: dict[str, Callable[..., nn.Module]] = {"linear": linear, "mlp": mlp}
