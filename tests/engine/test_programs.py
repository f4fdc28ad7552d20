"""Compiled programs are found by everything that shapes them, and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import descant as dc
from descant.execution import Compile, Vmap
from descant.execution.programs import NoIdentityError, identity, reason, signature
from descant.execution.steps import Steps
from descant.methods import FedAvg, FedProx, Local, PowerLaw, Until
from descant.task import Batch
from tests.engine.compiling import federation, task


@pytest.fixture(autouse=True)
def traced(fresh_compiler: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are traced, checked and counted as ever, and run without the C++ that they would become."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))


def programs() -> int:
    return int(counters["stats"]["unique_graphs"])


def take(step: Any, execution: Vmap, x: Any, *rows: Tensor, times: int = 1) -> Any:
    """The step on two clients, who need no data."""
    batch = Batch(torch.zeros(2, 1, 5), torch.zeros(2, 1), torch.ones(2, 1, dtype=torch.bool), torch.zeros(2))
    steps = Steps(step, execution)
    with torch.no_grad():
        for _ in range(times):
            x = steps(x, torch.zeros(2, 0), (batch,), torch.ones(2, dtype=torch.bool), rows).x
    return x


def total(x: Any, grad: Any) -> Any:
    """Each tensor, of however many, becomes the sum of all."""
    return tuple(sum(x) + 0 * leaf for leaf in x)


def scaled(x: Tensor, grad: Any, by: Tensor) -> Tensor:
    return x * by


def times(factor: Any, x: Tensor, grad: Any) -> Tensor:
    return x * factor


def test_a_step_on_two_tensors_and_then_on_three_is_two_programs() -> None:
    execution, one = Compile(task(), 2), torch.ones(2, 4)
    for number in (2, 3, 2):
        got = take(total, execution, (one,) * number)
        assert [leaf.tolist() for leaf in got] == [(number * one).tolist()] * number
    assert len(execution.programs) == 2 and not execution.notes


def test_a_tensor_that_is_also_a_row_shapes_a_program() -> None:
    """At the first of three steps x is the row itself, at the others it is not: 2 -> 4 -> 8 -> 16, and not 256."""
    execution, two = Compile(task(), 2), torch.full((2, 4), 2.0)
    assert take(scaled, execution, two, two, times=3).tolist() == [[16.0] * 4] * 2
    assert programs() == 2


@pytest.mark.slow
def test_a_single_client_is_trained_as_by_vmap() -> None:
    """FedProx starts at the model that pulls it: with one client a chunk both are one tensor."""
    method, data = FedProx(mu=5.0, steps=6, batch=4), federation(20, 30)
    runs = [dc.simulate(task(), data, method, rounds=2, cohort=1, mode=mode) for mode in ("vmap", "compile")]  # type: ignore[arg-type]
    vmapped, compiled = (run.shared(round="last").weight for run in runs)
    torch.testing.assert_close(compiled, vmapped, rtol=0, atol=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("kinds", [(torch.float32, torch.float64), (torch.int64, torch.float32)])
def test_the_types_of_tensors_shape_a_program(kinds: tuple[torch.dtype, ...]) -> None:
    execution = Compile(task(), 2)
    for kind in (*kinds, kinds[0]):
        assert take(partial(times, 3), execution, torch.ones(2, 4, dtype=kind)).dtype == kind
    assert len(execution.programs) == 2


def test_numbers_that_a_step_captures_are_known_by_value() -> None:
    execution, x = Compile(task(), 2), torch.ones(2, 4)
    for factor in (2, 3, 2, 3):
        assert take(partial(times, float(factor)), execution, x).tolist() == (factor * x).tolist()
    assert programs() == 2
    matrices = [torch.full((2, 4), float(k)) for k in range(3)]
    for matrix in (*matrices, *matrices):
        assert torch.equal(take(partial(times, matrix), execution, x), matrix)
    assert programs() == 2 + len(matrices)


@pytest.mark.slow
def test_twenty_shapes_are_twenty_programs() -> None:
    """Of one function torch keeps eight; the ninth shape must turn neither itself nor the others to eager."""
    execution = Compile(task(), 2)
    for again in range(2):
        for width in range(1, 21):
            assert torch.equal(take(partial(times, 2.0), execution, torch.ones(2, width)), 2 * torch.ones(2, width))
        assert (programs(), execution.notes) == (20, []), again


def test_a_shape_that_cannot_be_compiled_leaves_the_others_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    real, ran = torch.compile, []

    def fussy(function: Any, **how: Any) -> Any:
        program = real(function, **how)

        def of(x: Any, *others: Any) -> Any:
            if x.shape[1] == 3:
                raise RuntimeError(f"{object()} refuses three columns\nand says more")
            ran.append(x.shape[1])
            return program(x, *others)

        return of

    monkeypatch.setattr(torch, "compile", fussy)
    execution = Compile(task(), 2)
    for width in (2, 3, 4, 3, 2):
        assert torch.equal(take(partial(times, 2.0), execution, torch.ones(2, width)), 2 * torch.ones(2, width))
    assert ran == [2, 4, 2]
    assert execution.notes == ["a step could not be compiled: <object object> refuses three columns"]


@pytest.mark.slow
def test_batches_that_grow_with_the_round_need_few_programs() -> None:
    """Of 1 to 30 examples, in widths of 1, 2, 4, 8, 16 and 30."""
    method = Local(steps=2, batch=PowerLaw(scale=1.0, power=1.0))
    runs = [dc.simulate(task(), federation(30, 29), method, rounds=30, mode=mode) for mode in ("vmap", "compile")]  # type: ignore[arg-type]
    assert programs() == 6 and not runs[1].config["execution"]["fallbacks"]
    for k in range(2):
        vmapped, compiled = (run.personal(k, round="last").weight for run in runs)
        torch.testing.assert_close(compiled, vmapped, rtol=0, atol=1e-12)


@dataclass(frozen=True)
class Frozen:
    value: Any

    def step(self, x: Tensor, grad: Any) -> Tensor:
        return x


class Open:
    def __init__(self, value: Any) -> None:
        self.value = value

    def step(self, x: Tensor, grad: Any) -> Tensor:
        return x


def test_what_a_step_is() -> None:
    tensor, other = torch.ones(2), torch.ones(2)
    same = [
        (partial(times, 2.0), partial(times, 2.0)),
        (partial(times, factor=(1, "a")), partial(times, factor=(1, "a"))),
        (Frozen(FedAvg(lr=0.1)).step, Frozen(FedAvg(lr=0.1)).step),
        (Open(tensor).step, Open(tensor).step),
    ]
    for one, another in same:
        assert identity(one) == identity(another) and hash(identity(one)) == hash(identity(another))
    different = [
        (partial(times, 0.0), partial(times, -0.0)),
        (partial(times, 1), partial(times, True)),
        (partial(times, 1), partial(times, 1.0)),
        (partial(times, factor=1), partial(times, by=1)),
        (Frozen(FedAvg(lr=0.1)).step, Frozen(FedAvg(lr=0.2)).step),
        (Frozen(1).step, Open(1).step),
        (Open(tensor).step, Open(other).step),
        (times, scaled),
    ]
    for one, another in different:
        assert identity(one) != identity(another), (one, another)
    for nameless in (lambda x, grad: x, partial(times, [1.0]), Frozen({}).step, Open([tensor]).step):
        with pytest.raises(NoIdentityError):
            identity(nameless)


def test_what_tensors_are() -> None:
    x, y = torch.ones(2, 3), torch.zeros(2, 3)
    assert signature((x, y)) == signature((y, x)) != signature((x, x))
    assert signature((x, (y,))) != signature((x, y)) != signature((x, y, x))
    assert signature(Until(x, y)) != signature((x, y))
    for other in (x.double(), torch.ones(3, 2), torch.ones(3, 2).T, torch.ones(2, 3, 1), x.to("meta")):
        assert signature(other) != signature(x)


def test_a_note_holds_no_address() -> None:
    assert reason(RuntimeError(f"{object()} and 0x12ab at once\nmore")) == "<object object> and at once"
    assert reason(ValueError()) == "ValueError"
