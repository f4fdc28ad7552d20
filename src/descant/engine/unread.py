"""Whether numbers are finite: asked of a GPU while it works, and read once, at the end of a round.

Whoever reads a number from a GPU waits until all that was asked of it before is done, and the GPU waits after that
until it is asked for more. So the questions of a round are put together, and their answers are read in one go.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from descant.engine.records import CollapseError
from descant.mail import not_finite, rows_finite
from descant.mirrors import host
from descant.trees import Tree

READ_LATER = ("cuda",)  # kinds of devices that are asked first, and waited for later


def later(tensor: Tensor) -> bool:
    """Whether a tensor lies where work goes on while the processor does something else."""
    return tensor.device.type in READ_LATER


class Kept(NamedTuple):
    """What clients hold after their work, if it is finite."""

    who: Tensor  # [K] their numbers
    method: Tree  # the method's leaves [K, ...]
    rows: Tree  # all that is to be kept


def check_finite(who: Tensor, new: Tree, malicious: Tensor, names: Callable[[Tensor], list[str]]) -> None:
    """Refuse a state [K, ...] of the clients `who` [K] that has overflowed, unless it is a malicious client's."""
    if not_finite(new) is None:
        return
    numbers = host(who)
    benign = ~torch.isin(numbers, malicious.cpu())
    for name, leaf in new.items():
        if bool((bad := benign & ~rows_finite(leaf).cpu()).any()):
            client = names(numbers[bad][:1])[0]
            raise CollapseError(f"the state '{name}' of client {client} is not finite")


def read(*flags: Tensor, meanwhile: Callable[[], None] = lambda: None) -> list[Tensor]:
    """Flags from a GPU, in the processor's memory. It is waited for once, and not for what is asked `meanwhile`."""
    told = torch.cat(flags)
    here, arrived = told.to("cpu", non_blocking=True), None
    if told.is_cuda:
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        arrived.record()
    meanwhile()
    if arrived is not None:
        arrived.synchronize()
    return list(torch.split(here, [len(each) for each in flags]))
