"""A small federation, and what holds of every method on it: however it is carried out, it comes to the same.

The tests of execution, a file a family of methods, say which methods; what is tried of them stands here.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from descant import FederatedData, Run, Task, resume, simulate
from descant.methods import Method
from tests import held
from tests.interrupted import assert_same, interrupt

WORK: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 3}
SETTINGS: dict[str, Any] = {"rounds": 4, "cohort": 7, "seed": 5, "stragglers": 0.5, "evaluate": 2, "mode": "vmap"}
# Figures that are sums of numbers may differ in the last digits, or are a matter of rounding. The others may not.
LOOSE = ("seconds", "alpha", "mixture_gap")


@cache
def federation() -> FederatedData:
    """Eleven ragged clients, with 0 to 9 validation examples."""
    clients = []
    for k, n in enumerate((6, 1, 9, 4, 13, 2, 7, 3, 11, 5, 8)):
        generator = torch.Generator().manual_seed(k)
        X = torch.randn(n + 12, 4, generator=generator, dtype=torch.float64)
        y = torch.randint(3, (n + 12,), generator=generator)
        cuts = {"test": slice(0, 3), "valid": slice(3, 3 + k % 10), "train": slice(12, None)}
        clients.append({part: (X[cut], y[cut]) for part, cut in cuts.items() if len(y[cut])})
    return FederatedData.from_arrays(clients, classes=3)


@cache
def task() -> Task:
    torch.manual_seed(2)
    return Task(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double())


def run(method: Method, **settings: Any) -> Run:
    return simulate(task(), federation(), method, **SETTINGS | settings)


def resumed(method: Method, folder: Path, **settings: Any) -> Run:
    """A run that is stopped after its third round, and goes on."""
    with pytest.raises(KeyboardInterrupt):
        run(method, out=folder, progress=interrupt(3), **settings)
    return resume(folder, task(), federation())


def assert_agree(one: Run, other: Run) -> None:
    """Both end in the same state, to rounding, and were billed the same."""
    assert one.collapse is other.collapse is None
    ours, theirs = held.everything(one), held.everything(other)
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name].double(), theirs[name].double(), rtol=0, atol=1e-10, msg=name)
    assert _accounts(one) == _accounts(other)


def assert_chunks_and_the_loop_change_nothing(method: Method, **settings: Any) -> None:
    whole = run(method, **settings)
    assert_agree(whole, run(method, chunk=3, **settings))
    assert_agree(whole, run(method, mode="loop", **settings))


def assert_compiled_steps_give_what_vmap_gives(method: Method) -> None:
    torch._dynamo.reset()
    compiled = run(method, mode="compile")
    assert compiled.config["execution"]["mode"] == "compile" and compiled.config["execution"]["fallbacks"] == []
    assert_agree(compiled, run(method))


def assert_a_resumed_run_ends_as_the_unbroken_one(method: Method, folder: Path, **settings: Any) -> None:
    """To the bit."""
    unbroken = run(method, out=folder / "unbroken", **settings)
    assert_same(resumed(method, folder / "run", **settings), unbroken)


def _accounts(done: Run) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in LOOSE} for row in done.history.rounds]
