"""Several steps in one program are those steps, one after the other."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch._dynamo.utils import counters

import descant as dc
from descant.execution import Compile, Vmap
from descant.execution.batches import Rows, Schedule
from descant.execution.steps import advance
from descant.execution.unrolled import TOGETHER, strides, together, unrolled
from descant.methods import FedAvg, FedProx, LpProj, Method, Momentum, Until, Work
from tests import held
from tests.engine.compiling import federation, task

pytestmark = pytest.mark.usefixtures("fresh_compiler")


@given(begin=st.integers(0, 50), steps=st.integers(1, 200), number=st.integers(1, 8))
def test_strides_are_all_steps_once_and_few_beyond(begin: int, steps: int, number: int) -> None:
    end = begin + steps
    groups = list(strides(begin, end, number))
    taken = [s for group in groups for s in group]
    assert taken == list(range(begin, taken[-1] + 1)) and taken[-1] >= end - 1
    assert len(taken) <= 1.1 * steps
    assert {len(group) for group in groups} <= {1, number}


def test_a_last_program_is_filled_up_where_that_wastes_little() -> None:
    assert [len(group) for group in strides(0, 39, 4)] == [4] * 10
    assert [len(group) for group in strides(0, 7, 4)] == [4, 1, 1, 1]


def until_low(x: Tensor, grad: Any) -> Until:
    """Descend, and stop where a number is low: at another step for each client."""
    return Until(x - 0.5 * grad(x), met=x[:, 0] < -0.1)


def descend(x: Tensor, grad: Any) -> Tensor:
    return x - 0.5 * grad(x)


@pytest.mark.parametrize("step", [descend, until_low])
def test_several_steps_are_the_steps_one_by_one(step: Any) -> None:
    """With clients that take none, some and all of them, and with a rule that ends them before."""
    execution, data = Vmap(task()), federation(9, 30, 14, 25)
    schedule = Schedule(Rows(data.train, torch.arange(4)), Work(steps=6, batch=4), torch.ones(4), (0, "shared", 1))
    sources = tuple((schedule.at(s),) for s in range(6))
    x, statistics = task().start() + torch.linspace(0, 0.4, 4, dtype=torch.float64)[:, None], torch.zeros(4, 0)
    left, met, taken = (
        torch.tensor([0, 2, 6, 6]),
        torch.zeros(4, dtype=torch.bool),
        torch.zeros(4, dtype=torch.int64),
    )
    with torch.no_grad():
        done = unrolled(step, execution, x, statistics, sources, left, ())
        for s in range(6):
            active = (left > s) & ~met
            stepped = advance(step, execution, x, statistics, sources[s], active, ())
            x, taken = stepped.x, taken + active
            met = met if stepped.met is None else met | stepped.met
    assert torch.equal(done.x, x) and torch.equal(done.taken, taken) and done.gradients == (1,)
    if step is until_low:
        assert done.met is not None and torch.equal(done.met, met)
        assert met.any() and not met.all() and (taken < left).any(), "the rule ends the steps of some"
    else:
        assert done.met is None and torch.equal(taken, left)


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [
        FedAvg(steps=8, batch=4),
        FedProx(epochs=3, batch=4, mu=0.5, optimizer=Momentum()),
        LpProj(p=2, dim=2, nu=1e-2, cap=30, batch=4),
    ],
    ids=lambda method: method.name,
)
def test_what_compiled_programs_of_several_steps_give_is_what_vmap_gives(method: Method) -> None:
    data = federation(9, 30, 14, 25, 12, 40, 11)
    settings: dict[str, Any] = {"rounds": 2, "cohort": 5, "chunk": 3, "stragglers": 0.4}
    runs = [dc.simulate(task(), data, method, mode=mode, **settings) for mode in ("vmap", "compile")]  # type: ignore[arg-type]
    assert not runs[1].config["execution"]["fallbacks"]
    vmapped, compiled = (held.everything(run) for run in runs)
    for name, leaf in vmapped.items():
        assert torch.allclose(leaf, compiled[name], rtol=0, atol=1e-12), name
    spent = [[{**row, "seconds": 0} for row in run.history.rounds] for run in runs]
    assert spent[0] == spent[1]


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "programs"), [(2, 1), (8, 1), (6, 2)])
def test_how_many_programs_there_are(steps: int, programs: int) -> None:
    """One of single steps, one of four, or both where the rest would be a third."""
    dc.simulate(task(), federation(20, 30), FedAvg(steps=steps, batch=4), rounds=3, mode="compile")
    assert counters["stats"]["unique_graphs"] == programs


def test_only_cheap_steps_of_compiled_programs_come_together() -> None:
    compiled, x = Compile(task(), 2), torch.zeros(2, 1000)
    assert together(compiled, x, 10, steps=20) == together(compiled, (x, x), 10, steps=20) == TOGETHER
    assert together(compiled, x, 10, steps=TOGETHER - 1) == 1
    assert together(compiled, x, 10**6, steps=20) == 1
    assert together(Vmap(task()), x, 10, steps=20) == 1


FAULTS = """
import resource
from descant.execution.heap import keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        blocks = [bytearray(2**20) for _ in range(16)]
        del blocks
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
plain = faults()
keep_freed()
faults()
print(plain, faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system's memory is asked for by glibc")
def test_memory_that_is_freed_is_kept() -> None:
    told = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    plain, kept = map(int, told.stdout.split())
    assert plain > 20 * 16 * 2**20 // 4096 // 2, "else there is nothing to gain"
    assert kept < plain / 20
