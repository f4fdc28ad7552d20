"""What is timed: the models, and who holds how many examples. Runs in every environment: only numpy and torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the process that only starts others does without torch
    from torch import Tensor, nn

_BLOCK = 2**24  # numbers drawn in one go


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Rounds of FedAvg. Every client holds as many examples, and no minibatch is short."""

    key: str  # the letter that --only takes
    title: str
    model: Callable[[], nn.Module]
    inputs: tuple[int, ...]
    classes: int
    clients: int
    samples: int  # each
    cohort: int
    batch: int
    epochs: int
    lr: float = 0.01
    of_peak: bool = False  # whether to say which part of the machine's matrix-product rate is reached

    @property
    def client_steps(self) -> int:
        """Minibatch gradients a round, over all clients."""
        return self.cohort * self.epochs * ceil(self.samples / self.batch)

    @property
    def examples(self) -> int:
        """Example gradients a round."""
        return self.cohort * self.epochs * self.samples


@dataclass(frozen=True, kw_only=True)
class LpProjRound:
    """A round of lp-proj with the settings of its authors' code: everyone trains, and everyone is evaluated."""

    key: str = "f"
    title: str = "lp-proj on synthetic(0, 0), 100 clients, with evaluation"
    client_steps: int = 100 * 20
    quoted_seconds: float = 1.7  # a round of the authors' own code; not measured here


def logistic() -> nn.Module:
    from torch import nn

    return nn.Linear(60, 10)


def mlp() -> nn.Module:
    from torch import nn

    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 62))


def lenet() -> nn.Module:
    from torch import nn

    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )


_A = Shape(
    key="a",
    title="logistic 60-10, 10 of 100 clients",
    model=logistic,
    inputs=(60,),
    classes=10,
    clients=100,
    samples=160,
    cohort=10,
    batch=10,
    epochs=5,
)
_B = replace(_A, key="b", title="logistic 60-10, 100 of 100 clients", cohort=100)
_C = replace(_A, key="c", title="logistic 60-10, 1000 of 1000 clients", clients=1000, cohort=1000)
_D = Shape(
    key="d",
    title="MLP 784-100-100-62, 25 of 248 clients",
    model=mlp,
    inputs=(784,),
    classes=62,
    clients=248,
    samples=1600,
    cohort=25,
    batch=64,
    epochs=1,
    of_peak=True,
)
_E = Shape(
    key="e",
    title="LeNet 3x32x32, 20 of 200 clients",
    model=lenet,
    inputs=(3, 32, 32),
    classes=10,
    clients=200,
    samples=192,
    cohort=20,
    batch=64,
    epochs=5,
)

SHAPES = {shape.key: shape for shape in (_A, _B, _C, _D, _E)}
CASES: dict[str, Shape | LpProjRound] = {**SHAPES, "f": LpProjRound()}


def write_data(shape: Shape, folder: Path) -> None:
    """Random examples for all contenders alike, one client after the other."""
    rng = np.random.default_rng(0)
    examples, numbers = shape.clients * shape.samples, prod(shape.inputs)
    with (folder / "inputs").open("wb") as file:
        for begin in range(0, examples * numbers, _BLOCK):
            rng.standard_normal(min(_BLOCK, examples * numbers - begin), dtype=np.float32).tofile(file)
    rng.integers(0, shape.classes, examples, dtype=np.int64).tofile(folder / "targets")


def read_data(shape: Shape, folder: Path) -> tuple[Tensor, Tensor]:
    """The inputs [M, ...] and the targets [M] of all clients, mapped: the processes share the memory."""
    import torch

    examples = shape.clients * shape.samples
    inputs = torch.from_file(str(folder / "inputs"), size=examples * prod(shape.inputs), dtype=torch.float32)
    targets = torch.from_file(str(folder / "targets"), size=examples, dtype=torch.int64)
    return inputs.view(examples, *shape.inputs), targets


def first_model(shape: Shape) -> nn.Module:
    """The model that all contenders start from."""
    import torch

    torch.manual_seed(0)
    return shape.model()
