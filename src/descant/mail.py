"""What travels up: the messages of S clients as leaves [S, ...], with who sent them and what they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from descant.context import Context
from descant.task import Layout
from descant.trees import Tree

LAST = ""  # in the place of a leaf's name: what the client sent last


class Sent(NamedTuple):
    """What a leaf of a message is.

    A "difference" says how something moves: zero is no news. A "position" is a point that moved away from a
    reference which both ends hold: a leaf of the broadcast, or what the client sent `LAST`. What compresses, clips
    or scales an update works on differences, and on positions less their reference.
    """

    what: Literal["difference", "position"]
    of: str  # the leaf of the broadcast that it is a difference of, or the position's reference
    beside: str = ""  # the leaf of the broadcast that a position since the `LAST` one lies beside, if there is one


def difference(of: str) -> Sent:
    """A difference of the broadcast's leaf `of`, and of its shape."""
    return Sent("difference", of)


def position(since: str, beside: str = "") -> Sent:
    """A position in the space of the broadcast's leaf `since`, which it moved away from; or since `LAST`.

    One since `LAST` may lie `beside` a leaf of the broadcast: in the same space.
    """
    return Sent("position", since, beside)


class Form(NamedTuple):
    """The names, the shapes (of one client's row) and the types of a message's leaves: known to both ends."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, leaves: Mapping[str, Tensor]) -> Form:
        """The form of leaves [S, ...]."""
        rows = leaves.values()
        return cls(tuple(leaves), tuple(tuple(r.shape[1:]) for r in rows), tuple(r.dtype for r in rows))

    def blank(self, senders: int, device: torch.device | str = "cpu") -> Tree:
        """Messages of this form that say nothing, and take no memory."""
        fields = zip(self.names, self.shapes, self.dtypes, strict=True)
        zeros = {name: (shape, torch.zeros((), dtype=dtype, device=device)) for name, shape, dtype in fields}
        return {name: zero.expand(senders, *shape) for name, (shape, zero) in zeros.items()}


@dataclass(frozen=True, eq=False)
class Mail(Mapping[str, Tensor]):
    """Messages: leaves [S, ...], the first of them primary, and their senders' numbers.

    `references` hold, for leaves that say what they are (`Sent`), the point [S, ...] that each moved away from:
    zero for a difference; [1, ...] where it is the same for all. `weights` [S] are what senders claim to weigh.
    In the hands of attackers, `heard` holds the broadcast's point beside each such leaf, and `differences` are the
    leaves that are differences of it.
    """

    leaves: Tree
    clients: Tensor  # [S] the senders' numbers
    ctx: Context
    started: Tensor  # [S] the round whose broadcast each sender started from
    references: Tree = field(default_factory=dict)
    weights: Tensor | None = None
    facts: Tree = field(default_factory=dict)  # what an aggregator asked the senders for
    figures: Tree = field(default_factory=dict)
    heard: Tree = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    since_last: tuple[str, ...] = ()  # leaves whose reference is what the server read last of the sender

    @classmethod
    def of(cls, leaves: Mapping[str, Tensor], clients: Tensor, ctx: Context) -> Mail:
        """Messages of clients that started in this round."""
        return cls(dict(leaves), clients, ctx, torch.full_like(clients, ctx.round))

    def __getitem__(self, name: str) -> Tensor:
        return self.leaves[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.leaves)

    def __len__(self) -> int:
        """The number of leaves. The number of messages is `len(mail.clients)`."""
        return len(self.leaves)

    def __bool__(self) -> bool:
        return len(self.clients) > 0 and len(self.leaves) > 0

    @property
    def layout(self) -> Layout:
        """Which slice of a model is which parameter, for methods that treat layers differently."""
        return self.ctx.layout

    @property
    def form(self) -> Form:
        return Form.of(self.leaves)

    def into(self, held: Tensor, name: str) -> Tensor:
        """`held` [N, ...], what the server holds per client, with the senders' rows replaced by the leaf `name`."""
        return held.index_copy(0, self.clients, self[name])

    def record(self, name: str, value: float) -> None:
        """Report a figure of this round, found by the server; figures of one name add up."""
        self.figures[name] = self.figures.get(name, torch.zeros((), dtype=torch.float64)) + value

    def updates(self) -> Tree:
        """The leaves that say what they are, as differences [S, ...]."""
        return {name: _apart(self.leaves[name], reference) for name, reference in self.references.items()}

    def moved(self, updates: Mapping[str, Tensor]) -> Mail:
        """The same mail with other updates."""
        moved = {name: _apart(update, -self.references[name]) for name, update in updates.items()}
        return self.with_leaves(moved)

    def positions(self) -> Tree:
        """The floating leaves as points [S, ...]: a difference is added to the point that it is a difference of."""
        floating = {name: leaf for name, leaf in self.leaves.items() if leaf.is_floating_point()}
        return {name: leaf + self._origin(name, leaf) for name, leaf in floating.items()}

    def placed(self, points: Mapping[str, Tensor]) -> Mail:
        """The same mail with other `positions`."""
        return self.with_leaves({name: point - self._origin(name, point) for name, point in points.items()})

    def _origin(self, name: str, like: Tensor) -> Tensor:
        return self.heard[name] if name in self.differences else torch.zeros_like(like[:1])

    def with_leaves(self, leaves: Mapping[str, Tensor]) -> Mail:
        """The same mail with some leaves replaced or added."""
        return replace(self, leaves={**self.leaves, **leaves})

    def only(self, which: Tensor) -> Mail:
        """The messages that a mask or an index picks."""
        if which.dtype == torch.bool and which.device.type == "cpu" and bool(which.all()):
            return self
        return replace(
            self,
            leaves={name: leaf[which] for name, leaf in self.leaves.items()},
            clients=self.clients[which],
            started=self.started[which],
            references={name: leaf if len(leaf) == 1 else leaf[which] for name, leaf in self.references.items()},
            heard={name: leaf if len(leaf) == 1 else leaf[which] for name, leaf in self.heard.items()},
            weights=None if self.weights is None else self.weights[which],
            facts={name: fact[which] for name, fact in self.facts.items()},
        )

    def but(self, which: Tensor, rows: Mail) -> Mail:
        """The same mail with the messages at `which` (a mask) replaced by `rows`, of the same form."""
        at = which.nonzero().squeeze(1).to(self.clients.device)
        changed = {name: leaf.index_copy(0, at, rows[name].to(leaf.dtype)) for name, leaf in self.leaves.items()}
        return self.with_leaves(changed)

    @staticmethod
    def join(mail: Sequence[Mail]) -> Mail:
        """Several lots of mail as one; empty lots are left out."""
        lots = [lot for lot in mail if lot] or list(mail[:1])
        if len(lots) == 1:
            return lots[0]
        return replace(
            lots[0],
            leaves={name: torch.cat([lot[name] for lot in lots]) for name in lots[0]},
            clients=torch.cat([lot.clients for lot in lots]),
            started=torch.cat([lot.started for lot in lots]),
            references={name: torch.cat([lot._rows_of(name) for lot in lots]) for name in lots[0].references},
        )

    def _rows_of(self, name: str) -> Tensor:
        """The reference of a leaf, with a row [S, ...] for each sender."""
        reference = self.references[name]
        return reference.expand(len(self.clients), *reference.shape[1:])

    def finite(self) -> Tensor:
        """Which messages [S] hold finite numbers only."""
        overflow = (leaf for leaf in self.leaves.values() if leaf.is_floating_point() or leaf.is_complex())
        found = [rows_finite(leaf) for leaf in overflow]
        return reduce(torch.logical_and, found) if found else torch.ones_like(self.clients, dtype=torch.bool)


def _apart(leaf: Tensor, reference: Tensor) -> Tensor:
    """leaf - reference; the leaf itself where the reference is zero, as that of differences is."""
    return leaf - reference if len(reference) > 1 or bool(reference.any()) else leaf


def all_finite(leaves: Mapping[str, Tensor]) -> Tensor:
    """Which of some leaves hold finite numbers only, one flag each; they are not read here."""
    return torch.stack([leaf.isfinite().all() for leaf in leaves.values()])


def not_finite(leaves: Mapping[str, Tensor]) -> str | None:
    """The first of some leaves that holds a number which is not finite. A GPU is waited for once."""
    if not leaves:
        return None
    finite = all_finite(leaves).tolist()
    return next((name for name, fine in zip(leaves, finite, strict=True) if not fine), None)


def rows_finite(leaf: Tensor) -> Tensor:
    """Which rows [K] of a leaf [K, ...] hold finite numbers only."""
    return leaf.isfinite().unsqueeze(-1).flatten(1).all(1)
