"""What the processor knows of tensors on a device. The device is torch's `meta`, from which nothing can be read."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from descant import Task
from descant.context import Context
from descant.engine.links import seen_by
from descant.mail import Mail
from descant.methods import Hush, ServerView
from descant.mirrors import host, sent, spread

META = torch.device("meta")


def test_what_was_sent_is_known_and_so_are_rows_of_it() -> None:
    there = sent(torch.tensor([3, 5]), META)
    assert there.device == META and host(there).tolist() == [3, 5]
    rows = spread(there, 4)
    assert rows.shape == (4, 2) and host(rows).tolist() == [[3, 5]] * 4


def test_what_was_made_on_the_device_is_not() -> None:
    for unknown in (spread(torch.zeros(2, device=META), 3), sent(torch.tensor(3), META) + 1):
        with pytest.raises(NotImplementedError):
            host(unknown)


def test_rows_of_what_lies_in_the_processors_memory_are_themselves() -> None:
    rows = spread(torch.tensor(7), 3)
    assert host(rows) is rows and rows.tolist() == [7, 7, 7]


@pytest.mark.parametrize("bits", [8, None])
def test_hush_knows_its_step_on_both_ends_without_asking_the_device(bits: int | None) -> None:
    """Its server takes whole steps there, and clients read from the broadcast which subspace is meant."""
    task = Task(nn.Linear(4, 3))
    ctx = Context(1, 0, 5, task.layout, task.start().to(META))
    method, who = Hush(m=5, bits=bits, weighted=False), torch.arange(5)
    state = method.server_start(ctx)
    for step in range(3):
        seen = seen_by(who[:2], method.broadcast(ServerView(state, ctx)))
        assert seen["step"].device == META and host(seen["step"]).tolist() == [step, step]
        mail = Mail.of({"q": torch.zeros(5, 5, device=META)}, who, ctx)
        state = method.server(ServerView(state, ctx), mail, lambda leaves, weights=None: {"q": leaves["q"].mean(0)})
