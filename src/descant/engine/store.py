"""The clients' state between rounds: rows of tensors, read and written by cohort."""

from __future__ import annotations

import torch
from torch import Tensor

Tree = dict[str, Tensor]


class ClientStore:
    """What N clients hold, in memory: leaves [N, ...]. A cohort is an index."""

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.leaves: Tree = {}

    def gather(self, who: Tensor) -> Tree:
        """The rows [K, ...] of the clients `who` [K]."""
        return {name: leaf[who] for name, leaf in self.leaves.items()}

    def scatter(self, who: Tensor, rows: Tree) -> None:
        """Write the rows [K, ...] of the clients `who`; a leaf that is new starts at zero for all others."""
        for name, row in rows.items():
            if name not in self.leaves:
                self.leaves[name] = torch.zeros(
                    self.clients, *row.shape[1:], dtype=row.dtype, device=row.device
                )
            self.leaves[name][who] = row
