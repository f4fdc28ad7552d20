"""The types that a method's own objective is written in."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

# What one client minimises on one batch, a scalar: (predict, x [d], batch, *rows that the method hands along).
# predict(x) are the model's outputs, predict.loss(x) its mean loss (`descant.task.Predict`).
Objective = Callable[..., Tensor]
