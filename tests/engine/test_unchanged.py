"""A hook of a user's own leaves its method, its class and the server's state as they were."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import descant as dc
from descant.aggregators import Mean
from descant.callbacks import Callback
from descant.engine.unchanged import Unchanged
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg, Method

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)
OURS = np.random.default_rng(0)
PYTHON, TORCH, OLD = random.Random(0), torch.Generator(), np.random.RandomState(0)


def run(method: Method, rounds: int = 2, **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, method, rounds=rounds, mode="vmap", **settings)


@dataclass(frozen=True, kw_only=True)
class Mine(FedAvg):
    name: ClassVar[str] = "mine"
    runs: ClassVar[int] = 0
    notes: ClassVar[list[int]] = []  # what code notes while it runs
    history: dict[str, int] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)

    @cached_property
    def found(self) -> int:
        return 3


def doing(hook: str, what: Any) -> Method:
    """`Mine`, one of whose hooks does something first."""

    def called(self: Any, *args: Any) -> Any:
        what(self, *args)
        return getattr(FedAvg, hook)(self, *args)

    made: Method = dataclass(frozen=True, kw_only=True)(type("Doing", (Mine,), {hook: called}))()
    return made


HOOKS = ["server_start", "broadcast", "client", "server", "personal", "shared"]


@pytest.mark.few(2)
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize(
    ("what", "said"),
    [
        (lambda self, *_: self.history.update(n=1), "changes self.history of Doing: an object of a method never"),
        (lambda self, *_: self.losses.append(1.0), "changes self.losses of Doing"),
        (lambda self, *_: object.__setattr__(self, "t", 1), "changes self.t of Doing"),
        (lambda self, *_: setattr(Mine, "runs", Mine.runs + 1), "changes runs of the class Mine, which all of its"),
    ],
    ids=["dict", "list", "attribute", "class"],
)
def test_what_a_hook_changes_in_its_method_is_named(hook: str, what: Any, said: str) -> None:
    with pytest.raises(SettingError, match=f"the hook Doing.{hook} {said}.*; keep it in the client's or the"):
        run(doing(hook, what))


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (OURS.normal, "OURS"),
        (PYTHON.random, "PYTHON"),
        (OLD.rand, "OLD"),
        (lambda: torch.randn(2, generator=TORCH), "TORCH"),
    ],
    ids=["numpy", "python", "old numpy", "torch"],
)
def test_a_generator_of_the_file_is_named(draw: Any, name: str) -> None:
    said = (
        f"the hook Doing.server draws from the generator {name}, and so depends on the order of the work: draw by"
    )
    with pytest.raises(SettingError, match=said):
        run(doing("server", lambda *_: draw()))


def test_what_others_draw_between_hooks_is_nobodys_fault() -> None:
    class Drawing(Callback):
        def on_round(self, state: Any) -> None:
            OURS.normal()

    run(Mine(), callbacks=[Drawing()])


def test_an_aggregator_that_writes_into_the_messages_is_named_and_not_the_method() -> None:
    def clamp(self: Any, leaves: Any, weights: Any = None, record: Any = None) -> Any:
        return {name: leaf.clamp_(-1, 1).mean(0) for name, leaf in leaves.items()}

    own = type("Own", (Mean,), {"__call__": clamp})()
    for method in (Mine(), FedAvg()):
        with pytest.raises(SettingError, match=r"the hook Own.__call__ writes into 'delta', which it is handed"):
            run(method, aggregator=own)


def test_a_long_list_costs_little() -> None:
    method = Mine(losses=[0.0] * 10**6)
    assert len(repr(Unchanged(method).held())) < 100_000


def test_a_part_of_a_method_never_changes_either() -> None:
    with pytest.raises(SettingError, match=r"Ditto.client changes self.history of Doing"):
        run(Ditto(solver=doing("client", lambda self, *_: self.history.update(n=1))))


def test_notes_of_the_class_and_what_is_found_once_are_allowed() -> None:
    plain = run(FedAvg())
    noting = run(doing("client", lambda self, *_: (self.notes.append(1), self.found)))
    assert torch.equal(plain.shared().weight, noting.shared().weight)


@pytest.mark.parametrize("hook", ["broadcast", "server", "shared"])
def test_a_hook_that_writes_into_the_servers_state_is_refused(hook: str) -> None:
    said = (
        rf"the hook Doing.{hook} writes into 'w', which it is handed and which is to stay as it is: write w \* 0.9"
    )
    for write in (lambda w: w.mul_(0.9), lambda w: w[1:].zero_()):
        with pytest.raises(SettingError, match=said):
            run(doing(hook, lambda self, server, *_, write=write: write(server["w"])))


def test_a_hook_that_writes_into_the_messages_is_refused() -> None:
    with pytest.raises(SettingError, match=r"the hook Doing.server writes into 'delta', which it is handed"):
        run(doing("server", lambda self, server, messages, _: messages["delta"].mul_(2)))
