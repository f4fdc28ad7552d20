"""Layers with a penalty of their own: sum_l delta_l psi_l(x_l) over blocks x_l of the coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from descant.coupling.penalties import Penalty
from descant.errors import SettingError, require, unknown
from descant.fields import Checked
from descant.task import Layout


@dataclass(frozen=True)
class Layer(Checked):
    """The parameters called `layer`, or whose names go on from it with a dot, get this penalty and this delta."""

    layer: str
    penalty: Penalty
    delta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "delta", 0 <= self.delta < float("inf"), "zero or more")


class Block(NamedTuple):
    """Coordinates `at` [d_l] that one penalty acts on."""

    at: Tensor | slice
    penalty: Penalty
    delta: float


def belongs(name: str, layer: str) -> bool:
    """Whether a parameter is the one called `layer`, or its name goes on from that with a dot."""
    return f"{name}.".startswith(f"{layer}.")


def coordinates(layout: Layout, layers: Sequence[str]) -> Tensor:
    """Which coordinates [d] of a model, as a mask, belong to some of the `layers`."""
    for layer in layers:
        if not any(belongs(name, layer) for name in layout.names):
            raise unknown("layer", layer, layout.names)
    found = torch.zeros(layout.dim, dtype=torch.bool)
    for name, where in layout.slices.items():
        found[where] = any(belongs(name, layer) for layer in layers)
    return found


def blocks(layout: Layout, layers: Sequence[Layer], penalty: Penalty, delta: float) -> list[Block]:
    """The blocks of a model: one for each layer that is named, and one with `penalty` and `delta` for all others.

    A parameter that several names fit belongs to the longest of them.
    """
    if not layers:
        return [Block(slice(None), penalty, delta)]
    found: dict[Layer | None, list[Tensor]] = {layer: [] for layer in layers}
    for name, where in layout.slices.items():
        fitting = [layer for layer in layers if belongs(name, layer.layer)]
        owner = max(fitting, key=lambda layer: len(layer.layer), default=None)
        found.setdefault(owner, []).append(torch.arange(where.start, where.stop))
    for layer in layers:
        if not found[layer]:
            raise SettingError(f"method.layers: {unknown('layer', layer.layer, layout.names)}")
    own = [(layer.penalty, layer.delta) if layer else (penalty, delta) for layer in found]
    return [Block(torch.cat(at), *which) for at, which in zip(found.values(), own, strict=True)]
