"""Rows of clients in the processor's memory, where a GPU's has no room for all: only those at work are there.

They travel beside the work. Rows that clients leave are copied on the GPU, which takes no time, and from there back
while the next clients work; those who work again at once find theirs on the GPU. Rows of others who work next are
brought ahead. A copy counts as long as nobody wrote the row anew.
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
_LONG = 2**15  # numbers of a row from which on it is copied by several threads


@dataclass(eq=False)
class _Copies:
    """Rows of some clients on the device, beside those in the processor's memory."""

    who: Tensor  # [K]
    rows: Tree  # [K, ...]; none where there was no room
    done: Done  # tells when the copies of these are made: to the device, or back from it
    good: Tensor  # [K] whose rows were not written since
    landing: Tree  # [K, ...] in the processor's memory, to be put in place; none if they travel into it
    placed: bool  # whether the processor's memory has them where they belong


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
        self._ahead: tuple[Tensor, _Copies] | None = None  # who was asked for, and those of them who were brought
        self._reads: Done | None = None  # tells when `rows` are not read any more
        self._room: float | None = None  # bytes that one cohort's rows may take

    def allocate(self) -> Tree:
        """The rows, which are anything yet."""
        spec = self.spec.items()
        self.rows = {name: self.ways.empty(self.clients, *shape, dtype=dtype) for name, (shape, dtype) in spec}
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
            if self._pending(who[left]).any():
                self.settle()
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
        """Bring rows of the clients who are next, but for those not `known` [K], and those `working`, who change.

        To be called while the device works: the processor may have to bring rows together first.
        """
        self._ahead = None
        if not self.rows:
            return
        there = self._marks([working, *(c.who[c.good] for c in self._sent[1 - _LAST :] if c.rows)])  # or will be
        some = who[known & ~there[who] & ~self._pending(who)]
        if len(some) and self._has_room(len(some)):
            rows, done = self._bring(self.spec, some)
            self._ahead = who, _Copies(some, rows, done, torch.ones_like(some, dtype=torch.bool), {}, True)

    def keep(self, who: Tensor, rows: Tree) -> None:
        """Let the rows [K, ...] of clients travel back from the device."""
        if not len(who):
            return
        copies, span = self._copied(who, rows), _span(who)
        # As the store has them, so that `send` needs no memory: if it ran out of it half way, some leaves would be
        # in place already, and the work would be done again from these.
        spec = self.spec.items()
        leaving = copies or {name: rows[name].to(self.device, dtype).contiguous() for name, (_, dtype) in spec}
        if span is not None:
            for each in self._sent:  # who is put in place later would undo what travels straight there
                if each.landing:
                    self._place(each)
            into, landing = {name: self.rows[name][span] for name in self.spec}, {}
        else:
            into = landing = {n: self.ways.empty(len(who), *shape, dtype=dtype) for n, (shape, dtype) in spec}
        done = self.ways.send(leaving, into, aside=bool(copies))
        self._spoil(who)  # not before: who runs out of memory above does the work again, from what was there
        self._sent.append(_Copies(who, copies, done, torch.ones_like(who, dtype=torch.bool), landing, False))
        while len(self._sent) > _LAST:
            self._place(self._sent[0])
            del self._sent[0]

    def collect(self) -> None:
        """Put in place what has come back, without waiting."""
        for each in self._sent:
            if not each.placed:
                if not each.done.query():
                    return  # and those after it are not back either
                self._place(each)

    def settle(self) -> None:
        """Wait for all rows that are on the way back, and put them in place."""
        for each in self._sent:
            self._place(each)

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

    def _pending(self, who: Tensor) -> Tensor:
        """Whose rows [K] the processor's memory does not have yet."""
        return self._marks([each.who for each in self._sent if not each.placed])[who]

    def _marks(self, some: list[Tensor]) -> Tensor:
        """Which clients [N] are among some."""
        marks = torch.zeros(self.clients, dtype=torch.bool)
        for who in some:
            marks[who] = True
        return marks

    def _place(self, copies: _Copies) -> None:
        """Wait until rows are back, and put them where they belong."""
        if copies.placed:
            return
        copies.done.synchronize()
        for name, leaf in copies.landing.items():
            if leaf[0].numel() < _LONG:
                self.rows[name].index_copy_(0, copies.who, leaf)
            else:  # by one thread only, where torch must be deterministic; a plain copy takes all there are
                for at, row in zip(copies.who.tolist(), leaf, strict=True):
                    self.rows[name][at].copy_(row)
        copies.landing, copies.placed = {}, True

    def _spoil(self, who: Tensor) -> None:
        """The rows of clients are written anew: copies of the old ones do not count any more."""
        written = self._marks([who])
        for copies in [*self._sent, *([self._ahead[1]] if self._ahead is not None else [])]:
            copies.good &= ~written[copies.who]
        # Of whom nothing counts needs not even be put in place: all of it comes again, and later on the same way.
        self._sent = [copies for copies in self._sent if bool(copies.good.any())]

    def _bring(self, names: Iterable[str], who: Tensor) -> tuple[Tree, Done]:
        """Begin to copy rows in the processor's memory to the device."""
        span, here = _span(who), {}
        for name in names:
            shape, dtype = self.spec[name]
            if span is not None:
                here[name] = self.rows[name][span]
            else:
                here[name] = self.ways.empty(len(who), *shape, dtype=dtype)
                torch.index_select(self.rows[name], 0, who, out=here[name])
        rows, done = self.ways.bring(here)
        if span is not None:
            self._reads = done
        return rows, done

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


def _span(who: Tensor) -> slice | None:
    """The clients as a slice, if one comes after the other."""
    first, clients = int(who[0]), len(who)
    if int(who[-1]) - first != clients - 1 or not torch.equal(who, torch.arange(first, first + clients)):
        return None
    return slice(first, first + clients)
