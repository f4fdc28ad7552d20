"""The spec of data in a settings file: a data set with its fields, and what holds for data of every kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from descant.catalog import build, taken_by
from descant.data import FederatedData
from descant.data.tiny import Tiny
from descant.experiment.allowed import OneOf, Whole
from descant.experiment.parts import SpecOf

_POLICY = {"least": Whole(1), "tiny": OneOf(get_args(Tiny))}  # of `FederatedData.without_tiny`
_DEFAULT = {"least": 1, "tiny": "refuse"}


class DataSpec(SpecOf):
    """The spec of data, whose seed may be that of the run, and whose tiny clients may be refused or left out."""

    def check(self, name: str, value: Any) -> dict[str, Any]:
        spec, ours = _apart(value)
        ours = {field: _POLICY[field].check(f"{name}.{field}", own) for field, own in ours.items()}
        if isinstance(spec, Mapping) and spec.get("seed") == "run":
            return super().check(name, {**spec, "seed": 0}) | {"seed": "run"} | ours
        return super().check(name, spec) | ours

    def brief(self, value: Any) -> dict[str, Any]:
        spec, ours = _apart(value)
        ours = {field: own for field, own in ours.items() if own != _DEFAULT[field]}
        if spec.get("seed") == "run":
            return super().brief({f: v for f, v in spec.items() if f != "seed"}) | {"seed": "run"} | ours
        return super().brief(spec) | ours


def load_data(spec: Mapping[str, Any]) -> FederatedData:
    """The data that a checked spec names."""
    own, ours = _apart(spec)
    data: FederatedData = build("datasets", own, path="data")
    return data.without_tiny(**{**_DEFAULT, **ours}) if ours else data


def _apart(value: Any) -> tuple[Any, dict[str, Any]]:
    """A spec without the fields that hold for data of every kind, and these.

    A data set that takes them itself keeps them: it looks at its clients before it splits them.
    """
    if not isinstance(value, Mapping) or not set(_POLICY) & set(value) or taken_by("datasets", value, *_POLICY):
        return value, {}
    ours = {field: own for field, own in value.items() if field in _POLICY}
    return {field: own for field, own in value.items() if field not in _POLICY}, ours
