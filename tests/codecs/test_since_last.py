"""Positions that are compressed from what the server read last: what was left out is in the next update anyway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from descant import Task
from descant.codecs import DGC, LBGM, QSGD, CountSketch, RandomK, Sign, TopK, Uniform, UpdateCodec
from descant.context import Context
from descant.mail import Mail

CODECS: list[UpdateCodec] = [
    *(TopK(share=0.2), TopK(share=0.2, feedback=False), RandomK(share=0.2), RandomK(share=0.2, feedback=False)),
    *(Sign(), DGC(share=0.2, warmup=0), CountSketch(share=0.2, columns=0.5), QSGD(levels=7), LBGM(delta=0.2)),
    Uniform(bits=5),
]


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_a_client_that_stands_still_is_read_better_and_better(codec: UpdateCodec) -> None:
    generator = torch.Generator().manual_seed(1)
    stands = torch.randn(3, 10, generator=generator, dtype=torch.float64)
    task, who = Task(nn.Linear(9, 1).double()), torch.arange(3)
    memory, copies = codec.memory({"x": stands}), codec.copies({"x": stands})
    read, gaps = torch.zeros_like(stands), []
    for t in range(1, 61):
        ctx = Context(t, 0, 3, task.layout, task.start(), 0)
        known: Any = {"references": {"x": read}, "since_last": ("x",)}
        mail = Mail({"x": stands}, who, ctx, torch.full_like(who, t), **known)
        memory, payloads = codec.encode(ctx.of_parties(who), memory, mail)
        blank = replace(mail, leaves=mail.form.blank(3))
        copies, arrived = codec.decode(ctx.of_server(), copies, payloads, blank)
        read = arrived["x"]
        gaps.append(float((read - stands).norm() / stands.norm()))
    assert max(gaps) < 1.0 + 1e-9 and gaps[-1] < 0.01
