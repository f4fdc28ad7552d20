"""What a class says of itself, and cannot mean, is refused by name: as a part of a run, and by its import path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.aggregators import Mean
from descant.catalog import build
from descant.errors import SettingError
from descant.kinds import BASES, CATALOG
from descant.methods import METHODS, FedAvg, Method
from descant.saying import check_said

DATA = dc.FederatedData.from_arrays([(torch.randn(10, 4), torch.arange(10) % 3)] * 3)
NAMES = r"a tuple of names, as in \('w',\); \(\) is none"
MODELS = r"a tuple of the models that `local.run` is called for, as in \('personal',\)"
FLAG = "True or False"
REASONS = r"a dict with a reason for each setting that is refused, .*own_start, .* one_output"


def run(method: Method, **settings: Any) -> Any:
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, method, rounds=1, mode="vmap", **settings)


def saying(attribute: str, value: Any) -> Method:
    method: Method = type("Mine", (FedAvg,), {attribute: value})()
    return method


WRONG = [
    ("name", 3, "a name"),
    ("name", None, "a name"),
    ("name", "", "a name"),
    ("paper", 3, "text"),
    ("trains", (), MODELS),
    ("trains", "personal", MODELS),
    ("trains", ("personal/1",), MODELS),
    ("has_shared", 1, FLAG),
    ("personalizes", "no", FLAG),
    ("mute", None, FLAG),
    ("held", 3, NAMES),
    ("held", "w", NAMES),
    ("unbounded", "w", NAMES),
    ("refuses", "codec", REASONS),
    ("refuses", ("codec",), REASONS),
    ("refuses", {"codecs": "it rounds"}, REASONS),
    ("refuses", {"codec": True}, REASONS),
    ("needs", "sum", "'sums' or 'rows'"),
    ("turns", 5, FLAG),
    ("weighs", "yes", FLAG),
    ("drops_stragglers", 0.5, FLAG),
    ("rounding", 8, "a descant.methods.base.Rounding, or None"),
]


@pytest.mark.parametrize(("attribute", "value", "what"), WRONG)
def test_what_a_method_cannot_mean_is_told_what_it_must_be(
    attribute: str, value: Any, what: str, tmp_path: Path
) -> None:
    said = rf"class Mine has {attribute} = .*: it must be {what}"
    with pytest.raises(SettingError, match=said):
        run(saying(attribute, value), out=tmp_path / "run")
    if attribute != "name" and attribute in {
        name for name, hook in vars(Method).items() if isinstance(hook, property)
    }:
        with pytest.raises(SettingError, match=said):
            run(saying(attribute, property(lambda self: value)))
    assert not (tmp_path / "run").exists()


SOURCE = """
from descant.methods import FedAvg
class Mine(FedAvg):
    name = "mine"
    @property
    def held(self): return "w"
class Called(FedAvg):
    name = 3
"""


def test_a_class_that_is_named_by_its_path_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "saying_things.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError, match=f"class Mine has held = 'w': it must be {NAMES}"):
        run("saying_things:Mine")  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="class Called has name = 3: it must be a name"):
        build("methods", "saying_things:Called")


def test_a_part_of_another_kind_has_a_name() -> None:
    aggregator = type("Own", (Mean,), {"name": 3})()
    with pytest.raises(SettingError, match="class Own has name = 3: it must be a name"):
        run(FedAvg(), aggregator=aggregator)


def test_a_solver_is_asked_under_its_own_name() -> None:
    with pytest.raises(SettingError, match="class Mine has held = 3"):
        run(dc.methods.Ditto(solver=saying("held", 3)))


@pytest.mark.parametrize("kind", BASES)
def test_all_that_descant_brings_says_what_it_may(kind: str) -> None:
    for cls in CATALOG[kind].values():
        check_said(cls, BASES[kind])
    for name, method in METHODS.items() if kind == "methods" else ():
        check_said(method(**{"m": 4} if name == "one-projection" else {}), Method)


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("held", []), ("trains", ["shared"]), ("weighs", False), ("refuses", {"downlink": "it has none"})],
)
def test_what_can_be_meant_is_taken(attribute: str, value: Any) -> None:
    assert run(saying(attribute, value)).collapse is None
