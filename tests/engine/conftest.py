"""A small federation of ragged clients in float64, and short cuts to run it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from descant import FederatedData, Run, Task, simulate
from descant.context import Context
from descant.engine.surroundings import Surroundings
from descant.engine.view import View
from descant.execution import Vmap
from descant.methods import Method

FEATURES, CLASSES = 4, 3

Federation = Callable[..., FederatedData]
Simulate = Callable[..., Run]
Open = Callable[..., View]


@pytest.fixture
def fresh_compiler() -> None:
    """No program is left of other tests, and none is counted."""
    from torch._dynamo.utils import counters  # which takes a second, and most tests compile nothing

    torch._dynamo.reset()
    counters.clear()


@pytest.fixture(scope="session")
def federation() -> Federation:
    """federation(sizes): clients of that many training examples, and a few to validate and test on."""

    def of(sizes: tuple[int, ...] = (6, 1, 9, 4, 13, 2, 7)) -> FederatedData:
        clients = []
        for k, n in enumerate(sizes):
            generator = torch.Generator().manual_seed(k)
            inputs = torch.randn(n + 5, FEATURES, generator=generator, dtype=torch.float64)
            targets = torch.randint(CLASSES, (n + 5,), generator=generator)
            cuts = {"valid": slice(0, 2), "test": slice(2, 5), "train": slice(5, None)}
            clients.append({part: (inputs[cut], targets[cut]) for part, cut in cuts.items()})
        return FederatedData.from_arrays(clients, classes=CLASSES)

    return of


@pytest.fixture(scope="session")
def data(federation: Federation) -> FederatedData:
    return federation()


@pytest.fixture(scope="session")
def task() -> Task:
    torch.manual_seed(2)
    return Task(nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, CLASSES)).double())


class Point(nn.Module):
    """A model that is a point of the plane; with the squared error, client k's gradient at x is x - mean_k."""

    def __init__(self) -> None:
        super().__init__()
        self.at = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.at.expand(len(inputs), 2)


@pytest.fixture(scope="session")
def point() -> Task:
    return Task(Point(), loss="squared_error")


@pytest.fixture(scope="session")
def points() -> FederatedData:
    """Four clients of 3, 1, 5 and 2 points of the plane."""
    generator = torch.Generator().manual_seed(9)
    rows = [torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (3, 1, 5, 2)]
    return FederatedData.from_arrays([{"train": (torch.zeros(len(y), 1).double(), y)} for y in rows])


@pytest.fixture(scope="session")
def means(points: FederatedData) -> Tensor:
    """The means of the four clients' points, [4, 2]."""
    return torch.stack([points.train.client(k)[1].mean(0) for k in range(4)])


@pytest.fixture(scope="session")
def run(task: Task, data: FederatedData) -> Simulate:
    """run(method, ...): simulate it on the federation; settings are those of `simulate`.

    The mode is given: "auto" takes the one that happens to be faster, and modes differ in the last bit.
    """

    def of(method: Method, *, task: Task = task, data: FederatedData = data, **settings: Any) -> Run:
        return simulate(task, data, method, **{"rounds": 3, "seed": 5, "evaluate": 100, "mode": "vmap"} | settings)

    return of


@pytest.fixture(scope="session")
def view(task: Task) -> Open:
    """view(data, clients): what a method sees of them in round 1."""

    def of(data: FederatedData, clients: list[int] | None = None, **settings: Any) -> View:
        who = torch.arange(len(data)) if clients is None else torch.tensor(clients)
        nothing = {"personal": torch.zeros(len(who), 0)}
        ctx = Context(1, 5, len(data), task.layout, task.start(), party=who)
        return View(Surroundings(Vmap(task), data, **settings), ctx, who, nothing)

    return of
