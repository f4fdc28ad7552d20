"""Where a captured step reads its minibatches: tensors that stay in their place, whatever is drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, contiguous_format, zeros_like

from descant.execution.batches import Draw, Schedule
from descant.task import Batch


class Source(NamedTuple):
    """The minibatches of steps from `begin` on: of those whose positions were drawn in one go."""

    begin: int
    end: int | None  # None: of all steps
    inputs: Tensor  # [M, ...], or [K, B, ...] where every step sees the same
    targets: Tensor
    first: Tensor  # [K] where each client's examples begin
    positions: Tensor  # [W, K, B]; or, where every step sees the same examples, the mask [1, K, B]
    keys: Tensor  # [W, K] the addresses of what the model itself draws
    same: bool

    @classmethod
    def of(cls, schedule: Schedule, step: int) -> Source:
        """Those that a step is among."""
        if schedule.full:
            batch = schedule[step]
            keys = schedule.keys(step, len(schedule))
            return cls(step, None, batch.inputs, batch.targets, schedule.first, batch.mask[None], keys, True)
        begin, positions = schedule.window(step)
        part, end = schedule.rows.part, begin + len(positions)
        if schedule.work.hold:
            begin, end = step, len(schedule)
        return cls(
            *(begin, end, part.inputs, part.targets, schedule.first, positions, schedule.keys(begin, end)), False
        )

    @property
    def kind(self) -> Any:
        """What a graph is captured for."""
        stacked = [(_room(len(t)), t.shape[1:]) for t in (self.positions, self.keys)]
        return self.inputs.shape, self.targets.shape, self.inputs.dtype, self.same, *stacked

    def held(self, copies: bool) -> Source:
        """Tensors of this kind for a graph to read from. A federation's examples are read where they lie, unless
        it `copies` them."""
        inputs, targets = (t.clone() if copies or self.same else t for t in (self.inputs, self.targets))
        positions, keys = (t.new_zeros(_room(len(t)), *t.shape[1:]) for t in (self.positions, self.keys))
        examples = self._replace(inputs=inputs, targets=targets, first=zeros(self.first))
        return examples._replace(positions=positions, keys=keys)

    def take(self, new: Source, last: Source | None) -> None:
        """Read what another source holds from now on; what the `last` one had, too, is here already."""
        for name in ("inputs", "targets", "first", "positions", "keys"):
            mine, its = getattr(self, name), getattr(new, name)
            if its is not mine and (last is None or its is not getattr(last, name)):
                mine[: len(its)].copy_(its)

    def at(self, place: Tensor) -> Draw | Batch:
        """The minibatches at a place [1] among the steps."""
        position, key = (t.index_select(0, place.clamp(max=len(t) - 1))[0] for t in (self.positions, self.keys))
        if self.same:
            return Batch(self.inputs, self.targets, position, key)
        return Draw(self.inputs, self.targets, self.first, position, key)


def _room(steps: int) -> int:
    """Room for so many steps and a few more, so that few graphs serve runs of many lengths."""
    return 1 << (steps - 1).bit_length()


def zeros(tensor: Tensor) -> Tensor:
    """A tensor of the same kind, every number in a place of its own."""
    return zeros_like(tensor, memory_format=contiguous_format)
