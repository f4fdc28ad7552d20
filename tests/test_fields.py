"""Fields of dataclasses, checked by the types that they declare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest

from descant.catalog import build
from descant.errors import SettingError, require, shown, unknown
from descant.fields import Checked
from descant.methods import Ditto


@dataclass(frozen=True)
class Leaf(Checked):
    name = "leaf"
    size: int = 1


@dataclass(frozen=True, kw_only=True)
class Part(Checked):
    number: float | None = None
    pairs: tuple[tuple[int, float], ...] = ()
    word: Literal["a", "b"] = "a"
    leaf: Leaf | None = None
    limit: float = float("inf")
    anything: Any = None


@dataclass(frozen=True, kw_only=True)
class Narrow(Part):
    number: float = 1.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", 1),
        ("number", np.float32(1)),
        ("number", None),
        ("pairs", [[1, 2.0], (3, 4)]),
        ("word", "b"),
        ("leaf", Leaf(2)),
        ("limit", -float("inf")),
        ("anything", object()),
    ],
)
def test_values_of_the_declared_type_are_taken(field: str, value: Any) -> None:
    made = getattr(Part(**{field: value}), field)
    assert made == (((1, 2.0), (3, 4)) if field == "pairs" else value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("number", True, "Part.number = True: it must be a number or nothing"),
        ("number", "1", "Part.number = '1'"),
        ("pairs", 3, "Part.pairs = 3: it must be several, each a pair"),
        ("pairs", [[1]], r"Part.pairs = \[\[1\]\]"),
        ("word", "c", "Part.word = 'c': it must be 'a' or 'b'"),
        ("word", True, "Part.word = True"),
        ("leaf", Leaf, r"Part.leaf = Leaf: it is a class; make an object of it, as in Leaf\(\)"),
        ("leaf", 3, "Part.leaf = 3: it must be an object of Leaf or nothing"),
        ("limit", "inf", "Part.limit = 'inf'"),
    ],
)
def test_others_are_refused_by_name(field: str, value: Any, said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Part(**{field: value})


@dataclass(frozen=True, kw_only=True)
class Mine(Ditto):
    limit: float = 1.0


def test_an_infinity_is_refused_in_a_field_of_descants_own_and_left_to_its_author_in_any_other() -> None:
    assert Mine(limit=float("inf")).limit == float("inf")
    for infinite in (float("inf"), -float("inf"), (1.0, float("inf"))):
        with pytest.raises(SettingError, match=r"Mine.lam = .*: it must be a finite number"):
            Mine(lam=infinite)


@dataclass(frozen=True, kw_only=True)
class Ranged(Checked):
    needed: int
    few: int | None = None
    share: int | float = 0.5
    free: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "needed", self.needed > 0, "a positive number of rounds")
        require(self, "few", self.few is None or 1 <= self.few <= 16, "from 1 to 16, or nothing")
        require(self, "share", self.share >= 0, "zero or more")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"needed": 1, "few": 2.5}, "few = 2.5: it must be a whole number from 1 to 16 or nothing"),
        ({"needed": 1.5, "few": 2.5}, "needed = 1.5: it must be a positive whole number of rounds"),
        (
            {"needed": 1, "few": "x", "free": "x"},
            "few = 'x': it must be a whole number or nothing",
        ),  # not made at all
        ({"needed": 1, "share": "x"}, "share = 'x': it must be a whole number or a number"),
        ({"needed": 1, "free": None}, "free = None: it must be a whole number"),
    ],
)
def test_a_field_that_must_be_a_whole_number_says_in_which_range(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        Ranged(**given)
    assert str(refused.value) == f"Ranged.{said}"


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        (
            "methods",
            {"name": "hush", "bits": 2.5},
            "hush.bits = 2.5: it must be a whole number from 1 to 16 or a list of 2 of these or nothing",
        ),
        (
            "methods",
            {"name": "ditto", "after": 2.5, "solver": "fedavg"},
            "a positive whole number of rounds or nothing",
        ),
        (
            "methods",
            {"name": "ditto", "solver": {"name": "fedavg", "steps": "x"}},
            "ditto.solver.steps = 'x': it must be",
        ),
        ("partitions", {"name": "labels", "clients": 5, "labels": 2.5}, "it must be a positive whole number"),
        ("methods", {"name": "finetune", "steps": 2.5}, "it must be a whole number, zero or more, or nothing$"),
        # Without `source` every number is refused, and what is said of it is no range.
        ("attacks", {"name": "flipped-labels", "target": 2.5}, "= 2.5: it must be a whole number or nothing$"),
    ],
)
def test_so_does_a_field_in_a_file(kind: str, spec: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        build(kind, spec)


def test_what_a_class_above_allows_is_allowed() -> None:
    assert Narrow(number=None).number is None  # type: ignore[arg-type]


def test_a_value_is_shown_in_one_short_line_whatever_it_is() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in ("a" * 10**6, 10**5000, endless, "a\nb", np.zeros((9, 9)), object()):
        assert len(shown(value)) <= 200 and "\n" not in shown(value)


def test_where_nothing_is_known_that_is_said() -> None:
    assert str(unknown("setting of model 'linear'", "hidden", [])).endswith("there is none at all, so leave it out")


@dataclass(frozen=True, kw_only=True)
class Mistyped(Part):
    mix: float = "a"  # type: ignore[assignment]
    size: int = 0.5  # type: ignore[assignment]


@dataclass(frozen=True, kw_only=True)
class Below(Mistyped):
    mix: float = 0.5


def test_a_default_of_a_users_class_is_of_the_declared_type() -> None:
    with pytest.raises(SettingError, match=r"^Mistyped.mix = 'a': it must be a number$"):
        Mistyped(size=1)
    with pytest.raises(SettingError, match=r"^Below.size = 0.5: it must be a whole number$"):
        Below()
