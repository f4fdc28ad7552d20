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
    if not default:
        _check_kept(method, "dim", method.dim, layout)
    method.projection.check(method.dim, layout)
    if method.projection.dim(method.dim, layout.dim) == 0:
        said = "the reference has no number, so that nothing travels and every client trains alone"
        warnings.warn(
            NoTieWarning(f"method.dim = 0 ({method.name}): {said}; give 1 or more to tie the clients"), stacklevel=2
        )


class Sketching(Protocol):
    """A method whose messages lie in a subspace of `m` dimensions, or of a share `m` of the model's parameters."""

    @property
    def m(self) -> int | float: ...

    @property
    def projection(self) -> Projection: ...


def asked(m: int | float, d: int) -> int:
    """The dimension that is asked for, of models with d parameters."""
    return max(1, round(m * d)) if m < 1 else int(m)


def check_dim(method: Sketching) -> None:
    """Refuse a dimension that no model could make right."""
    whole = not isinstance(method.m, float) or method.m > 1  # 1.0 may be meant as a share
    share_or_number = 0 < method.m < 1 or (method.m >= 1 and method.m == int(method.m) and whole)
    said = "a positive whole number of dimensions, at most that of the model's parameters, or a share below 1"
    require(method, "m", share_or_number, said)


def check_fit(method: Sketching, layout: Layout) -> None:
    """Refuse a subspace that does not fit the model."""
    m = asked(method.m, layout.dim)
    require(method, "m", m <= layout.dim, f"at most {layout.dim}, the number of the model's parameters")
    if method.m != getattr(type(method), "m", None):
        _check_kept(method, "m", m, layout)
    method.projection.check(m, layout)


def _check_kept(method: Tied | Sketching, field: str, dim: int, layout: Layout) -> None:
    """Refuse a number of dimensions where the projection keeps all of them whatever is asked for (identity)."""
    kept, kind = method.projection.dim(dim, layout.dim), method.projection.name
    require(method, field, dim == kept, f"left out, since the projection {kind!r} keeps all {kept} dimensions")
