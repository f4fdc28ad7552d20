"""Methods and codecs of one's own where the server says how its broadcast moved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import descant as dc
from descant import FederatedData, Task
from descant.codecs import SparseTernary, TopK, UpdateCodec
from descant.codecs.base import Leaf
from descant.errors import SettingError
from descant.methods import FedAvg
from descant.trees import Tree
from tests import held
from tests.interrupted import interrupt

MINI: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 4}


@dataclass(frozen=True, kw_only=True)
class Clock(FedAvg):
    """FedAvg that says which round it is, and notes what clients hear of that; `shape` is that of what it says."""

    name = "clock"
    heard: ClassVar[list[float]] = []
    shape: ClassVar[Any] = lambda round: (1,)

    def broadcast(self, server: Any) -> Any:
        shape, w = type(self).shape(server.ctx.round), server["w"]
        return {"w": w} | ({} if shape is None else {"round": w.new_full(shape, float(server.ctx.round))})

    def client(self, down: Any, state: Any, local: Any) -> Any:
        self.heard.append(float(down["round"][0, 0]))
        return super().client(down, state, local)


def test_what_is_said_is_the_broadcast_of_the_round_in_which_it_is_heard(run: Any) -> None:
    Clock.heard.clear()
    run(Clock(**MINI), rounds=4, downlink=TopK(share=1.0), chunk=7)
    assert Clock.heard[-4:] == [1.0, 2.0, 3.0, 4.0]


def test_after_a_round_without_mail_all_is_heard_as_it_was(run: Any) -> None:
    Clock.heard.clear()
    done = run(Clock(**MINI), rounds=8, cohort=1, lost=0.7, downlink=TopK(share=1.0))
    received = done.rounds["received"].to_list()
    heard = [1.0]
    for t in range(2, 9):
        heard.append(float(t) if received[t - 2] else heard[-1])
    assert Clock.heard[-8:] == heard and 0 in received[:-1] and 1 in received[:-1]


def test_broadcasts_are_asked_for_in_rounds_of_the_run_alone(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(Clock, "shape", lambda round: asked.append(round) or (1,))
    run(Clock(**MINI), rounds=3, downlink=TopK(share=1.0))
    assert set(asked) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (lambda round: (1,) if round > 2 else None, r"'round' of this one was not there and is \(1,\)"),
        (lambda round: (1,) if round < 3 else None, r"'round' of this one was \(1,\) and is not there"),
        (lambda round: (1 + round // 3,), r"'round' of this one was \(1,\) and is \(2,\)"),
    ],
)
def test_other_leaves_in_other_rounds_are_an_error_and_no_collapse(
    run: Any, shape: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clock, "shape", shape)
    monkeypatch.setattr(Clock, "client", FedAvg.client)
    with pytest.raises(SettingError, match=f"downlink: 'stc' says .* the leaf {said}: broadcast the same leaves"):
        run(Clock(**MINI), rounds=4, downlink=SparseTernary())


@dataclass(frozen=True, kw_only=True)
class Halves(UpdateCodec):
    """The numbers at even places, then those at odd ones, and so on: it remembers whose turn it is."""

    name: ClassVar[str] = "halves"

    def memory(self, like: Tree) -> Tree:
        return {f"{name}.turn": leaf.new_zeros(len(leaf)) for name, leaf in like.items()}

    def pack(self, leaf: Leaf, memory: Tree, update: Tensor) -> tuple[Tree, list[bytes]]:
        turn = int(memory["turn"][0])
        sent = update[:, turn::2].contiguous()
        return {"turn": memory["turn"].new_full((1,), 1 - turn)}, [bytes([turn]) + sent.numpy().tobytes()]

    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        moved = torch.zeros_like(like)
        moved[:, payloads[0][0] :: 2] = torch.from_numpy(np.frombuffer(payloads[0][1:], np.float64).copy())
        return copies, moved


def test_what_the_servers_codec_remembers_goes_on_from_round_to_round_and_over_an_interruption(
    run: Any, tmp_path: Path, task: Task, data: FederatedData
) -> None:
    how: dict[str, Any] = {"rounds": 5, "cohort": 3, "downlink": Halves()}
    done = run(FedAvg(**MINI), **how)
    heard = held.personal(done)[0]
    moved = heard != task.start()
    assert bool(moved[::2].any()) and bool(moved[1::2].any())
    for after in (2, 3):
        folder = tmp_path / str(after)
        with pytest.raises(KeyboardInterrupt):
            run(FedAvg(**MINI), **how, out=folder, commit=1, progress=interrupt(after))
        again = dc.resume(folder, task, data)
        assert torch.equal(held.personal(again)[0], heard) and torch.equal(held.shared(again), held.shared(done))
