"""What a step returns that goes down a slope is no tensor, and says so where it is taken for one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree

import descant as dc
from descant.errors import SettingError
from descant.methods import Descent, Down, Local

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)
V = torch.ones(2, 3)
DOWN = Down(V, 2 * V, 0.1)
SAID = r"self.down\(...\) is what a step returns, and no tensor: return it as it is, or write v - self.rate \* g"


@pytest.mark.parametrize(
    "use",
    [
        lambda down: down - V,
        lambda down: V - down,
        lambda down: down + 1.0,
        lambda down: 2 * down,
        lambda down: down / 2,
        lambda down: -down,
        lambda down: torch.clamp(down, 0.0),
        lambda down: torch.where(V > 0, V, down),
        lambda down: V.add(down),
        lambda down: down.clamp(0.0),
        lambda down: down.shape,
    ],
)
def test_a_step_down_that_is_taken_for_a_tensor_is_named(use: Callable[[Any], Any]) -> None:
    with pytest.raises(SettingError, match=SAID):
        use(DOWN)


class Further(Local):
    def step(self, v: Any, grad: Any) -> Any:
        return self.down(v, grad(v)) - 0.1 * v


class After(Local):
    def step(self, v: Any, grad: Any) -> Any:
        return (v - self.rate * grad(v)) - 0.1 * v


@pytest.mark.parametrize("mode", ["loop", "vmap"])
def test_a_step_that_goes_on_from_it_is_told_what_to_write(mode: Any) -> None:
    task = dc.Task(torch.nn.Linear(4, 3))
    with pytest.raises(SettingError, match=SAID):
        dc.simulate(task, DATA, Further(steps=1), rounds=1, mode=mode)
    assert dc.simulate(task, DATA, After(steps=1), rounds=1, mode=mode).collapse is None


def test_it_is_a_tuple_still() -> None:
    assert not hasattr(DOWN, "clamp") and getattr(DOWN, "shape", None) is None
    with pytest.raises(AttributeError, match="'Down' has no 'slop'"):
        getattr(DOWN, "slop")  # noqa: B009
    for same in (copy.copy(DOWN), copy.deepcopy(DOWN), pickle.loads(pickle.dumps(DOWN)), DOWN._replace(lr=0.1)):
        assert isinstance(same, Down) and torch.equal(same.x, V) and torch.equal(same.move, -0.2 * V)
    x, slope, lr = DOWN
    assert x is V and slope is DOWN.slope and lr == 0.1
    mapped = _pytree.tree_map(lambda leaf: leaf, DOWN)
    assert isinstance(mapped, Down)
    assert isinstance(torch.func.vmap(lambda v: Down(v, v, v))(V), Down)
    assert isinstance(Descent.down(Local(), V, V), Down)
