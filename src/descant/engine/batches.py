"""Minibatches by address: which examples each client sees at each step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from descant.data import Part
from descant.draws import bits
from descant.methods import Work
from descant.task import Batch

_WINDOW = 2**21  # positions drawn ahead in one go


@dataclass(frozen=True)
class Rows:
    """The examples of K clients in a packed part: client k owns `sizes[k]` rows from `first[k]` on."""

    part: Part
    clients: Tensor  # [K]

    @property
    def first(self) -> Tensor:
        return self.part.offsets[self.clients]

    @property
    def sizes(self) -> Tensor:
        return self.part.offsets[self.clients + 1] - self.first

    def batch(self, position: Tensor, mask: Tensor, key: Tensor) -> Batch:
        """The examples at `position` [K, B] of each client; where the mask is False, a row that only pads.

        Padding repeats an example of the client itself, so that it is as harmless to the arithmetic as any.
        """
        index = (self.first[:, None] + torch.where(mask, position, 0)).clamp(max=len(self.part.targets) - 1)
        return Batch(self.part.inputs[index], self.part.targets[index], mask, key)

    def all(self, key: Tensor) -> Batch:
        """Every example of every client."""
        position = torch.arange(int(self.sizes.max()), device=key.device).expand(len(self.clients), -1)
        return self.batch(position, position < self.sizes[:, None], key)


class Schedule:
    """The minibatches of one run of local steps.

    Each epoch goes once through the client's examples, in an order that is the argsort of the examples' hashed
    addresses (seed, role, round, client, epoch, example); a short last minibatch is kept unless `drop_last`.
    """

    def __init__(
        self, rows: Rows, work: Work, share: Tensor, address: tuple[int, str, int], drop_last: bool = False
    ) -> None:
        self.rows, self.work, self.address = rows, work, address
        sizes = rows.sizes
        self.length = sizes if work.batch is None else sizes.clamp(max=work.batch)
        per_epoch = torch.ones_like(sizes)  # minibatches in an epoch [K]
        if work.batch is not None:
            whole = torch.div(sizes, work.batch, rounding_mode="floor")
            per_epoch = (
                whole.clamp(min=1) if drop_last else -torch.div(-sizes, work.batch, rounding_mode="floor")
            )
        self.per_epoch = per_epoch
        asked = work.steps if work.steps is not None else work.epochs or 1
        finished = (share * asked).ceil().long()  # a straggler stops after 1..asked of its steps or epochs
        self.steps = finished if work.steps is not None else finished * per_epoch
        self._full = rows.all(self._key(0)) if work.batch is None else None
        if work.batch is not None:
            self._width = min(work.batch, int(sizes.max()))
            self._orders = self._shuffle().flatten(1)  # [K, epochs x n]
            draws = 1 if work.hold else len(self)
            self._window = max(1, min(draws, _WINDOW // (len(sizes) * self._width)))
            self._begin, self._positions = -1, self._orders

    def __len__(self) -> int:
        return int(self.steps.max())

    def __getitem__(self, step: int) -> Batch:
        """The clients' minibatches at a step."""
        if self._full is not None:
            return self._full._replace(key=self._key(step))
        draw = 0 if self.work.hold else step
        begin = draw - draw % self._window
        if begin != self._begin:
            self._begin, self._positions = begin, self._draw(begin)
        position = self._positions[draw - begin]
        return self.rows.batch(position.clamp(min=0), position >= 0, self._key(step))

    def _draw(self, begin: int) -> Tensor:
        """The positions [window, K, B] of the examples of a window of steps; -1 where a row only pads."""
        batch, sizes, n = self.work.batch or 0, self.rows.sizes[:, None], int(self.rows.sizes.max())
        step = torch.arange(begin, begin + self._window, device=sizes.device)[:, None]
        epoch = torch.div(step, self.per_epoch, rounding_mode="floor")[..., None]
        place = torch.arange(self._width, device=sizes.device) + (step % self.per_epoch)[..., None] * batch
        index = (epoch * n + place.clamp(max=n - 1)).clamp(max=self._orders.shape[1] - 1)  # [window, K, B]
        position = self._orders.gather(1, index.transpose(0, 1).flatten(1))
        return position.view(len(sizes), len(step), -1).transpose(0, 1).masked_fill(place >= sizes, -1)

    def _shuffle(self) -> Tensor:
        """The orders [K, epochs, n] in which each client goes through its examples."""
        seed, role, round = self.address
        draws = 1 if self.work.hold else int(self.steps.max())
        epochs = -(-draws // self.per_epoch)
        epoch = torch.arange(int(epochs.max()), device=epochs.device)[:, None]
        example = torch.arange(int(self.rows.sizes.max()), device=epochs.device)
        hashed = bits(seed, "batch", role, round, self.rows.clients[:, None, None], epoch, example)
        padding = example >= self.rows.sizes[:, None, None]
        return hashed.masked_fill(padding, torch.iinfo(torch.int64).max).argsort(-1)

    def _key(self, step: int) -> Tensor:
        seed, role, round = self.address
        return bits(seed, "model", role, round, self.rows.clients, step)
