"""The clients' state between rounds: rows of tensors, read and written by cohort."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from descant.execution.device import free_memory
from descant.mirrors import host, parts, sent
from descant.sealed import DIGEST, Digests, row_digests
from descant.state.leaves import Leaves, Shapes
from descant.state.streams import Streams
from descant.state.travel import Travel, matches
from descant.trees import Tree

First = Callable[[Tensor], Tree]  # the first state of the clients who [K]
T = TypeVar("T")
_BLOCK = 4096  # clients that are read in one go
_SHARE = 0.2  # of a GPU's free memory, that the rows of all clients may take: the server may hold as many, too


class Journaled(Protocol):
    """Rows of N clients that a commit can repeat."""

    @property
    def files(self) -> Leaves | None:
        """Where they lie on disk, if they do."""
        ...

    def changed(self) -> tuple[Tensor, Tree]:
        """What a commit must hold: the clients and their rows that lie nowhere else.

        The rows may be those of the store itself: they are good until the store is written to.
        """
        ...

    def digests(self, who: Tensor, rows: Tree) -> dict[str, Digests]:
        """What is known of the rows [K, ...] that `changed` gave, for the checksum of a commit; maybe nothing."""
        ...

    def settle(self) -> None:
        """What changed is durable now."""
        ...

    def write(self, who: Tensor, rows: Tree) -> None:
        """Take the rows [K, ...] of the clients `who` [K] from a commit; doing so again changes nothing."""
        ...

    def flush(self, round: int) -> None:
        """Make what was settled up to a round durable in the store itself."""
        ...


class ClientStore:
    """What N clients hold, in memory. A cohort is an index.

    A client that was never written has its first state, which is computed when it is asked for: so a run over a
    million clients starts at once, and takes memory only for those that took part.
    """

    holds_back = False  # whether what is scattered waits for `settle`
    commits_kept = 1  # a commit holds everything: the one before can go

    @property
    def files(self) -> Leaves | None:
        return None

    def __init__(self, clients: int, first: First, device: torch.device | str = "cpu") -> None:
        self.clients, self._first = clients, first
        self.device = torch.device(device)  # where rows lie
        self.touched = torch.zeros(clients, dtype=torch.bool)  # [N] who was written; in the processor's memory
        some = first(torch.zeros(1, dtype=torch.int64, device=device))
        self.spec = {name: (tuple(leaf.shape[1:]), leaf.dtype) for name, leaf in some.items()}
        self._travel: Travel | None = None  # takes rows to a GPU and back, where its memory has no room for all
        if not self._fits():
            self._travel = Travel(clients, self.spec, Streams(self.device))
            self.device = torch.device("cpu")
        self._rows: Tree = {}  # [N, ...]; rows of clients that are not touched carry no meaning
        self._digests: dict[str, Digests] = {}  # [N, 16] of the rows, as they were when a commit last asked
        self._fresh = torch.zeros(clients, dtype=torch.bool)  # [N] who was written since

    def _fits(self) -> bool:
        """Whether all rows have room where models are trained, with enough left to train them."""
        if self.device.type != "cuda":
            return True
        row = sum(prod(shape) * dtype.itemsize for shape, dtype in self.spec.values())
        return self.clients * row <= _SHARE * free_memory(self.device)

    def gather(self, who: Tensor, owner: str | None = None) -> Tree:
        """The rows [K, ...] of the clients `who` [K]; with an `owner`, of its leaves alone (`descant.trees`)."""
        if not _of(owner, self.spec):
            return {}
        fresh = ~self.touched[host(who)]
        if fresh.all():
            first = _of(owner, self._first(who))
            return {name: leaf.clone(memory_format=torch.contiguous_format) for name, leaf in first.items()}
        if self._travel is not None and who.device.type == self._travel.device.type:
            rows = self._travel.take(_of(owner, self.spec), host(who), ~fresh)
        else:
            rows = {name: self._read(name, who) for name in _of(owner, self.spec)}
        if fresh.any():
            fresh = fresh.to(who.device)
            for name, leaf in _of(owner, self._first(who[fresh])).items():
                rows[name][fresh] = leaf.to(rows[name])
        return rows

    def ahead(self, who: Tensor, working: Tensor) -> None:
        """The clients `who` work after those `working`: while these do, rows that travel are brought to the GPU."""
        if self._travel is not None:
            self._travel.ahead(host(who), self.touched[host(who)], host(working))

    def make_room(self) -> bool:
        """A GPU's memory did not suffice: leave all of it to the work. Whether there is more of it now."""
        return self._travel is not None and self._travel.make_room()

    def scatter(self, who: Tensor, rows: Tree) -> None:
        """Keep the rows [K, ...] of the clients `who`; leaves that are not given stay as they are."""
        self.write(who, rows if len(rows) == len(self.spec) else self.gather(who) | rows)

    def write(self, who: Tensor, rows: Tree) -> None:
        numbers = host(who)
        if not self._rows:  # all of them, or none where memory does not suffice
            spec = self.spec.items()
            self._rows = (
                self._travel.allocate()
                if self._travel is not None
                else {n: torch.empty(self.clients, *s, dtype=dtype, device=self.device) for n, (s, dtype) in spec}
            )
        if self._travel is not None and who.device.type == self._travel.device.type:
            self._travel.keep(numbers, rows)
        else:
            if self._travel is not None:
                self._travel.overwrite(numbers)
            for name, (_, dtype) in self.spec.items():
                self._rows[name][who.to(self.device)] = rows[name].to(self.device, dtype)
        # Everyone, in most runs of many clients; to mark ten thousand one by one takes longer than all else here.
        for marks in (self._fresh, self.touched):  # after the rows: who is marked has them
            if len(numbers) == self.clients:
                marks.fill_(True)
            else:
                marks[numbers] = True

    def _read(self, name: str, who: Tensor) -> Tensor:
        """The rows of a leaf, where `who` lies."""
        if self._travel is not None:
            self._travel.settle()
        return self._rows[name][who.to(self.device)].to(who.device)

    def changed(self) -> tuple[Tensor, Tree]:
        if self._travel is not None:
            self._travel.settle()
        who = sent(self.touched.nonzero().squeeze(1), self.device)
        if len(who) == self.clients:  # no copy: what a commit holds is written before the next round begins
            return who, dict(self._rows)
        return who, {name: rows[who] for name, rows in self._rows.items()} if len(who) else {}

    def digests(self, who: Tensor, rows: Tree) -> dict[str, Digests]:
        """Of all rows; those that were not written since the last time are not looked at again."""
        ids = host(who)
        fresh = self._fresh[ids].nonzero().squeeze(1)
        for name, leaf in rows.items():
            known = self._digests.setdefault(name, np.zeros((self.clients, DIGEST), np.uint8))
            known[ids[fresh].numpy()] = row_digests(leaf[fresh.to(leaf.device)])
        self._fresh[ids] = False
        return {name: self._digests[name][ids.numpy()] for name in rows}

    def settle(self) -> None:
        pass  # what is written is in memory only: every commit holds all of it

    def flush(self, round: int) -> None:
        pass

    @property
    def leaves(self) -> Tree:
        """Every client's rows [N, ...]."""
        whole = {name: torch.empty(self.clients, *shape, dtype=dtype) for name, (shape, dtype) in self.spec.items()}
        for who in parts(sent(torch.arange(self.clients), self.device), _BLOCK):
            for name, rows in self.gather(who).items():
                whole[name][host(who)] = rows.cpu()
        return {name: leaf.to(self.device) for name, leaf in whole.items()}


