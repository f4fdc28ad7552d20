"""Minibatches by address: which examples each client sees at each step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from descant.data import Part
from descant.draws import bits, orders
from descant.methods import ByRound, Work
from descant.mirrors import host
from descant.task import Batch

_WINDOW = 2**21  # positions drawn ahead in one go
_MORE = 16  # times as many on a GPU


class Draw(NamedTuple):
    """A minibatch that is still to be collected from the packed examples: positions within each client.

    It can stand in the place of a `Batch` where clients are looked at one by one.
    """

    inputs: Tensor  # [M, ...]
    targets: Tensor  # [M, ...]
    first: Tensor  # [K] where each client's examples begin
    position: Tensor  # [K, B]; -1 where a row only pads
    key: Tensor  # [K]

    def client(self, k: int) -> Batch:
        """One client's examples, without padding."""
        position = self.position[k]
        index = self.first[k] + position[position >= 0]
        return Batch(self.inputs[index], self.targets[index], torch.ones_like(index, dtype=torch.bool), self.key[k])

    def collect(self) -> Batch:
        """The examples themselves. Padding repeats an example of the client, as harmless to arithmetic as any."""
        index = (self.first[:, None] + self.position.clamp(min=0)).clamp(max=len(self.targets) - 1)
        return Batch(self.inputs[index], self.targets[index], self.position >= 0, self.key)


@dataclass(frozen=True)
class Rows:
    """The examples of K clients in a packed part: client k owns `sizes[k]` rows from `first[k]` on."""

    part: Part
    clients: Tensor  # [K] their numbers, which draws are addressed by
    places: Tensor | None = None  # [K] where they lie in the part, if elsewhere

    @property
    def first(self) -> Tensor:
        return self.part.offsets[self.clients if self.places is None else self.places]

    @property
    def sizes(self) -> Tensor:
        """How many examples each has [K], in the processor's memory."""
        at, offsets = host(self.clients if self.places is None else self.places), self.part.host_offsets
        return offsets[at + 1] - offsets[at]

    def some(self, which: Tensor | slice) -> Rows:
        """The rows of some of the K clients."""
        return Rows(self.part, self.clients[which], None if self.places is None else self.places[which])

    def batch(self, position: Tensor, mask: Tensor, key: Tensor) -> Batch:
        """The examples at `position` [K, B] of each client; where the mask is False, a row that only pads."""
        drawn = position.masked_fill(~mask, -1)
        return Draw(self.part.inputs, self.part.targets, self.first, drawn, key).collect()

    def all(self, key: Tensor, length: int) -> Batch:
        """Every example of every client, padded to a length."""
        position = torch.arange(length, device=key.device).expand(len(self.clients), -1)
        return self.batch(position, position < self.sizes.to(key.device)[:, None], key)


class Counts:
    """How many minibatches clients take, and where they lie: what follows from their sizes and their work alone.

    It is the same in every round in which the same clients work, and costs a GPU's processor dear: it is kept.
    """

    def __init__(self, rows: Rows, work: Work, batch: int | None, drop_last: bool) -> None:
        self.first, self.sizes = rows.first, rows.sizes  # [K]; sizes and what follows are in the processor's memory
        self.full = batch is None
        self.batch = int(self.sizes.max()) if batch is None else batch
        self.used = self.sizes  # examples in an epoch
        self.per_epoch = -torch.div(-self.sizes, self.batch, rounding_mode="floor")  # minibatches in an epoch
        if drop_last and not self.full:
            self.per_epoch = torch.div(self.sizes, self.batch, rounding_mode="floor").clamp(min=1)
            self.used = torch.minimum(self.sizes, self.per_epoch * self.batch)
        epochs = work.epochs or 1
        self.asked = epochs * self.per_epoch if work.steps is None else torch.full_like(self.sizes, work.steps)
        self._tables: dict[int, Tables] = {}

    @cached_property
    def nobody(self) -> Tensor:
        """Who [K] has met a rule to end by before the first step: on a GPU, to make it anew takes a launch."""
        return torch.zeros_like(self.first, dtype=torch.bool)

    @cached_property
    def no_keys(self) -> Tensor:
        """What stands for the addresses of draws [1, K] where a model draws nothing."""
        return self.first[None]

    @cached_property
    def whole(self) -> bool:
        """Whether every client's epoch is made of whole minibatches."""
        return not bool((self.used % self.batch).any())

    def tables(self, rows: Rows, draws: int) -> Tables:
        """Where the orders of clients that draw so many minibatches lie."""
        if draws not in self._tables:
            self._tables = {draws: Tables(self, rows, draws)}  # of a few that come again, the last
        return self._tables[draws]


