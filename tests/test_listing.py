"""What `descant list` says of fields: a sentence of the docstring for each, also where a base class has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from descant.listing import entries
from descant.methods import METHODS, Local


def listed(name: str) -> dict[str, dict[str, Any]]:
    (entry,) = (entry for entry in entries("methods") if entry["name"] == name)
    return {field["name"]: field for field in entry["fields"]}


@pytest.mark.parametrize("name", METHODS)
def test_every_field_of_every_method_has_a_type_a_default_and_a_line_of_help(name: str) -> None:
    for field, told in listed(name).items():
        assert told["type"] and "default" in told
        assert told["help"], f"the docstring of {name} does not name `{field}` in backticks"
        assert f"`{field}" in told["help"] and "\n" not in told["help"] and told["help"][-1] in ".)", field


@pytest.mark.parametrize("entry", entries("projections"), ids=lambda entry: entry["name"])
def test_every_field_of_every_projection_has_a_line_of_help(entry: dict[str, Any]) -> None:
    assert entry["summary"] and "fresh" in [field["name"] for field in entry["fields"]]
    for field in entry["fields"]:
        assert field["help"] and f"`{field['name']}" in field["help"], field["name"]


@dataclass(frozen=True, kw_only=True)
class Hasty(Local):
    """Hasty training (Nobody, 2031), eq. 7: as Local, but hasty. With `haste`, sooner.

    `haste` is how much (Nobody et al. 2031, section 2). `pace="slow"` is an option.
    m is no field, and neither is `hast`. `lr` is what it was.
    """

    name: ClassVar[str] = "hasty"

    haste: float = 0.125
    pace: str = "slow"
    hidden: int = 1


def test_help_is_the_sentence_that_begins_with_the_name_or_else_holds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "hasty", Hasty)
    found = {name: field["help"] for name, field in listed("hasty").items()}
    assert found["haste"] == "`haste` is how much (Nobody et al. 2031, section 2)."
    assert found["pace"] == '`pace="slow"` is an option.'
    assert found["lr"] == "`lr` is what it was."
    assert found["hidden"] is None
    assert found["steps"] == listed("local")["steps"]["help"], "which the base class says"
