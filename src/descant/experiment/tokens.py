"""Whether the rows that a model looks up in its embeddings are there: said before anything is trained.

Under vmap torch lays the embeddings of all clients end to end: a number beyond the last row of one would silently
read and train the next client's rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from descant.data import FederatedData, Part
from descant.data.arrays import PARTS
from descant.errors import TaskError
from descant.task import Task

_LOOKUPS = (
    torch.ops.aten.embedding,
    torch.ops.aten.embedding_renorm_,
    torch.ops.aten._embedding_bag,
    torch.ops.aten._embedding_bag_forward_only,
)
_BLOCK = 64  # examples that the model is given at once


class _OutsideError(Exception):
    """An embedding is asked for a row that it does not have."""

    def __init__(self, embedding: str, rows: int, number: int) -> None:
        super().__init__(embedding, rows, number)
        self.embedding, self.rows, self.number = embedding, rows, number


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every lookup, those of `functional.embedding` too, and ends one that is outside before it is done."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names, self.seen = names, False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket in _LOOKUPS:
            self.seen, (weight, numbers) = True, args[:2]
            if numbers.numel():
                least, most = (int(end) for end in torch.aminmax(numbers))
                if least < 0 or most >= len(weight):
                    name = self.names.get(weight.data_ptr(), "")
                    raise _OutsideError(name.removesuffix(".weight"), len(weight), least if least < 0 else most)
        return func(*args, **(kwargs or {}))


class _Looked(NamedTuple):
    """What became of a look at some examples."""

    seen: bool  # whether an embedding was asked for anything
    outside: _OutsideError | None
    ended: bool  # whether the model came to its end


def check_tokens(task: Task, data: FederatedData) -> None:
    """Refuse inputs that ask an embedding for a row that it does not have.

    The model sees made-up examples of the least and of the largest number at each place, and the real ones only
    where it asks for too much by these: a number may follow from several places.
    """
    first = data.train.inputs[:1]
    if first.is_complex():
        return
    task.to(first.device)
    one = _look(task, first)
    if not one.seen:
        return
    parts = {name: data.part(name) for name in PARTS if data.part(name).inputs.numel()}
    ends = _look(task, torch.stack([end for part in parts.values() for end in part.extremes]))
    if ends.outside is None and (ends.ended or not one.ended):  # why it does not run at all, the probe says
        return
    for name, part in parts.items():
        if (found := _first_outside(task, part)) is not None:
            place, outside = found
            client = data.clients[int(torch.searchsorted(part.host_offsets, place, right=True)) - 1]
            raise TaskError(_said(outside, client, name))


def _said(outside: _OutsideError, client: str, part: str) -> str:
    called = f"the embedding '{outside.embedding}'" if outside.embedding else "an embedding of the model"
    remedy = f"give it {outside.number + 1} rows or more, or number inputs anew"
    if outside.number < 0:
        remedy = "number inputs from 0 on, what only pads them too (padding_idx)"
    return (
        f"{called} has the rows 0 to {outside.rows - 1}, and inputs ask for {outside.number} (client '{client}', "
        f"{part}): {remedy}"
    )


def _first_outside(task: Task, part: Part) -> tuple[int, _OutsideError] | None:
    """The first example that asks for too much, by halves of the block that it lies in."""
    for begin in range(0, len(part.inputs), _BLOCK):
        block = part.inputs[begin : begin + _BLOCK]
        outside = _look(task, block).outside
        if outside is None:
            continue
        while len(block) > 1:
            half = len(block) // 2
            if (before := _look(task, block[:half]).outside) is not None:
                block, outside = block[:half], before
            else:
                begin, block = begin + half, block[half:]
                outside = _look(task, block).outside or outside
        return begin, outside
    return None


def _look(task: Task, inputs: Tensor) -> _Looked:
    """What the first model looks up for some examples; random numbers that it draws are not missed elsewhere."""
    model = task._deployed  # its own numbers are those of the start: nothing is copied
    watch = _Watch({p.data_ptr(): name for name, p in model.named_parameters()})
    inputs = inputs.to(task.dtype) if inputs.is_floating_point() else inputs
    devices = [inputs.device] if inputs.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices), torch.no_grad(), watch:
            model(inputs)
    except _OutsideError as outside:
        return _Looked(True, outside, ended=False)
    except Exception:
        return _Looked(watch.seen, None, ended=False)
    return _Looked(watch.seen, None, ended=True)
