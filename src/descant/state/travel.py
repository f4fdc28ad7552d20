"""Rows of clients in the processor's memory, where a GPU's has no room for all: only those at work are there.

They travel beside the work, each from and to its place. Rows that clients leave are copied on the GPU, which takes
no time, and from there back while the next clients work; those who work again at once find theirs on the GPU. Rows
of others who work next are brought ahead. A copy counts as long as nobody wrote the row anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from descant.state.leaves import Shapes
from descant.state.streams import Done, Ways
from descant.trees import Tree

_LAST = 2  # cohorts whose rows stay on the device, and which may be on the way back at once
_SHARE = 0.05  # of a device's free memory that one cohort's rows may take a second time


@dataclass(eq=False)
class _Copies:
    """Rows of some clients on the device, beside those in the processor's memory."""

    who: Tensor  # [K]
    rows: Tree  # [K, ...]; none where there was no room
    done: Done  # tells when the copies of these are made: to the device, or back from it
    good: Tensor  # [K] whose rows were not written since


class _Found(NamedTuple):
    """Where rows of some clients were found on the device."""

    rows: Tree  # [L, ...]
    places: Tensor  # [k] of these clients among those who were asked for
    at: Tensor  # [k] and among the rows
    free: bool  # whether nobody else has these rows


class Travel:
    """The rows [N, ...] of N clients, and what is on its way from and to them.

    The clients' numbers are given in the processor's memory. `rows` may be read after `settle` only.
    """

    def __init__(self, clients: int, spec: Shapes, ways: Ways) -> None:
        self.clients, self.spec, self.ways = clients, spec, ways
        self.device = ways.device
        self.rows: Tree = {}
        self._sent: list[_Copies] = []  # the oldest first
        self._back: list[Done] = []  # of all that may be on the way back, the oldest first
        self._ahead: tuple[Tensor, _Copies] | None = None  # who was asked for, and those of them who were brought
        self._reads: Done | None = None  # tells when `rows` are not read any more
        self._room: float | None = None  # bytes that one cohort's rows may take

    def allocate(self) -> Tree:
        """The rows, which are anything yet."""
        self.rows = self.ways.allocate(self.clients, self.spec)
        return self.rows

    def take(self, names: Iterable[str], who: Tensor, known: Tensor) -> Tree:
        """The rows [K, ...] of clients on the device, in the named leaves.

        Those who are not `known` [K], and who are not all of them, get anything.
        """
        names, left = list(names), known.nonzero().squeeze(1)  # places in `who` of those still to be found
        found: list[_Found] = []
        for copies in reversed(self._sent):
            left = self._pick(copies, who, left, found)
        if self._ahead is not None:
            asked, copies = self._ahead
            left, before = self._pick(copies, who, left, found), len(left)
            if len(left) < before:
                self.ways.join(copies.rows, copies.done)
            if torch.equal(asked, who) and len(names) == len(self.spec):  # they begin to work
                self._ahead = None
                if found:
                    found[-1] = found[-1]._replace(free=found[-1].rows is copies.rows)
        if len(left):
            rows, done = self._bring(names, who[left])
            self.ways.join(rows, done)
            found.append(_Found(rows, left, torch.arange(len(left)), free=True))
        return self._joined(names, len(who), found)

    def _pick(self, copies: _Copies, who: Tensor, left: Tensor, found: list[_Found]) -> Tensor:
        """Take what copies have of the clients at the places `left`; the places that are left then."""
        if not copies.rows:
            return left
        there, at = matches(who[left], copies.who)
        there, at = there[copies.good[at]], at[copies.good[at]]
        if not len(there):
            return left
        found.append(_Found(copies.rows, left[there], at, free=False))
        others = torch.ones_like(left, dtype=torch.bool)
        others[there] = False
        return left[others]

    def _joined(self, names: list[str], clients: int, found: list[_Found]) -> Tree:
        """Rows from several places as one tensor a leaf."""
        order = torch.zeros(clients, dtype=torch.int64)
        if len(found) == 1:
            rows, places, at, free = found[0]
            if free and len(rows[names[0]]) == clients and torch.equal(at, torch.arange(clients)):
                return {name: rows[name] for name in names}
            order[places] = at
            index = self._there(order)
            return {name: rows[name].index_select(0, index) for name in names}
        places = torch.cat([each.places for each in found])
        order[places] = torch.arange(len(places))
        index, picks = self._there(order), [self._there(each.at) for each in found]
        joined: Tree = {}
        for name in names:
            # By selecting only: to write to an index, a GPU that must be deterministic would sort it first.
            shape, dtype = self.spec[name]
            lined = torch.empty(len(places), *shape, dtype=dtype, device=self.device)
            parts = torch.split(lined, [len(pick) for pick in picks])
            for each, pick, part in zip(found, picks, parts, strict=True):
                torch.index_select(each.rows[name], 0, pick, out=part)
            joined[name] = lined.index_select(0, index)
        return joined

    def ahead(self, who: Tensor, known: Tensor, working: Tensor) -> None:
        """Bring rows of the clients who are next, but for those not `known` [K], and the `working`, who change."""
        self._ahead = None
        there = self._marks([working, *(c.who[c.good] for c in self._sent[1 - _LAST :] if c.rows)])  # or will be
        some = who[known & ~there[who]]
        if len(some) and self._has_room(len(some)):
            rows, done = self._bring(self.spec, some)
            self._ahead = who, _Copies(some, rows, done, torch.ones_like(some, dtype=torch.bool))

    def keep(self, who: Tensor, rows: Tree) -> None:
        """Let the rows [K, ...] of clients travel back from the device."""
        if not len(who):
            return
        copies = self._copied(who, rows)
        # As the store has them, so that `scatter` needs no memory: if it ran out of it half way, some leaves would
        # be in place already, and the work would be done again from these.
        leaving = copies or {
            name: rows[name].to(self.device, dtype).contiguous() for name, (_, dtype) in self.spec.items()
        }
        done = self.ways.scatter(leaving, who, aside=bool(copies))
        self._spoil(who)  # not before: who runs out of memory above does the work again, from what was there
        self._sent.append(_Copies(who, copies, done, torch.ones_like(who, dtype=torch.bool)))
        self._back.append(done)
        if len(self._back) > _LAST:  # of what is on its way the device has a copy
            self._back.pop(0).synchronize()
        del self._sent[:-_LAST]

    def settle(self) -> None:
        """Wait for all rows that are on the way back."""
        if self._back:
            self._back[-1].synchronize()  # which comes after all others
        self._back = []

    def overwrite(self, who: Tensor) -> None:
        """Let `rows` of clients be written to: nothing comes back over them, and nothing reads them."""
        self.settle()
        if self._reads is not None:
            self._reads.synchronize()
        self._spoil(who)

    def make_room(self) -> bool:
        """Free what is on the device beside the work, and take no more of it; whether there was anything."""
        held = self._ahead is not None or any(each.rows for each in self._sent)
        self.settle()
        self._sent, self._ahead, self._room = [], None, 0.0
        return held

    def _marks(self, some: list[Tensor]) -> Tensor:
        """Which clients [N] are among some."""
        marks = torch.zeros(self.clients, dtype=torch.bool)
        for who in some:
            marks[who] = True
        return marks

    def _spoil(self, who: Tensor) -> None:
        """The rows of clients are written anew: copies of the old ones do not count any more."""
        written = self._marks([who])
        for copies in [*self._sent, *([self._ahead[1]] if self._ahead is not None else [])]:
            copies.good &= ~written[copies.who]
        self._sent = [copies for copies in self._sent if bool(copies.good.any())]

    def _bring(self, names: Iterable[str], who: Tensor) -> tuple[Tree, Done]:
        """Begin to take rows to the device, after the last of them that are on the way back."""
        some = self._marks([who])
        after = next((each.done for each in reversed(self._sent) if some[each.who].any()), None)
        rows, self._reads = self.ways.gather(names, who, after)
        return rows, self._reads

    def _copied(self, who: Tensor, rows: Tree) -> Tree:
        """Copies of rows that nobody else will change; none if there is no room for them."""
        if not self._has_room(len(who)):
            return {}
        try:
            copies: Tree = {}
            for name, (shape, dtype) in self.spec.items():
                copies[name] = torch.empty(len(who), *shape, dtype=dtype, device=self.device).copy_(rows[name])
            return copies
        except torch.OutOfMemoryError:
            self._room = 0.0
            return {}

    def _has_room(self, clients: int) -> bool:
        if self._room is None:
            self._room = _SHARE * self.ways.room()
        return clients * sum(prod(shape) * dtype.itemsize for shape, dtype in self.spec.values()) <= self._room

    def _there(self, index: Tensor) -> Tensor:
        return index.to(self.device, non_blocking=True)


def matches(who: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The places in `who` of those that are among `ids`, and where in `ids` each is."""
    if torch.equal(who, ids):
        return (same := torch.arange(len(who))), same
    order = ids.argsort()
    near = torch.searchsorted(ids[order], who).clamp(max=len(ids) - 1)
    at = order[near]
    there = (ids[at] == who).nonzero().squeeze(1)
    return there, at[there]
