"""The catalogue: what `descant list` and the documentation say of everything that can be named."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from descant.catalog import build, entries
from descant.methods import METHODS, Ditto, FedAvg, LpProj, Method


def test_a_default_that_is_itself_a_part_is_listed_by_a_name_that_builds_it() -> None:
    listed = {entry["name"]: {f["name"]: f["default"] for f in entry["fields"]} for entry in entries("methods")}
    assert build("methods", listed["ditto"]["solver"]) == Ditto().solver
    assert build("projections", listed["lp-proj"]["projection"]) == LpProj().projection


def test_a_part_that_is_not_as_its_name_alone_makes_it_is_listed_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Hurried(Ditto):
        solver: Method = field(default_factory=lambda: FedAvg(steps=3))

    monkeypatch.setitem(METHODS, "hurried", Hurried)
    (listed,) = (f["default"] for f in entries("methods")[-1]["fields"] if f["name"] == "solver")
    assert listed["name"] == "fedavg" and build("methods", listed) == FedAvg(steps=3)


def test_no_default_is_a_word_that_settings_could_not_hold() -> None:
    for name in METHODS:
        (entry,) = (entry for entry in entries("methods") if entry["name"] == name)
        given = {f["name"]: f["default"] for f in entry["fields"] if not f["required"]}
        assert build("methods", {"name": name} | given) == build("methods", name)