class Tables:
    """Where each client's orders of its examples, epoch after epoch, lie in one flat tensor.

    Clients of like size are sorted together: one table for all would be as wide as the largest client and as long
    as the smallest one's many epochs.
    """

    def __init__(self, counts: Counts, rows: Rows, draws: int) -> None:
        sizes, device = counts.sizes, counts.first.device
        epochs = -torch.div(-draws, counts.per_epoch, rounding_mode="floor")
        magnitude = sizes.double().log2().long()
        base, stride = torch.zeros_like(sizes), torch.zeros_like(sizes)
        self.groups: list[tuple[Tensor, int, int, Tensor]] = []  # clients, epochs and examples at most, sizes
        filled = 0
        for of_size in torch.unique(magnitude).tolist():
            who = (magnitude == of_size).nonzero().squeeze(1)
            clients = rows.clients if len(who) == len(sizes) else rows.clients[who.to(device)]
            most = int(epochs[who].max()), int(sizes[who].max())
            self.groups.append((clients, *most, sizes[who].to(device)))
            base[who] = filled + torch.arange(len(who)) * (most[0] * most[1])
            stride[who] = most[1]
            filled += len(who) * most[0] * most[1]
        self._filled = filled
        self._about = torch.stack([base, stride, counts.per_epoch, sizes]).to(device)  # [4, K]
        self._found: dict[tuple[int, int, int, int], tuple[Tensor, Tensor]] = {}

    def places(self, begin: int, end: int, batch: int, width: int) -> tuple[Tensor, Tensor]:
        """Where the minibatches of some steps lie in that tensor [steps, K, width], and where a row only pads.

        It is the same in every round. So that of the steps which were asked for last is kept if it takes little
        memory: to find it takes a GPU's processor a dozen launches.
        """
        key = (begin, end, batch, width)
        if key in self._found:
            return self._found[key]
        base, stride, per_epoch, sizes = self._about
        step = torch.arange(begin, end, device=base.device)[:, None]
        epoch = torch.div(step, per_epoch, rounding_mode="floor")
        within = torch.arange(width, device=step.device)
        place = (step % per_epoch * batch)[..., None] + within
        index = (base + epoch * stride)[..., None] + place
        index.clamp_(max=self._filled - 1)
        found = index, (place >= sizes[:, None]) | (within >= batch)
        self._found = {key: found} if index.numel() <= _WINDOW else {}
        return found


