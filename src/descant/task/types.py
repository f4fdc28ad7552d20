"""The types that a method's own objective is written in."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

Predict = Callable[[Tensor], Tensor]  # x [d] -> the outputs of one client's batch, in training mode

# What one client minimises on one batch: (predict, x [d], batch, *rows that the method hands along) -> scalar.
Objective = Callable[..., Tensor]
