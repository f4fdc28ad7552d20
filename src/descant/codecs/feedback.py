"""What a client keeps of an update that it did not send: a residual, or a residual with momentum."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from descant.codecs.base import Leaf, UpdateCodec
from descant.codecs.raw import flat
from descant.errors import CodecError, require
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class Feedback(UpdateCodec):
    """A codec with error feedback (Stich et al., 2018, Algorithm 1; Karimireddy et al., 2019, Algorithm 2).

    p = update + e is compressed, and e <- p - what was sent of it. So what arrives over the rounds, and e, sum to
    all updates. `feedback` off forgets e.
    """

    feedback: bool = True

    def memory(self, like: Tree) -> Tree:
        return _zeros(like, "residual") if self.feedback else {}

    @abstractmethod
    def compress(self, leaf: Leaf, wanted: Tensor) -> tuple[list[bytes], Tensor]:
        """A payload for each row of p [S, n], and what is left of p."""

    def pack(self, leaf: Leaf, memory: Tree, update: Tensor) -> tuple[Tree, list[bytes]]:
        if not self.feedback or leaf.since_last:  # such an update has what is owed in it (EF21)
            return memory, self.compress(leaf, update)[0]
        payloads, left = self.compress(leaf, update + flat(memory["residual"]))
        return {"residual": left.view(memory["residual"].shape)}, payloads


@dataclass(frozen=True, kw_only=True)
class MomentumFeedback(UpdateCodec):
    """A codec of few entries with momentum correction and factor masking (Lin et al., 2018, sections 3.2 and 3.3).

    Momentum is gathered before the residual: u <- beta u + update, v <- v + u. Some entries of v are sent, and are
    cleared from both. `beta` = 0 is plain error feedback. An entry that waits long arrives up to 1 / (1 - beta)
    times as large, as with momentum.
    """

    beta: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "beta", 0 <= self.beta < 1, "at least 0 and below 1")

    def memory(self, like: Tree) -> Tree:
        return _zeros(like, "momentum") | _zeros(like, "residual")

    @abstractmethod
    def choose(self, leaf: Leaf, wanted: Tensor) -> tuple[list[bytes], Tensor]:
        """A payload for each row of v [S, n], and the indices [S, k] of the entries that it holds."""

    def pack(self, leaf: Leaf, memory: Tree, update: Tensor) -> tuple[Tree, list[bytes]]:
        if leaf.since_last:
            return memory, self.choose(leaf, update)[0]
        momentum = self.beta * flat(memory["momentum"]) + update
        wanted = flat(memory["residual"]) + momentum
        payloads, index = self.choose(leaf, wanted)
        kept = {"momentum": momentum.scatter(1, index, 0.0), "residual": wanted.scatter(1, index, 0.0)}
        return {name: rows.view(memory[name].shape) for name, rows in kept.items()}, payloads


def check_finite(leaf: Leaf, rows: Tensor) -> None:
    """Refuse updates [S, n] with a NaN or an infinity, which would stay in a residual or spoil all entries."""
    if not bool(rows.isfinite().all()):
        raise CodecError(f"the update of '{leaf.name}' is not finite")


def count(share: float, n: int) -> int:
    """How many of n entries a share is: at least one."""
    return max(1, round(share * n)) if n else 0


def _zeros(like: Tree, of: str) -> Tree:
    return {f"{name}.{of}": torch.zeros_like(leaf) for name, leaf in like.items()}
