"""What can be named, by its kind: methods, aggregators, data sets and the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from descant.aggregators import AGGREGATORS, Aggregator
from descant.attacks import ATTACKS, PRESETS, Attack, Preset
from descant.codecs import CODECS, Codec
from descant.coupling import PENALTIES, PROJECTIONS, Penalty, Projection
from descant.data import PARTITIONS, FederatedData, Partition
from descant.datasets import DATASETS
from descant.methods import METHODS, OPTIMIZERS, SCHEDULES, ByRound, Method, Optimizer
from descant.models import MODELS
from descant.task import METRICS, Metric

CATALOG: dict[str, Mapping[str, Callable[..., Any]]] = {
    "methods": METHODS,
    "aggregators": AGGREGATORS,
    "codecs": CODECS,
    "attacks": ATTACKS,
    "projections": PROJECTIONS,
    "penalties": PENALTIES,
    "optimizers": OPTIMIZERS,
    "schedules": SCHEDULES,
    "datasets": DATASETS,
    "partitions": PARTITIONS,
    "models": MODELS,
    "metrics": METRICS,
}
# Names that stand for several things of a kind, with their fields.
SETS: dict[str, Mapping[str, Preset]] = {"attacks": PRESETS}
# What the classes of a kind derive from; of other kinds are functions, which make what MADE says.
BASES: dict[str, type] = {
    "methods": Method,
    "projections": Projection,
    "penalties": Penalty,
    "aggregators": Aggregator,
    "codecs": Codec,
    "attacks": Attack,
    "optimizers": Optimizer,
    "schedules": ByRound,
    "partitions": Partition,
}
MADE: dict[str, type] = {"datasets": FederatedData, "models": nn.Module, "metrics": Metric}
NESTED: dict[type, str] = {base: kind for kind, base in BASES.items()}


def singular(kind: str) -> str:
    """What one thing of a kind is called."""
    return f"{kind.removesuffix('ies')}y" if kind.endswith("ies") else kind.removesuffix("s")


def a_or_an(noun: str) -> str:
    """A noun with its article."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def path_of(base: type) -> str:
    """Where users find the class that those of a kind derive from."""
    return f"descant.{'data' if base is Partition else NESTED[base]}.{base.__name__}"
