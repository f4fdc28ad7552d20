"""Settings that are parts of their own: objects of the catalogue, specs of them, evaluations and checkups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from descant.aggregators import Chain
from descant.catalog import brief, brief_spec, build, build_all, check_spec, describe, fill
from descant.engine import Evaluation, Health
from descant.errors import SettingError
from descant.experiment.allowed import Allowed, Whole, is_whole, refusal
from descant.kinds import BASES, SETS
from descant.lookup import refuse_incomplete

_NONE = {"aggregators": "mean", "codecs": "native"}  # the parts that do nothing to what passes through them


@dataclass(frozen=True)
class PartOf(Allowed):
    """An object of the catalogue: the object itself, its name, or a spec with a name and fields."""

    kind: str

    @property
    def what(self) -> str:
        base = BASES[self.kind].__name__
        article = "an" if base[0] in "AEIOU" else "a"
        return f"{article} {base} (an object of descant.{self.kind}), its name, or a mapping with a name and fields"

    def check(self, name: str, value: Any) -> Any:
        if isinstance(value, BASES[self.kind]):
            refuse_incomplete(self.kind, f"{name}: {type(value).__name__}", value)
            return value
        if isinstance(value, type):
            remedy = f"make an object of it, as in {value.__name__}()"
            raise SettingError(f"{name} = {value.__name__}: it is a class; {remedy}")
        if not isinstance(value, str | Mapping):
            none = f"; for none write {_NONE[self.kind]}" if value is None and self.kind in _NONE else ""
            raise refusal(name, value, f"{self.what}{none}")
        return build(self.kind, value, path=name)

    def plain(self, value: Any) -> dict[str, Any]:
        return describe(value)

    def brief(self, value: Any) -> dict[str, Any]:
        return brief(value)


@dataclass(frozen=True)
class Parts(Allowed):
    """Any number of objects of the catalogue; one may stand alone."""

    kind: str

    @property
    def what(self) -> str:
        preset = ", or the name of a preset" if self.kind in SETS else ""
        return f"a list, each of them {PartOf(self.kind).what}{preset}; or nothing"

    def check(self, name: str, value: Any) -> tuple[Any, ...]:
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            return self._parts(name, value)
        return tuple(part for i, one in enumerate(value) for part in self._parts(f"{name}[{i}]", one))

    def _parts(self, name: str, value: Any) -> tuple[Any, ...]:
        """What one entry stands for: an object, or those of a preset."""
        if isinstance(value, str | Mapping):
            return build_all(self.kind, value, path=name)
        return (PartOf(self.kind).check(name, value),)

    def plain(self, value: Any) -> list[dict[str, Any]]:
        return [describe(one) for one in value]

    def brief(self, value: Any) -> list[dict[str, Any]]:
        return [brief(one) for one in value]


@dataclass(frozen=True)
class InARow(PartOf):
    """An aggregator, or several in a row (`descant.aggregators.Chain`), given as a list."""

    @property
    def what(self) -> str:
        return f"{PartOf(self.kind).what}, or a list with at least one of those"

    def check(self, name: str, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return _alone(super().check(name, value))
        if not value:
            raise refusal(name, value, self.what)
        steps = Parts(self.kind).check(name, value)
        try:
            return _alone(Chain(steps=steps))
        except SettingError as error:
            raise SettingError(f"{name}: {error}") from None

    def plain(self, value: Any) -> Any:
        return [describe(step) for step in value.steps] if isinstance(value, Chain) else describe(value)

    def brief(self, value: Any) -> Any:
        return [brief(step) for step in value.steps] if isinstance(value, Chain) else brief(value)


def _alone(aggregator: Any) -> Any:
    """The only one of a row, which does the same by itself; else what it was."""
    one = isinstance(aggregator, Chain) and len(aggregator.steps) == 1
    return aggregator.steps[0] if one else aggregator


@dataclass(frozen=True)
class SpecOf(Allowed):
    """What is only named until a run is made of it: data and models. `leading` arguments come from elsewhere."""

    kind: str
    leading: int = 0

    @property
    def what(self) -> str:
        return "a name, or a mapping with a name and fields"

    def check(self, name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, str | Mapping):
            raise refusal(name, value, self.what)
        spec = {"name": value} if isinstance(value, str) else dict(value)
        check_spec(self.kind, spec, path=name, leading=self.leading)
        return spec

    def brief(self, value: Any) -> dict[str, Any]:
        return brief_spec(self.kind, value, leading=self.leading)


@dataclass(frozen=True)
class When(Allowed):
    """An `Evaluation`: the object, its fields, or only how often."""

    @property
    def what(self) -> str:
        return "a whole number of rounds, 1 or more, or an Evaluation (in a file: every, parts, models)"

    def check(self, name: str, value: Any) -> Evaluation:
        if isinstance(value, Mapping):
            value = fill(Evaluation, value, path=name)
        if isinstance(value, Evaluation):
            Whole(1).check(f"{name}.every", value.every)
            return value
        if not is_whole(value) or value < 1:
            raise refusal(name, value, self.what)
        return Evaluation(every=int(value))

    def plain(self, value: Any) -> dict[str, Any]:
        return {"every": value.every, "parts": list(value.parts), "models": list(value.models)}


@dataclass(frozen=True)
class Checkups(Allowed):
    """A `Health`: the object, its fields, or only in which rounds; nothing looks at none."""

    @property
    def what(self) -> str:
        return (
            "a whole number of rounds, 1 or more, a list of different rounds, a Health (in a file: rounds, points, "
            "part), or nothing"
        )

    def check(self, name: str, value: Any) -> Health | None:
        if value is None or isinstance(value, Health):
            return value
        if isinstance(value, Mapping):
            made: Health = fill(Health, value, path=name)
            return made
        listed = isinstance(value, list | tuple)
        rounds = list(value) if listed else [value]
        if not rounds or not all(is_whole(t) and t >= 1 for t in rounds) or len(set(rounds)) < len(rounds):
            raise refusal(name, value, self.what)
        return Health(rounds=tuple(map(int, rounds)) if listed else int(value))

    def plain(self, value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        rounds = list(value.rounds) if isinstance(value.rounds, tuple) else value.rounds
        return {"rounds": rounds, "points": list(value.points), "part": value.part}
