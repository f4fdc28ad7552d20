"""Whatever the catalogue has can be written down and built again, with any fields: what runs can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import descant as dc
from descant.catalog import brief, build, describe
from descant.coupling import L1Norm, Layer, LayerDim, Squared
from descant.errors import SettingError
from descant.kinds import BASES, CATALOG
from descant.methods import FLAME, METHODS, ByRound, FedPlus, PowerLaw, Stages
from tests.interrupted import interrupt

SCHEDULES = (PowerLaw(scale=3.0), Stages(values=((1, 2.0), (4, 8.0))))
CLASSES = [(kind, cls) for kind in BASES for cls in CATALOG[kind].values()]
PLAIN: dict[Any, tuple[Any, ...]] = {
    bool: (True, False),
    int: (3, 0, 1, 20),
    float: (0.0, 0.25, 1.0, 2.5, float("inf")),
    str: ("a", "ü"),
    NoneType: (None,),
}
TUPLES: dict[Any, tuple[Any, ...]] = {
    Layer: ((Layer("0", L1Norm()), Layer("2", Squared(), 0.5)), ()),
    LayerDim: ((LayerDim(layer="0", dim=3), LayerDim(layer="2", dim=1)), ()),
}


def values_of(hint: Any) -> Iterator[Any]:
    """Some values of a type."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    elif get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        yield from TUPLES.get(inner, (SCHEDULES[1].values,) if get_origin(inner) is tuple else ())  # type: ignore[attr-defined]
        yield from ((value,) for value in PLAIN.get(inner, ()))
    elif hint in PLAIN:
        yield from PLAIN[hint]
    elif hint is ByRound:
        yield from SCHEDULES
    elif hint in BASES.values():
        (kind,) = (kind for kind, base in BASES.items() if base is hint)
        yield from (made for cls in CATALOG[kind].values() if (made := attempt(cls, {})) is not None)
    else:
        for each in get_args(hint):
            yield from values_of(each)


def attempt(cls: Any, given: dict[str, Any]) -> Any:
    """An object with these fields, and a first value for others that it needs; None where it refuses them."""
    hints = get_type_hints(cls)
    needed = [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]
    firsts = {name: next(v for v in values_of(hints[name]) if v) for name in needed if name not in given}
    try:
        return cls(**firsts, **given)
    except SettingError:
        return None


def assert_survives(kind: str, thing: Any) -> None:
    for written in (describe(thing), brief(thing)):
        assert build(kind, json.loads(json.dumps(written))) == thing
    assert describe(build(kind, json.loads(json.dumps(describe(thing))))) == describe(thing)


@pytest.mark.few(15)
@pytest.mark.parametrize(("kind", "cls"), CLASSES, ids=lambda value: getattr(value, "__name__", value))
def test_every_field_of_everything_survives_a_file(kind: str, cls: Any) -> None:
    hints = get_type_hints(cls)
    for field in fields(cls):
        if not field.init:
            continue
        tried = [attempt(cls, {field.name: value}) for value in values_of(hints[field.name])]
        made = [thing for thing in tried if thing is not None]
        assert made, f"no value of {field.name} was tried"
        for thing in made:
            assert_survives(kind, thing)


@given(data=st.data())
def test_fields_together_survive_a_file(data: st.DataObject) -> None:
    kind, cls = data.draw(st.sampled_from(CLASSES))
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls) if field.init]
    chosen = data.draw(st.lists(st.sampled_from(names), unique=True, max_size=4)) if names else []
    drawn = {name: data.draw(st.sampled_from([*values_of(hints[name])])) for name in chosen}
    if (thing := attempt(cls, drawn)) is not None:
        assert_survives(kind, thing)


@pytest.mark.parametrize("cls", METHODS.values(), ids=METHODS)
def test_what_may_depend_on_the_round_may_do_so_in_every_method(cls: Any) -> None:
    for field in fields(cls):
        declared = [get_type_hints(base).get(field.name) for base in cls.__mro__]
        if issubclass(cls, FedPlus) and field.name == "lr":
            continue  # kappa depends on it: a rate by round is refused
        if any(ByRound in get_args(hint) for hint in declared):
            assert ByRound in get_args(get_type_hints(cls)[field.name]), field.name
            assert_survives("methods", cls(**{field.name: SCHEDULES[0]}))


def test_a_run_whose_minibatches_grow_can_be_resumed(tmp_path: Path) -> None:
    data = dc.datasets.synthetic(clients=3, samples=20)
    method, task = FLAME(batch=PowerLaw(scale=2.0, power=1.0)), dc.Task(nn.Linear(60, 10))
    unbroken = dc.simulate(task, data, method, rounds=3, mode="vmap")
    with pytest.raises(KeyboardInterrupt):
        dc.simulate(task, data, method, rounds=3, mode="vmap", commit=1, out=tmp_path, progress=interrupt(2))
    assert dc.resume(tmp_path, task, data).clients.equals(unbroken.clients)


def test_a_class_of_ones_own_that_declares_a_field_anew_may_still_be_given_a_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_steps.py").write_text(
        "from dataclasses import dataclass\n"
        "from descant.methods import Local\n"
        "class Lab:\n"
        "    @dataclass(frozen=True, kw_only=True)\n"
        "    class Small(Local):\n"
        "        batch: int | None = 4\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    thing = build("methods", {"name": "my_steps:Lab.Small", "batch": {"name": "power", "scale": 8}})
    assert thing.batch == PowerLaw(scale=8.0)
    assert_survives("methods", thing)


def test_what_is_brief_has_no_field_that_has_its_default() -> None:
    assert brief(FLAME(batch=100, lam=2.0)) == {"name": "flame", "lam": 2.0}
    nested = {"name": "ditto", "solver": {"name": "fedavg", "lr": 0.5, "steps": None}, "lam": 1.0}
    assert brief(build("methods", nested)) == {"name": "ditto", "solver": {"name": "fedavg", "lr": 0.5}}
