"""State as trees: named tensors, with dots in the names of what belongs to somebody inside."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

Tree = dict[str, Tensor]


def under(owner: str, tree: Mapping[str, Tensor]) -> Tree:
    """The leaves as those of `owner`, so that no name clashes with one of somebody else.

    >>> import torch
    >>> list(under("solver", {"v": torch.zeros(1)}))
    ['solver.v']
    """
    return {f"{owner}.{name}": leaf for name, leaf in tree.items()}


def within(owner: str, tree: Mapping[str, Tensor]) -> Tree:
    """The leaves of `owner` among those of a tree, under the names that it gave them itself."""
    start = f"{owner}."
    return {name.removeprefix(start): leaf for name, leaf in tree.items() if name.startswith(start)}


def without(tree: Mapping[str, Tensor], *owners: str) -> Tree:
    """The leaves of a tree that belong to none of the `owners`."""
    return {name: leaf for name, leaf in tree.items() if name.partition(".")[0] not in owners}
