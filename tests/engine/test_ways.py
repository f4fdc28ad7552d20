"""Which ways to compute convolutions are offered on a GPU, and which is taken: no GPU is needed to choose."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant import Task
from descant.execution import direct, ongpu, tuning
from descant.execution.compiled import Graphed
from tests.engine.convolving import network


def offered(model: nn.Module, *, half: bool = False, mixes: bool = False) -> bool:
    task = Task(model)
    return ongpu.DIRECT in ongpu.ways(Graphed(task.in_half() if half else task, 4), 4, mixes)


def test_it_is_offered_where_triton_is_and_the_kernels_can(monkeypatch: pytest.MonkeyPatch) -> None:
    small = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.LazyLinear(2))
    small(torch.zeros(1, 1, 5, 5))
    monkeypatch.setattr(ongpu, "has_triton", lambda: False)
    assert not offered(small)
    monkeypatch.setattr(ongpu, "has_triton", lambda: True)
    assert offered(small)
    assert offered(network(nn.Conv2d))  # in double precision
    assert not offered(small, half=True)
    assert not offered(small, mixes=True)
    assert not offered(network(nn.Conv2d).bfloat16())
    assert not offered(nn.Linear(3, 2))
    assert not offered(nn.Sequential(nn.Conv2d(1, 2, 12), nn.Flatten(), nn.Linear(2, 2)))
    execution = ongpu.ways(Graphed(Task(small), 4), 4, False)[ongpu.DIRECT]()
    assert (execution.mode, execution.convolutions) == ("compile", "direct")


def test_a_way_that_breaks_is_not_taken_and_the_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ongpu, "has_triton", lambda: True)
    ways = ongpu.ways(Graphed(Task(network(nn.Conv2d)), 4), 4, False)

    def timed(execution: Any, clients: int) -> float:
        if execution.convolutions == "direct":
            raise RuntimeError("no such instruction\nmore")
        return {"grouped": 2.0, "unfolded": 1.0}[execution.convolutions]

    choice = ongpu.fastest(ways, 4, 100, 100, timed, lambda task, clients: torch.ones(clients, 2))
    assert choice.name == ongpu.UNFOLDED
    broken = (ongpu.DIRECT_AS_IT_IS, ongpu.DIRECT)
    assert choice.notes == [f"{name} cannot be used: no such instruction" for name in broken]


@pytest.mark.parametrize("trained", [1, 10**6])
def test_what_is_not_compiled_is_tried_in_short_runs_too(trained: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ongpu, "has_triton", lambda: True)
    tried: list[tuple[str, str]] = []

    def timed(execution: Any, clients: int) -> float:
        tried.append((execution.mode, execution.convolutions))
        return 1e-3 if tried[-1] != ("vmap", "direct") else 5e-4

    ways = ongpu.ways(Graphed(Task(network(nn.Conv2d)), 4), 4, False)
    choice = ongpu.fastest(ways, 4, 100, trained, timed, lambda task, clients: torch.ones(clients, 2))
    assert choice.name == ongpu.DIRECT_AS_IT_IS
    compiled = [("compile", "direct")] if trained > 1 else []
    assert tried == [("vmap", "grouped"), ("vmap", "direct"), *compiled]


@pytest.mark.parametrize("ahead", ["direct", "grouped"])
def test_convolutions_that_are_behind_uncompiled_are_not_compiled(
    ahead: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ongpu, "has_triton", lambda: True)
    tried: list[str] = []

    def timed(execution: Any, clients: int) -> float:
        if execution.mode == "compile":
            tried.append(execution.convolutions)
        return 1.0 if execution.convolutions == ahead else 2.0

    ways = ongpu.ways(Graphed(Task(network(nn.Conv2d)), 4), 4, False)
    ongpu.fastest(ways, 4, 100, 100, timed, lambda task, clients: torch.ones(clients, 2))
    assert tried == (["direct"] if ahead == "direct" else ["grouped", "unfolded"])


@pytest.mark.parametrize("factor", [1.0, 1 + 1e-6, 1.01, float("nan")])
def test_kernels_that_give_other_gradients_than_torch_are_not_used(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ongpu, "has_triton", lambda: True)
    plain = direct.Direct._conv_forward
    monkeypatch.setattr(direct.Direct, "_conv_forward", lambda *given: factor * plain(*given))
    generator = torch.Generator().manual_seed(2)
    inputs = [torch.randn(n, 2, 10, 10, generator=generator, dtype=torch.float64) for n in (9, 7, 8)]
    data = dc.FederatedData.from_arrays([(x, torch.arange(len(x)) % 3) for x in inputs])
    work = dc.methods.FedAvg(steps=2, batch=4).work

    def timed(execution: Any, clients: int) -> float:
        return {"grouped": 3.0, "unfolded": 2.0, "direct": 1.0}[execution.convolutions] + (execution.mode == "vmap")

    def slopes(task: Task, clients: int) -> Tensor:
        return tuning._gradients(task, data, work, clients)

    ways = ongpu.ways(Graphed(Task(network(nn.Conv2d)), 3), 3, False)
    choice = ongpu.fastest(ways, 3, 100, 100, timed, slopes)
    right = abs(factor - 1) < 1e-3
    assert choice.name == (ongpu.DIRECT if right else ongpu.UNFOLDED)
    assert len(choice.notes) == (0 if right else 2)
    assert all("not those of mode vmap" in note for note in choice.notes)