class Schedule:
    """The minibatches of one run of local steps.

    Each epoch goes once through the client's examples, in an order that is the argsort of the examples' hashed
    addresses (seed, role, round, client, epoch, example); a short last minibatch is kept unless `drop_last`.
    `keyed` says whether the model draws numbers of its own (dropout); with `few_shapes` full batches, and those
    whose size depends on the round, are padded to a power of two, so that a few compiled programs serve.
    """

    def __init__(
        self,
        rows: Rows,
        work: Work,
        share: Tensor,
        address: tuple[int, str, int],
        drop_last: bool = False,
        keyed: bool = True,
        few_shapes: bool = False,
        counts: Counts | None = None,
    ) -> None:
        self.rows, self.work, self.address, self.keyed, self.few_shapes = rows, work, address, keyed, few_shapes
        self.counts = counts or Counts(rows, work, work.batch_in(max(1, address[-1])), drop_last)
        self.first, self.sizes, self.asked = self.counts.first, self.counts.sizes, self.counts.asked
        self.full, self.batch = self.counts.full, self.counts.batch
        self.used, self.per_epoch = self.counts.used, self.counts.per_epoch
        self.steps = (share * self.asked).ceil().long()  # [K]; a straggler stops after 1..asked of its steps
        least, most = torch.aminmax(self.steps)
        self.ends = int(least), int(most)  # the fewest and the most steps
        self._full: Batch | None = None
        self._begin, self._drawn = -1, self.first

    def __len__(self) -> int:
        return self.ends[1]

    @property
    def even(self) -> bool:
        """Whether all minibatches have one length, of two examples or more, in whichever round: none is padded."""
        if self.full:
            return self.batch > 1 and bool((self.sizes == self.rows.part.largest).all())
        if isinstance(self.work.batch, ByRound):
            return False
        return 1 < self._width == self.batch and self.counts.whole

    def __getitem__(self, step: int) -> Batch:
        """The clients' minibatches at a step."""
        source = self.at(step)
        return source.collect() if isinstance(source, Draw) else source

    def at(self, step: int) -> Draw | Batch:
        """The same, not yet collected where it changes from step to step."""
        if self.full:
            if self._full is None:
                self._full = self.rows.all(self.first, self._rounded() if self.few_shapes else self.batch)
            return self._full._replace(key=self._key(step))
        begin, drawn = self.window(step)
        at, part = 0 if self.work.hold else step - begin, self.rows.part
        return Draw(part.inputs, part.targets, self.first, drawn[at], self._key(step))

    def window(self, step: int) -> tuple[int, Tensor]:
        """The positions [W, K, B] of the examples of some steps that `step` is among, and the first of these."""
        if self._begin < 0:
            self._shuffle()
        draw = 0 if self.work.hold else step
        begin = draw - draw % self._window
        if begin != self._begin:
            self._begin, self._drawn = begin, self._draw(begin)
        return begin, self._drawn

    def keys(self, begin: int, end: int) -> Tensor:
        """The addresses [steps, K] of what the model itself draws in some steps; [1, K] where it draws nothing."""
        if not self.keyed:
            return self.counts.no_keys
        seed, role, round = self.address
        steps = torch.arange(begin, end, device=self.first.device)[:, None]
        return bits(seed, "model", role, round, self.rows.clients, steps)

    def release(self) -> None:
        """Let go of the examples and their orders; what can be counted stays."""
        self._full, self._begin = None, -1
        self._drawn = self._orders = self.first

    def examples(self, steps: Tensor) -> Tensor:
        """How many examples [K] the first `steps` [K] minibatches hold."""
        if self.work.hold:
            return steps * self.sizes.clamp(max=self.batch)
        epochs, rest = torch.div(steps, self.per_epoch, rounding_mode="floor"), steps % self.per_epoch
        return epochs * self.used + torch.minimum(rest * self.batch, self.used)

    def _rounded(self) -> int:
        """The size of a minibatch, up to a power of two: one of a few shapes."""
        return min(1 << (self.batch - 1).bit_length(), self.rows.part.largest)

    @property
    def _width(self) -> int:
        if self.few_shapes and isinstance(self.work.batch, ByRound):
            return self._rounded()
        return min(self.batch, self.rows.part.largest)

    def _draw(self, begin: int) -> Tensor:
        """The positions [window, K, B] of the examples of a window of steps; -1 where a row only pads."""
        index, pads = self._tables.places(begin, begin + self._window, self.batch, self._width)
        position = self._orders.index_select(0, index.flatten()).view(index.shape)
        return position.masked_fill_(pads, -1)

    def _shuffle(self) -> None:
        """The orders in which each client goes through its examples, epoch after epoch, in one flat tensor."""
        seed, role, round = self.address
        key, device = bits(seed, "batch", role, round), self.first.device
        draws = 1 if self.work.hold else len(self)
        self._tables = self.counts.tables(self.rows, draws)
        drawn = [orders(key, *group).flatten() for group in self._tables.groups]
        self._orders = torch.cat(drawn) if len(drawn) > 1 else drawn[0]
        ahead = _WINDOW if device.type == "cpu" else _MORE * _WINDOW
        self._window = max(1, min(draws, ahead // (len(self.sizes) * self._width)))

    def _key(self, step: int) -> Tensor:
        """The address of what the model itself draws; of no use, and not computed, where it draws nothing."""
        if not self.keyed:
            return self.first
        seed, role, round = self.address
        return bits(seed, "model", role, round, self.rows.clients, step)
