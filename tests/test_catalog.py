"""The catalogue: what `descant list` and the documentation say of everything that can be named."""

from __future__ import annotations

from descant.catalog import build, entries
from descant.methods import METHODS, Ditto, LpProj


def test_a_default_that_is_itself_a_part_is_listed_by_a_name_that_builds_it() -> None:
    listed = {entry["name"]: {f["name"]: f["default"] for f in entry["fields"]} for entry in entries("methods")}
    assert build("methods", listed["ditto"]["solver"]) == Ditto().solver
    assert build("projections", listed["lp-proj"]["projection"]) == LpProj().projection


def test_no_default_is_a_word_that_settings_could_not_hold() -> None:
    for name in METHODS:
        (entry,) = (entry for entry in entries("methods") if entry["name"] == name)
        given = {f["name"]: f["default"] for f in entry["fields"] if not f["required"]}
        assert build("methods", {"name": name} | given) == build("methods", name)
