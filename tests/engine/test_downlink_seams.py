"""Beside a downlink that says how broadcasts move: attackers, health, replies, and methods of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from descant import Task
from descant.attacks import Attack
from descant.codecs import SparseTernary, TopK
from descant.context import Context
from descant.data import FederatedData
from descant.engine.downlink import Downlink
from descant.engine.records import CollapseError
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg
from tests import held

MINI: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 4}


@dataclass(frozen=True, kw_only=True)
class Spy(Attack):
    """It notes the model that it looks at in each round."""

    name: ClassVar[str] = "spy"
    noted: ClassVar[list[Tensor]] = []

    def adapt(self, ctx: Context, memory: Any, data: FederatedData, who: Tensor, sight: Any) -> None:
        self.noted.append(sight().x[0])


def test_attackers_look_at_the_servers_model_where_methods_personalize(run: Any) -> None:
    how: dict[str, Any] = {"downlink": TopK(share=0.1), "malicious": [1], "attacks": [Spy()]}
    shared = held.shared(run(Ditto(**MINI), rounds=1, **how))
    Spy.noted.clear()
    run(Ditto(**MINI), rounds=2, **how)
    assert torch.equal(Spy.noted[1], shared)


def test_health_is_that_of_what_clients_hear(run: Any) -> None:
    """How far they are from the model that they were told is not how far it moved."""
    health = run(FedAvg(**MINI), rounds=2, health=1, downlink=TopK(share=0.1)).health
    assert (health["jump"] != health["distance"]).any()


@dataclass(frozen=True, kw_only=True)
class Replies(FedAvg):
    """FedAvg whose server tells those that it heard where it stands."""

    name = "replies"
    heard: ClassVar[list[Tensor]] = []

    def reply(self, server: Any) -> Any:
        return {"w": server["w"]}

    def hear(self, reply: Any, state: Any, local: Any) -> Any:
        self.heard.append(reply["w"][0])
        return state


def test_replies_travel_whole(run: Any) -> None:
    done = run(Replies(**MINI), rounds=1, downlink=TopK(share=0.1))
    assert torch.equal(Replies.heard[-1], held.shared(done))
    assert done.rounds["bytes_down"].to_list() == [7 * 43 * 8]


class Holds(FedAvg):
    """FedAvg whose clients are said to hold the broadcast already."""

    name = "holds"

    def fetches(self, down: Any, state: Any, local: Any) -> Any:
        return {"w": torch.zeros_like(local.n)}


def test_what_a_method_fetches_bounds_what_is_paid(run: Any) -> None:
    assert run(Holds(**MINI), downlink=SparseTernary()).rounds["bytes_down"].to_list() == [0, 0, 0]


class Turning(FedAvg):
    """FedAvg that is said to speak of another subspace in each round."""

    name, turns = "turning", True


@pytest.mark.parametrize("method", [Turning(**MINI), Ditto(**MINI, solver=Turning(**MINI))], ids=lambda m: m.name)
@pytest.mark.parametrize("way", ["codec", "downlink"])
def test_methods_that_turn_are_refused_under_others_too(run: Any, method: FedAvg, way: str) -> None:
    with pytest.raises(
        SettingError, match=f"^{way}: .*'{method.name}' .* in another subspace|^{way}: .* of another subspace"
    ):
        run(method, **{way: TopK()})


class NoBroadcast(FedAvg):
    name = "no-broadcast"

    def broadcast(self, server: Any) -> Any:
        return None


class NoStart(FedAvg):
    name = "no-start"

    def server_start(self, ctx: Any) -> Any:
        return None


@pytest.mark.parametrize("method", [NoBroadcast(**MINI), NoStart(**MINI)], ids=lambda method: method.name)
def test_mistakes_of_a_method_are_told_as_without_it(run: Any, method: FedAvg) -> None:
    told = []
    for how in ({}, {"downlink": SparseTernary()}):
        with pytest.raises(SettingError) as error:
            run(method, **how)
        told.append(str(error.value))
    assert told[0] == told[1] and "returned nothing (None)" in told[0]


def test_what_overflows_on_its_way_is_a_collapse() -> None:
    """Both ends are finite in half precision; what arrives of the largest number is not."""
    task = Task(torch.nn.Linear(1, 1).half())
    ctx = Context(1, 5, 7, task.layout, task.start(), 3)
    begun, now = (torch.tensor(row, dtype=torch.float16) for row in ([60000.0, 0.0], [64000.0, -60000.0]))
    downlink = Downlink(SparseTernary(share=1.0), ctx, {"w": begun})
    with pytest.raises(CollapseError, match="what clients hear of the broadcast 'w' is not finite"):
        downlink.say(ctx, {"w": now})
