"""The machine's own rate: the product of two large float32 matrices. A round is one of them."""

from __future__ import annotations

import torch
from speed_turns import Job, Turns, serve

_SIDE = 2048


def contender(job: Job, turns: Turns) -> None:
    left, right, product = torch.randn(3, _SIDE, _SIDE).unbind()
    turns.about |= {"flops": 2 * _SIDE**3, "parameters": sum(p.numel() for p in job.model().parameters())}
    turns.begin()
    while True:
        torch.mm(left, right, out=product)
        turns.trained()


if __name__ == "__main__":
    serve(contender)
