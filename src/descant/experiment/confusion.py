"""The confusion matrix of every client, from the models of a run that is in memory."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from descant.engine import Simulation
from descant.engine.evaluation import models_of
from descant.engine.measure import tallied
from descant.errors import SettingError
from descant.execution.batches import Rows
from descant.task.objectives import bce, hinge
from descant.task.tallies import Confusion


def confusion(
    simulation: Simulation, client: int | None, model: Literal["personal", "shared"], part: str
) -> NDArray[np.int64]:
    """The matrices [N, C, C] of all clients, or that of one [C, C]: a row a true class, a column a predicted.

    `client` is its place among those who take part.
    """
    if model not in ("personal", "shared"):
        raise SettingError(f"model = {model!r}: it must be 'personal' or 'shared'")
    data, everyone = simulation.data, simulation.everyone
    who = everyone if client is None else everyone[[client]]
    rows = data.part(part)
    if not int(rows.sizes[who].sum()):
        raise SettingError(f"part = {part!r}: there is no {part} example to predict")
    if data.classes is None and simulation.task.loss not in (bce, hinge):
        raise SettingError("the targets are numbers, and a confusion matrix is of classes")
    found, clients = [], simulation.clients
    context, at_once = simulation.context(simulation.round), simulation.evaluated_at_once
    for some, x, buffers in models_of(context, clients, simulation.server, model, who, at_once):
        of = Rows(rows, some, data.places(some))
        found += tallied(simulation.execution, x, buffers, of, Confusion(len(some)))
    classes = max(matrices.shape[1] for matrices in found)  # none where a few clients hold no example
    whole = [m if m.shape[1] else m.new_zeros(len(m), classes, classes) for m in found]
    matrices: NDArray[np.int64] = torch.cat([m.cpu() for m in whole]).numpy()
    return matrices if client is None else matrices[0]
