"""The clients' rows: in memory, or on disk."""

from descant.state.leaves import Leaves
from descant.state.store import ClientStore, MappedStore

__all__ = ["ClientStore", "Leaves", "MappedStore"]
