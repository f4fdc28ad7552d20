"""What a server holds for every client: whole tensors [N, ...], of which a commit needs the rows that changed."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from descant.sealed import Digests
from descant.state.leaves import Leaves
from descant.trees import Tree


class HeldRows:
    """Leaves [N, ...] that a method's server looks at as a whole, and changes a few rows of in a round.

    They lie in memory. With a folder they lie in files too, which change only by `settle`, after a commit that
    could repeat the change; without one, every commit holds all rows that were ever changed.
    """

    def __init__(self, leaves: Tree, folder: Path | None = None) -> None:
        # As they come back from a file, too: products of tensors with other strides may differ in the last bit.
        self.leaves: Tree = {}
        self._versions: dict[str, int] = {}  # by which torch tells that a leaf was changed in place
        for name, leaf in leaves.items():
            self._keep(name, leaf.contiguous())
        clients = len(next(iter(leaves.values()))) if leaves else 0
        self._dirty = torch.zeros(clients, dtype=torch.bool)
        self.files: Leaves | None = None
        if folder is not None and leaves:
            spec = {f"rows.{name}": (tuple(leaf.shape[1:]), leaf.dtype) for name, leaf in leaves.items()}
            self.files = Leaves(folder, clients, spec | {"touched": ((), torch.bool)})
            who = self.files["touched"].nonzero().squeeze(1)
            self._put(who, {name: self.files.read(f"rows.{name}", who) for name in leaves})

    def replace(self, leaves: Tree) -> None:
        """Take the new leaves in the place of the old ones."""
        for name, new in leaves.items():
            old = self.leaves[name]
            if old._version != self._versions[name]:  # changed in place: nobody knows which rows
                self._dirty[:] = True
            elif new is not old:
                differs = (new != old) | (new.signbit() != old.signbit())  # 0 and -0 are other bits
                self._dirty |= differs.reshape(len(new), -1).any(1).cpu()
            self._keep(name, new.contiguous())

    def changed(self) -> tuple[Tensor, Tree]:
        who = self._dirty.nonzero().squeeze(1)
        at = who.to(next(iter(self.leaves.values())).device) if self.leaves else who
        return who, {name: leaf[at].cpu() for name, leaf in self.leaves.items()} if len(who) else {}

    def digests(self, who: Tensor, rows: Tree) -> dict[str, Digests]:
        return {}  # a server mostly changes all rows of a leaf, and who changed one is not told

    def settle(self) -> None:
        if self.files is not None:
            self._write(*self.changed())
            self._dirty[:] = False

    def write(self, who: Tensor, rows: Tree) -> None:
        self._put(who, rows)
        if self.files is None:
            self._dirty[who] = True
        else:
            self._write(who, rows)

    def flush(self, round: int) -> None:
        if self.files is not None:
            self.files.flush(round)

    def _put(self, who: Tensor, rows: Tree) -> None:
        for name in self.leaves if len(who) else ():
            leaf = self.leaves[name]
            self._keep(name, leaf.index_copy(0, who.to(leaf.device), rows[name].to(leaf.device)))

    def _keep(self, name: str, leaf: Tensor) -> None:
        self.leaves[name], self._versions[name] = leaf, leaf._version

    def _write(self, who: Tensor, rows: Tree) -> None:
        assert self.files is not None
        for name in self.leaves if len(who) else ():
            self.files.write(f"rows.{name}", who, rows[name])
        self.files.write("touched", who, torch.ones(len(who), dtype=torch.bool))
