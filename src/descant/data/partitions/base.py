"""The contract of a partition: from the labels of a data set, who holds which of its examples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from descant.data.errors import DataError
from descant.draws import seed_of
from descant.errors import require
from descant.fields import Checked

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Targets = npt.NDArray[Any]  # [M, ...]; those that look at labels want one integer an example


@dataclass(frozen=True, kw_only=True)
class Partition(Checked, ABC):
    """How the M examples of a data set are dealt to clients.

    No example goes to two clients, and every example goes to one, unless a partition says otherwise.
    """

    name: ClassVar[str]

    @abstractmethod
    def assign(self, targets: Targets, seed: int, owners: IntArray | None = None) -> list[IntArray]:
        """The indices of every client's examples, from all targets and the natural owners [M]: needs no inputs."""

    def change(self, inputs: Tensor, examples: Tensor, client: int, seed: int) -> Tensor:
        """The inputs [n, ...] of a client's examples, which have the indices `examples` [n], as it sees them.

        What is drawn for an example is addressed by (seed, client, example): it is the same at every look.
        """
        return inputs

    @property
    def overlaps(self) -> bool:
        """Whether an example may go to several clients."""
        return False

    def settings(self) -> dict[str, Any]:
        """The name and the fields, as a settings file has them."""
        return {"name": self.name} | asdict(self)

    def generator(self, seed: int, *address: int) -> np.random.Generator:
        return np.random.default_rng(seed_of(seed, "partition", self.name, *address))


@dataclass(frozen=True, kw_only=True)
class Dealt(Partition):
    """A partition into a given number of clients, none of which has fewer than `least` examples.

    That minimum is kept, or the partition is refused with the reason.
    """

    clients: int
    least: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "clients", self.clients >= 1, "a positive number")
        require(self, "least", self.least >= 0, "zero or more")

    def check_enough(self, examples: int) -> None:
        fits = self.clients * max(self.least, 1) <= examples
        what = f"{self.least} examples" if self.least > 1 else "an example"
        require(self, "clients", fits, f"small enough for {what} each: there are {examples}")

    def check_sizes(self, hands: list[IntArray]) -> list[IntArray]:
        """The hands, if the smallest has `least` examples."""
        smallest = min(map(len, hands))
        require(self, "least", smallest >= self.least, f"at most {smallest}, the size of the smallest client")
        return hands


def shares(weights: FloatArray, total: int, least: int = 0) -> IntArray:
    """`total` in whole numbers in proportion to the weights [N], but none below `least`.

    That is n_k = max(least, c w_k), with the c that makes them add up, rounded by the largest remainders.
    """
    floored = np.zeros(len(weights), dtype=bool)
    exact = np.full(len(weights), float(least))
    while not floored.all():
        rest = weights[~floored]
        exact[~floored] = (total - least * floored.sum()) * (rest / rest.sum())
        below = ~floored & (exact < least)
        exact[below] = least
        if not below.any():
            break
        floored |= below
    sizes: IntArray = np.floor(exact).astype(np.int64)
    sizes[np.argsort(sizes - exact, kind="stable")[: total - sizes.sum()]] += 1
    return sizes


def hands_of(owners: IntArray, clients: int) -> list[IntArray]:
    """The indices of every client's examples, from the client of each example [M]; -1 is nobody."""
    order = np.argsort(owners, kind="stable")
    cuts = np.searchsorted(owners[order], np.arange(clients + 1))
    return [order[start:stop] for start, stop in pairwise(cuts)]


def cut(rows: IntArray, sizes: IntArray) -> list[IntArray]:
    """The rows, one piece of each size after the other."""
    return np.split(rows, np.cumsum(sizes)[:-1])


def by_label(targets: Targets) -> tuple[IntArray, list[IntArray]]:
    """How many examples of each label there are [C], and which; labels that do not occur are left out."""
    if targets.ndim != 1 or targets.dtype.kind not in "iu":
        raise DataError(
            f"targets are {targets.dtype} of shape {list(targets.shape)}: a partition by label needs one integer "
            "label an example; deal them by another (iid, quantity, power-law, quality, natural)"
        )
    _, labels, counts = np.unique(targets, return_inverse=True, return_counts=True)
    return counts, hands_of(labels, len(counts))
