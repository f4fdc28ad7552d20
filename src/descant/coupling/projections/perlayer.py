"""A projection for each layer, with a dimension of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from descant.coupling.layers import belongs
from descant.coupling.projections.base import Projection, Projector, Space, at_most
from descant.coupling.projections.matrices import Dense, Identity
from descant.coupling.projections.sums import DirectSum, Span
from descant.draws import seed_of
from descant.errors import SettingError, require, unknown
from descant.fields import Checked
from descant.task import Layout


@dataclass(frozen=True)
class LayerDim(Checked):
    """The parameters called `layer`, or whose names go on from it with a dot, get a subspace of this dimension."""

    layer: str
    dim: int

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "dim", self.dim >= 0, "zero or more")


class Part(NamedTuple):
    """A layer: its name, its spans of d, and the dimension of its subspace."""

    layer: str
    spans: tuple[Span, ...]
    dim: int

    @property
    def size(self) -> int:
        return sum(end - begin for begin, end in self.spans)


def shares(m: int, sizes: Sequence[int]) -> list[int]:
    """m divided in proportion to sizes, the largest remainders rounded up."""
    total = sum(sizes) or 1
    whole = [m * size // total for size in sizes]
    by_remainder = sorted(range(len(sizes)), key=lambda i: (-(m * sizes[i] % total), i))
    for i in by_remainder[: m - sum(whole)]:
        whole[i] += 1
    return whole


@dataclass(frozen=True, kw_only=True)
class PerLayer(Projection):
    """Each layer has a projection of its own, of its own dimension (lp-proj 2024, section 6.1).

    `kind` is the projection of a layer. `layers` gives some layers their dimension, as in {layer: fc, dim: 10}; the
    others share the rest of `dim` in proportion to their sizes. A layer's parameters are those whose names differ
    at the end alone, such as its weight and its bias. A layer that gets no dimension is not tied.
    """

    name: ClassVar[str] = "per-layer"

    kind: Projection = field(default_factory=Dense)
    layers: tuple[LayerDim, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "kind", not isinstance(self.kind, PerLayer), "another projection than per-layer")
        require(self, "kind", not self.kind.fresh, "without fresh, which stands beside kind")
        require(self, "kind", not isinstance(self.kind, Identity), "of the dimension asked for: not identity")
        distinct = len({layer.layer for layer in self.layers}) == len(self.layers)
        require(self, "layers", distinct, "a list that names no layer twice")

    def dim(self, m: int, d: int) -> int:
        return at_most(m, d)

    def check(self, m: int, layout: Layout) -> None:
        super().check(m, layout)
        for part in self.parts(m, layout):
            self._of(part)

    def make(self, seed: int, m: int, space: Space) -> Projector:
        if space.layout is None:
            raise SettingError("method.projection = per-layer: it needs the layout of the model; hand it to build")
        parts = [part for part in self.parts(m, space.layout) if part.dim]
        each = [self.kind.make(self.layer_seed(seed, p.layer), self._of(p), space.of(p.size)) for p in parts]
        return DirectSum(m, space.d, tuple(each), tuple(part.spans for part in parts))

    def layer_seed(self, seed: int, layer: str) -> int:
        """The seed of a layer's own projection."""
        return seed_of(seed, "projection", "layer", layer)

    def parts(self, m: int, layout: Layout) -> list[Part]:
        """The layers of a model, with the dimensions of their subspaces."""
        spans: dict[str, list[Span]] = {}
        for name, where in layout.slices.items():
            spans.setdefault(self._layer(name), []).append((where.start, where.stop))
        named = {layer.layer: layer.dim for layer in self.layers}
        for layer in named:
            if layer not in spans:
                raise SettingError(f"method.projection.layers: {unknown('layer', layer, layout.names)}")
        free = {layer: Part(layer, tuple(at), 0).size for layer, at in spans.items() if layer not in named}
        rest = m - sum(named.values())
        if not 0 <= rest <= sum(free.values()):
            given = f"{sum(named.values())} of dim = {m} are given to layers"
            others = f"the others have {sum(free.values())} parameters for the rest; change dim or the layers"
            raise SettingError(f"method.projection.layers: {given}, and {others}")
        dims = named | dict(zip(free, shares(rest, list(free.values())), strict=True))
        return [Part(layer, tuple(at), dims[layer]) for layer, at in spans.items()]

    def _layer(self, name: str) -> str:
        """The layer of a parameter: the longest name in `layers` that fits, or all but the last word of its own."""
        fitting = [layer.layer for layer in self.layers if belongs(name, layer.layer)]
        return max(fitting, key=len, default=name.rpartition(".")[0])

    def _of(self, part: Part) -> int:
        """The dimension of a layer's subspace, if its kind can have it."""
        if part.dim > part.size:
            at_most_size = f"it must be at most {part.size}, the number of that layer's parameters"
            raise SettingError(f"method.projection.layers: dim = {part.dim} for '{part.layer}': {at_most_size}")
        try:
            return self.kind.dim(part.dim, part.size)
        except SettingError as error:
            raise SettingError(f"method.projection.kind: for the layer '{part.layer}', {error}") from None