class MappedStore(ClientStore):
    """The same in files, which may be larger than memory.

    What is scattered is held back until `settle`, and `gather` sees it at once: the files change only after a
    commit that could repeat the change, so that a process killed at any moment leaves nothing half-done. `also` are
    leaves of somebody else's.
    """

    holds_back = True
    commits_kept = 16  # the files are made durable now and then only, and until then the commits make up for it

    def __init__(self, clients: int, first: First, folder: Path, also: Shapes | None = None) -> None:
        super().__init__(clients, first)
        spec = {f"clients.{name}": leaf for name, leaf in self.spec.items()}
        self._files = Leaves(folder, clients, spec | {"touched": ((), torch.bool)} | dict(also or {}))
        self.touched = self._files["touched"]
        self._held: list[tuple[Tensor, Tree]] = []  # a later entry counts for clients that stand in several
        self._known: dict[str, Digests] = {}  # of what `changed` gave, as long as nothing was scattered since

    @property
    def files(self) -> Leaves:
        return self._files

    def gather(self, who: Tensor, owner: str | None = None) -> Tree:
        rows = super().gather(who, owner)
        for ids, held in self._held:
            there, at = matches(host(who), ids)
            for name, leaf in _of(owner, held).items() if len(there) else ():
                rows[name][there.to(who.device)] = leaf[at].to(who.device)
        return rows

    def scatter(self, who: Tensor, rows: Tree) -> None:
        whole = rows if len(rows) == len(self.spec) else self.gather(who) | rows
        kept = {name: whole[name].to("cpu", dtype) for name, (_, dtype) in self.spec.items()}  # as files have them
        self._held.append((host(who), kept))
        self._known = {}

    def changed(self) -> tuple[Tensor, Tree]:
        if not self._held:
            return torch.empty(0, dtype=torch.int64), {}
        if len(self._held) == 1:
            return self._held[0]
        who = torch.cat([ids for ids, _ in self._held])
        last = _last_of_each(who)
        joined = {name: torch.cat([rows[name] for _, rows in self._held]) for name in self.spec}
        return who[last], {name: rows[last] for name, rows in joined.items()}

    def digests(self, who: Tensor, rows: Tree) -> dict[str, Digests]:
        self._known = {name: row_digests(leaf) for name, leaf in rows.items()}
        return self._known

    def settle(self) -> None:
        if self._held:
            self._write(*self.changed(), self._known)
        self._held.clear()
        self._known = {}

    def write(self, who: Tensor, rows: Tree) -> None:
        self._write(who, rows, {})

    def _write(self, who: Tensor, rows: Tree, digests: Mapping[str, Digests]) -> None:
        for name in self.spec:
            self.files.write(f"clients.{name}", who, rows[name], digests.get(name))
        self.files.write("touched", who, torch.ones(len(who), dtype=torch.bool))
        self.touched[who] = True

    def _read(self, name: str, who: Tensor) -> Tensor:
        return self.files.read(f"clients.{name}", host(who)).to(who.device)

    def flush(self, round: int) -> None:
        self.files.flush(round)


def _of(owner: str | None, leaves: Mapping[str, T]) -> dict[str, T]:
    """The leaves of an owner, under their whole names."""
    return {n: leaf for n, leaf in leaves.items() if owner is None or n.startswith(f"{owner}.")}


def _last_of_each(who: Tensor) -> Tensor:
    """The place of the last entry of everyone in `who`, in the order of the places."""
    backwards = who.flip(0).argsort(stable=True)
    ids = who.flip(0)[backwards]
    first = torch.ones_like(ids, dtype=torch.bool)
    first[1:] = ids[1:] != ids[:-1]
    return (len(who) - 1 - backwards[first]).sort().values
