"""How the server combines the messages of a round."""

from descant.aggregators.base import Aggregator
from descant.aggregators.mean import Mean

AGGREGATORS: dict[str, type[Aggregator]] = {a.name: a for a in (Mean,)}

__all__ = ["AGGREGATORS", "Aggregator", "Mean"]
