"""What the methods share whose reference lies in the subspace of a projection."""

from __future__ import annotations

import warnings
from typing import ClassVar, Protocol

from descant.coupling import Projection
from descant.errors import NoTieWarning, require
from descant.task import Layout


class Tied(Protocol):
    """A method with a reference of `dim` numbers."""

    name: ClassVar[str]

    @property
    def dim(self) -> int: ...

    @property
    def projection(self) -> Projection: ...


def check_tie(method: Tied) -> None:
    """Refuse the fields of a method that no model could make right."""
    require(method, "dim", method.dim >= 0, "zero or more")
    once = "one that is drawn once (fresh: false); the reference lies in its subspace, and means nothing in another"
    require(method, "projection", not method.projection.fresh, once)


def check_subspace(method: Tied, layout: Layout) -> None:
    """Refuse a subspace that does not fit the model. The default of `dim` is for models of any size."""
    default = method.dim == getattr(type(method), "dim", None)
    fits = default or method.projection.dim(method.dim, layout.dim) <= layout.dim
    require(method, "dim", fits, f"at most {layout.dim}, the number of the model's parameters")
    method.projection.check(method.dim, layout)
    if method.projection.dim(method.dim, layout.dim) == 0:
        said = "the reference has no number, so that nothing travels and every client trains alone"
        warnings.warn(
            NoTieWarning(f"method.dim = 0 ({method.name}): {said}; give 1 or more to tie the clients"), stacklevel=2
        )
