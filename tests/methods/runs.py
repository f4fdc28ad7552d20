"""Short runs of a method, and what comes out of them, for tests that compare it with loops written out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from descant import FederatedData, Run, Task, simulate
from descant.engine.cohort import sample
from descant.methods import Method

Vector = NDArray[np.float64]
SEED, ROUNDS, N = 3, 4, 7
MINI: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3}
# How many are heard in a round, and whether the others train, too.
PARTICIPATION = pytest.mark.parametrize(("cohort", "everyone"), [(7, False), (3, False), (3, True)])


def run(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    """A run that is evaluated at its ends only and does not collapse."""
    how = {"rounds": ROUNDS, "seed": SEED, "evaluate": 100, "mode": "vmap"} | settings
    done = simulate(task, data, method, **how)
    assert done.collapse is None
    return done


def four(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    """The same, with four of the seven clients a round."""
    return run(task, data, method, **{"cohort": 4, "seed": 11} | settings)


def who(cohort: int, everyone: bool) -> dict[str, Any]:
    """The settings of a run for a case of PARTICIPATION."""
    return {"cohort": cohort, "trainers": "everyone" if everyone else "cohort"}


def cohort_of(round: int, cohort: int, clients: int = N, seed: int = SEED) -> list[int]:
    """Who takes part in a round."""
    return sample(seed, round, cohort, torch.ones(clients)).tolist()


def deployed(done: Run, clients: int = N) -> Tensor:
    """What the clients deploy, [N, d]."""
    return torch.stack(
        [parameters_to_vector(done.personal(k, round="last").parameters()).detach() for k in range(clients)]
    )


def shared(done: Run) -> Tensor:
    """The global model, [d]."""
    return parameters_to_vector(done.shared(round="last").parameters()).detach()


def same(a: Tensor, b: Tensor) -> None:
    assert far(a, b) <= 1e-12


def moved(task: Task, x: Tensor) -> None:
    """The comparison means something: training went somewhere."""
    assert far(x, task.start().expand_as(x)) > 1e-2


def far(a: Tensor | Vector, b: Tensor | Vector) -> float:
    """The largest difference."""
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def column(done: Run, name: str) -> list[Any]:
    """A figure of every round."""
    return [row[name] for row in done.history.rounds]
