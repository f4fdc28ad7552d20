"""Rows of clients: what each holds, and what the server holds of each; in memory, or on disk."""

from descant.state.held import HeldRows
from descant.state.leaves import Leaves, Shapes
from descant.state.store import ClientStore, Journaled, MappedStore

__all__ = ["ClientStore", "HeldRows", "Journaled", "Leaves", "MappedStore", "Shapes"]
