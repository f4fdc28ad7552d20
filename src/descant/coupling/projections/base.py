"""What every projection P offers: it acts on rows, and it follows from a seed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from descant.context import Context
from descant.draws import bits, seed_of
from descant.errors import SettingError
from descant.fields import Checked
from descant.task import Layout


@dataclass(frozen=True)
class Projector(ABC):
    """P [dim, d], applied to rows."""

    dim: int
    d: int

    @abstractmethod
    def project(self, x: Tensor) -> Tensor:
        """P x: [K, d] -> [K, dim]."""

    @abstractmethod
    def lift(self, c: Tensor) -> Tensor:
        """P' c: [K, dim] -> [K, d]."""

    def onto(self, w: Tensor, c: Tensor) -> Tensor:
        """w + P' c, [K, d], which some kinds write at once."""
        return w + self.lift(c)

    @property
    def held(self) -> tuple[Tensor, ...]:
        """The tensors that P consists of."""
        return tuple(_tensors(self))

    @property
    def stored(self) -> int:
        """The bytes of memory that P takes."""
        memory = (tensor.untyped_storage() for tensor in self.held)
        return sum({one.data_ptr(): one.nbytes() for one in memory}.values())

    @property
    def form(self) -> Form:
        """P without its tensors: the same for all P of a kind and a size, and so for those of all rounds."""
        return Form(type(self), tuple(map(_emptied, _values(self))))

    def rows(self, clients: int) -> tuple[Tensor, ...]:
        """The tensors with an axis [K, ...] for clients, which makes them rows of a step: see `Form`."""
        return tuple(tensor.expand(clients, *tensor.shape) for tensor in self.held)


class _Gap:
    """Where a tensor was."""


class Form(NamedTuple):
    """A projector without its tensors.

    A step that is compiled is compiled anew for each tensor that it captures. One that captures the form, and gets
    the tensors as rows, is one program for the projections of all rounds:

        P = self.projection.drawn(local.ctx, self.dim, w)
        local.run(partial(self.step, P.form), q, w, *P.rows(len(w)), work=self.work, role="shared")

        def step(self, form, q, grad, w, *rows):
            P = form.of(rows)
    """

    kind: type[Projector]
    values: tuple[Any, ...]

    def of(self, rows: tuple[Tensor, ...]) -> Projector:
        """The projector with these tensors [K, ...], which are the same for all clients."""
        P: Projector = _filled(self, iter([row[0] for row in rows]))
        return P


def _values(P: Projector) -> list[Any]:
    return [getattr(P, field.name) for field in fields(P)]


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Projector | tuple):
        for inner in _values(value) if isinstance(value, Projector) else value:
            yield from _tensors(inner)


def _emptied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _Gap
    if isinstance(value, Projector):
        return value.form
    return tuple(map(_emptied, value)) if isinstance(value, tuple) else value


def _filled(value: Any, tensors: Iterator[Tensor]) -> Any:
    if value is _Gap:
        return next(tensors)
    if isinstance(value, Form):
        return value.kind(*(_filled(inner, tensors) for inner in value.values))
    return tuple(_filled(inner, tensors) for inner in value) if isinstance(value, tuple) else value


class Space(NamedTuple):
    """The space of models that P acts on, and the dtype and device of its numbers."""

    d: int
    dtype: torch.dtype
    device: torch.device
    layout: Layout | None = None  # which slice of d is which parameter

    def of(self, d: int) -> Space:
        """The space of a part of the model."""
        return Space(d, self.dtype, self.device)

    def key(self, seed: int, name: str) -> Tensor:
        """The state of the `descant.draws.stream` that all parties derive from a seed, by name."""
        return bits(seed, "projection", name).to(self.device)


@dataclass(frozen=True, kw_only=True)
class Projection(Checked, ABC):
    """A way to make P from nothing but a seed, the dimension d of the models and m of the subspace.

    `fresh` draws another P in each round, the same for all parties. It is for methods whose server keeps a whole
    model: a reference in the subspace of one P means nothing in that of the next.
    """

    name: ClassVar[str]

    fresh: bool = False

    def dim(self, m: int, d: int) -> int:
        """The dimension of the subspace, where `m` was asked for."""
        return m

    def check(self, m: int, layout: Layout) -> None:
        """Refuse settings that do not fit a model, or each other."""
        self.dim(m, layout.dim)

    @abstractmethod
    def make(self, seed: int, m: int, space: Space) -> Projector:
        """P for a space of models."""

    def build(self, seed: int, m: int, x: Tensor, layout: Layout | None = None) -> Projector:
        """P for models like the rows of x [K, d], in their dtype and on their device."""
        space = Space(x.shape[-1], x.dtype, x.device, layout)
        return _built(self, seed, self.dim(m, space.d), space)

    def drawn(self, ctx: Context, m: int, x: Tensor) -> Projector:
        """P as all parties of a round have it, for models like the rows of x [K, d]."""
        seed = seed_of(ctx.seed, "projection", ctx.round) if self.fresh else ctx.seed
        return self.build(seed, m, x, ctx.layout)


@lru_cache(maxsize=2)  # of the run at hand; a P may take much memory
def _built(projection: Projection, seed: int, m: int, space: Space) -> Projector:
    return projection.make(seed, m, space)


def at_most(m: int, d: int) -> int:
    """The dimension m, which no subspace of d dimensions exceeds."""
    if m > d:
        raise SettingError(f"dim = {m}: it must be at most {d}, the number of the model's parameters")
    return m


def evenly(total: int, parts: int) -> list[int]:
    """Sizes of so many parts, the first of them larger by one where the division is uneven."""
    size, more = divmod(total, parts)
    return [size + 1] * more + [size] * (parts - more)
