"""A batch of examples for K clients."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Batch(NamedTuple):
    """Examples of K clients, padded to a common length. Inside an objective, one client's: no first axis."""

    inputs: Tensor  # [K, B, ...]
    targets: Tensor  # [K, B, ...]
    mask: Tensor  # [K, B] bool: False where a row only pads
    key: Tensor  # [K] int64: the address of what the model itself draws (dropout)

    def client(self, k: int) -> Batch:
        """One client's examples, without padding, which comes last."""
        n = int(self.mask[k].sum())
        return Batch(self.inputs[k, :n], self.targets[k, :n], self.mask[k, :n], self.key[k])
