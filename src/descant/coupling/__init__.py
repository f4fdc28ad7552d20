"""What ties a personal model to the reference: projections."""

from descant.coupling.projections import Dense, Identity, Projection, Projector

PROJECTIONS: dict[str, type[Projection]] = {p.name: p for p in (Dense, Identity)}

__all__ = ["PROJECTIONS", "Dense", "Identity", "Projection", "Projector"]
