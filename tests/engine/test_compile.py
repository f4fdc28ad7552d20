"""Compiled steps: the same results, from a small number of programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

import descant as dc
from descant.coupling import Identity
from descant.execution import Compile, Mode
from descant.execution.batches import Rows, Schedule
from descant.execution.phases import phases
from descant.methods import Ditto, FedAvg, Local, LpProj, Method, PowerLaw
from tests import held
from tests.engine.compiling import federation, task

pytestmark = pytest.mark.usefixtures("fresh_compiler")


def states(
    method: Method, mode: str, data: dc.FederatedData, **settings: Any
) -> tuple[dc.Run, dict[str, torch.Tensor]]:
    run = dc.simulate(task(), data, method, mode=mode, **settings)  # type: ignore[arg-type]
    return run, held.everything(run)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        LpProj(p=1, dim=2, R=2, steps=3, batch=4),
        LpProj(p=2, dim=2, nu=1e-2, cap=30, batch=4),
        Ditto(epochs=2, batch=3, solver=FedAvg(epochs=1, batch=4)),
        Local(epochs=2, batch=None, clip=0.5, weight_decay=0.1),
    ],
    ids=lambda method: f"{method.name} {method.lr}",
)
def test_compiled_steps_give_what_vmap_gives(method: Method) -> None:
    data = federation(9, 30, 14, 25, 12, 40, 11)
    settings: dict[str, Any] = {"rounds": 3, "cohort": 5, "chunk": 3, "stragglers": 0.4}
    _, vmapped = states(method, "vmap", data, **settings)
    run, compiled = states(method, "compile", data, **settings)
    found = run.config["execution"]
    assert (found["mode"], found["why"], found["fallbacks"]) == ("compile", "asked for", [])
    for name, leaf in vmapped.items():
        assert torch.allclose(leaf, compiled[name], rtol=0, atol=1e-12), name


@pytest.mark.slow
def test_steps_that_differ_in_their_numbers_alone_are_different_programs() -> None:
    """Same shapes in one process: two rates, and the two steps of Ditto."""
    data = federation(9, 30, 14, 25)
    solver = FedAvg(lr=0.1, steps=2, batch=8)
    for method in (
        Local(lr=0.1, steps=2),
        Local(lr=0.5, steps=2),
        Ditto(lr=0.5, lam=3, steps=2, batch=8, solver=solver),
    ):
        _, vmapped = states(method, "vmap", data, rounds=2)
        _, compiled = states(method, "compile", data, rounds=2)
        for name, leaf in vmapped.items():
            assert torch.allclose(leaf, compiled[name], rtol=0, atol=1e-12), (method, name)


@pytest.mark.slow
def test_full_batches_of_ragged_clients_need_few_programs() -> None:
    data = federation(*range(10, 130, 3))
    run, compiled = states(Local(steps=2, batch=None), "compile", data, rounds=12, cohort=3)
    assert not run.config["execution"]["fallbacks"]
    assert counters["stats"]["unique_graphs"] <= 4, "for lengths of up to 16, 32, 64 and all"
    _, vmapped = states(Local(steps=2, batch=None), "vmap", data, rounds=12, cohort=3)
    assert torch.allclose(compiled["personal"], vmapped["personal"], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_lp_proj_without_a_projection_is_one_program() -> None:
    method = LpProj(p=2, projection=Identity(), steps=2, batch=8)
    states(method, "compile", federation(9, 30, 14), rounds=5)
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.slow
def test_changing_cohorts_and_a_short_last_chunk_need_one_program_for_each_kind_of_step() -> None:
    data = federation(9, 30, 14, 25, 12, 40, 11, 18, 22, 16)
    method = Ditto(steps=2, batch=4, solver=FedAvg(steps=2, batch=4))
    run, _ = states(method, "compile", data, rounds=12, cohort=7, chunk=3)
    assert not run.config["execution"]["fallbacks"]
    assert counters["stats"]["unique_graphs"] == 2, "chunks of 3, 3 and 1, and two kinds of step"


@dataclass(frozen=True, kw_only=True)
class Careless(Local):
    """Local training whose step is a new function each time."""

    def client(self, down: Any, state: Any, local: Any) -> Any:
        step = lambda v, grad: v - self.lr * grad(v)  # noqa: E731
        return {}, {"v": local.run(step, state["v"], work=self.work, role="personal")}


def test_a_step_that_is_made_anew_each_round_runs_uncompiled_and_is_reported() -> None:
    data = federation(9, 30, 14)
    run, compiled = states(Careless(steps=2, batch=4), "compile", data, rounds=2)
    _, vmapped = states(Local(steps=2, batch=4), "vmap", data, rounds=2)
    assert torch.allclose(compiled["personal"], vmapped["personal"], rtol=0, atol=1e-12)
    assert "no lasting identity" in run.config["execution"]["fallbacks"][0]
    assert counters["stats"]["unique_graphs"] == 0


def test_what_the_compiler_refuses_runs_uncompiled_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_compiler(*_: Any, **__: Any) -> Any:
        def refuse(*_: Any) -> None:
            raise RuntimeError("no C++ compiler was found")

        return refuse

    monkeypatch.setattr(torch, "compile", no_compiler)
    run, compiled = states(Local(steps=2, batch=4), "compile", federation(9, 30, 14), rounds=2)
    _, vmapped = states(Local(steps=2, batch=4), "vmap", federation(9, 30, 14), rounds=2)
    assert torch.equal(compiled["personal"], vmapped["personal"])
    assert run.config["execution"]["fallbacks"] == ["a step could not be compiled: no C++ compiler was found"]


def test_a_mistake_in_a_step_is_raised_as_it_is() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong(Local):
        def step(self, v: Any, grad: Any) -> Any:
            raise ZeroDivisionError("my own mistake")

    with pytest.raises(ZeroDivisionError, match="my own mistake"):
        states(Wrong(steps=1), "compile", federation(9, 30), rounds=1)


def normalized(data: dc.FederatedData, mode: Mode, **settings: Any) -> dc.Run:
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)).double()
    return dc.simulate(dc.Task(model), data, FedAvg(epochs=2, batch=4), rounds=2, mode=mode, **settings)


def test_batchnorm_is_not_compiled_where_minibatches_differ_in_length() -> None:
    counters.clear()
    run = normalized(federation(9, 30), "compile")
    assert run.config["execution"]["mode"] == "compile" and "BatchNorm" in run.config["execution"]["why"]
    assert not counters["stats"]["unique_graphs"]


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"stragglers": 0.6, "chunk": 3}, {"drop_last": True}], ids=str)
def test_batchnorm_is_compiled_where_all_minibatches_have_one_length(settings: dict[str, Any]) -> None:
    clients, last = federation(9, 30, 14, 25), 1 if "drop_last" in settings else 0
    sizes = [4 * (2 + k % 2) + last for k in range(4)]  # a last minibatch of one example is dropped
    parts = [clients.train.client(k) for k in range(4)]
    data = dc.FederatedData.from_arrays(
        [
            {"train": (x.repeat(3, 1)[:n] + torch.arange(n)[:, None], y.repeat(3)[:n])}
            for n, (x, y) in zip(sizes, parts, strict=True)
        ],
        classes=3,
    )
    counters.clear()
    compiled = normalized(data, "compile", **settings)
    assert counters["stats"]["unique_graphs"] and not compiled.config["execution"]["fallbacks"]
    for name, leaf in held.everything(normalized(data, "vmap", **settings)).items():
        torch.testing.assert_close(held.everything(compiled)[name], leaf, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "sizes", "even"),
    [
        (FedAvg(batch=4), (4, 8), True),
        (FedAvg(batch=4), (4, 9), False),
        (FedAvg(batch=1), (4, 8), False),  # which BatchNorm refuses
        (FedAvg(batch=None), (4, 8), False),  # every client would have a program of its own
        (FedAvg(batch=None), (8, 8), True),
        (FedAvg(batch=PowerLaw(scale=4, power=0.0)), (4, 8), False),  # and every round
    ],
    ids=str,
)
def test_minibatches_are_even_if_they_have_one_length_for_everyone(
    method: FedAvg, sizes: tuple[int, int], even: bool
) -> None:
    clients = [{"train": (torch.zeros(n, 5), torch.zeros(n, dtype=torch.int64))} for n in sizes]
    data = dc.FederatedData.from_arrays(clients, classes=3)
    schedule = Schedule(Rows(data.train, torch.arange(2)), method.work, torch.ones(2), (0, "shared", 1))
    assert schedule.even == even


def test_auto_measures_and_says_what_it_found() -> None:
    run = dc.simulate(task(), federation(9, 30, 14), Mine(steps=2), rounds=2)
    execution = run.config["execution"]
    assert execution["mode"] in ("vmap", "loop") and "vmap" in execution["why"] and "loop" in execution["why"]


@dataclass(frozen=True, kw_only=True)
class Mine(Local):
    """A method of one's own."""


def test_programs_come_for_few_numbers_of_clients() -> None:
    execution = Compile(task(), clients=100)
    assert {execution.width(k, first=True) for k in range(1, 101)} == {100}
    assert {execution.width(k, first=False) for k in range(1, 101)} == {1, 2, 4, 7, 13, 25, 50, 100}
    assert all(execution.width(k, first=False) >= k for k in range(1, 101))


def test_clients_that_have_finished_are_left_out() -> None:
    steps = torch.tensor([1, 1, 2, 9, 1, 40, 2, 1, 1, 1])
    found = list(phases(steps, width=lambda k, _: k))
    covered = torch.zeros(10, dtype=torch.int64)
    for phase in found:
        who = torch.arange(10) if phase.who is None else phase.who
        assert (steps[who] > phase.begin).all()
        covered[who] += torch.minimum(steps[who], torch.tensor(phase.end)) - phase.begin
    assert torch.equal(covered, steps)
    assert [(phase.begin, phase.end) for phase in found] == [(0, 1), (1, 40)]
