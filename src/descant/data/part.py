"""One part (train, valid or test) of all clients, packed: examples in one tensor, clients as offsets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from descant.data.errors import DataError
from descant.draws import uniform

_BLOCK = 2**16  # examples that are looked at in one go


@dataclass(frozen=True, eq=False)
class Part:
    """Examples of all clients, one client after the other; client k owns rows offsets[k] : offsets[k + 1]."""

    inputs: Tensor  # [M, ...]
    targets: Tensor  # [M, ...]
    offsets: Tensor  # [N + 1] int64

    def __post_init__(self) -> None:
        offsets = self.offsets
        if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype != torch.int64:
            raise DataError(
                f"offsets must be an int64 vector of N + 1 rows, not {offsets.dtype} {[*offsets.shape]}"
            )
        if self.inputs.ndim == 0 or self.targets.ndim == 0:
            raise DataError("inputs and targets must have the examples on their first axis")
        examples = len(self.inputs)
        if len(self.targets) != examples:
            raise DataError(f"{examples} inputs but {len(self.targets)} targets: give one target an input")
        if int(offsets[0]) != 0 or int(offsets[-1]) != examples or bool((offsets.diff() < 0).any()):
            raise DataError(f"offsets must rise from 0 to the number of examples, {examples}")

    def __len__(self) -> int:
        """The number of clients."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Tensor:
        """The number of examples of every client, [N]."""
        return self.offsets.diff()

    @cached_property
    def host_offsets(self) -> Tensor:
        """The offsets in the processor's memory, wherever the examples lie."""
        return self.offsets.cpu()

    @cached_property
    def largest(self) -> int:
        """The number of examples of the largest client."""
        return int(self.host_offsets.diff().max()) if len(self) else 0

    @cached_property
    def extremes(self) -> tuple[Tensor, Tensor]:
        """The least and the largest input at each place, [...] each; there must be an example."""
        found: list[tuple[Tensor, Tensor]] = []
        for rows in torch.split(self.inputs, _BLOCK):  # of mapped files no more need be in memory
            flat = rows.reshape(len(rows), -1)
            low, high = torch.aminmax(flat.byte() if flat.dtype == torch.bool else flat, dim=0)
            found.append((low, high))
        lows, highs = (torch.stack(ends) for ends in zip(*found, strict=True))
        shape, dtype = self.inputs.shape[1:], self.inputs.dtype
        return lows.amin(0).reshape(shape).to(dtype), highs.amax(0).reshape(shape).to(dtype)

    @property
    def owners(self) -> Tensor:
        """The client that owns each example, [M]."""
        clients = torch.arange(len(self), device=self.offsets.device)
        return clients.repeat_interleave(self.sizes)

    def client(self, k: int) -> tuple[Tensor, Tensor]:
        """The inputs and targets of client k, as views."""
        if not 0 <= k < len(self):
            raise IndexError(f"client {k} does not exist: there are {len(self)} clients, counted from 0")
        start, stop = int(self.offsets[k]), int(self.offsets[k + 1])
        return self.inputs[start:stop], self.targets[start:stop]

    def only(self, clients: Tensor) -> Part:
        """The examples of some clients [K], in that order."""
        pieces = [self.client(k) for k in clients.tolist()]
        inputs, targets = (torch.cat(values) for values in zip(*pieces, strict=True))
        ends = self.sizes[clients].cumsum(0)
        return Part(inputs, targets, torch.cat([ends.new_zeros(1), ends]))

    def at_most(self, examples: int, seed: int) -> Part:
        """At most so many examples of each client, drawn by the seed, in the order that they had."""
        owners, first = self.owners, self.offsets[self.owners]
        place = torch.arange(len(owners), device=first.device)
        by_draw = uniform(seed, "at most", owners, place - first).argsort()
        order = by_draw[owners[by_draw].argsort(stable=True)]  # client by client, each in the order drawn
        kept = order[place - first < examples].sort().values
        ends = self.sizes.clamp(max=examples).cumsum(0)
        return Part(self.inputs[kept], self.targets[kept], torch.cat([ends.new_zeros(1), ends]))

    def without_column(self) -> Part:
        """Labels that come as a column [M, 1] as a vector [M]; itself where they do not."""
        column = self.targets.ndim == 2 and self.targets.shape[1] == 1 and not self.targets.is_floating_point()
        return Part(self.inputs, self.targets[:, 0], self.offsets) if column else self

    def to(self, dtype: torch.dtype | None, device: torch.device | str | None) -> Part:
        """The part on `device`, floating tensors in `dtype`; itself where nothing changes."""

        def move(values: Tensor) -> Tensor:
            return values.to(device=device, dtype=dtype if values.is_floating_point() else None)

        inputs, targets, offsets = move(self.inputs), move(self.targets), move(self.offsets)
        if inputs is self.inputs and targets is self.targets and offsets is self.offsets:
            return self
        return Part(inputs, targets, offsets)
