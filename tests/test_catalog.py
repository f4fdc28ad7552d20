"""The catalogue: names with settings become objects and back, and all that can be named is listed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from descant.catalog import build, describe
from descant.coupling import L1Norm, L2Norm, Layer, Squared
from descant.errors import SettingError, unknown
from descant.kinds import CATALOG
from descant.listing import entries
from descant.methods import METHODS, Ditto, FedAvg, FedAvgPlus, FedPlus, LpProj, Method

HYBRID = {"layer": "2", "penalty": "l1", "delta": 0.5}


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
    listed = {entry["name"]: entry for entry in entries("methods")}
    for name in METHODS:
        entry = listed[name]
        given = {f["name"]: f["default"] for f in entry["fields"] if not f["required"]}
        assert build("methods", {"name": name} | given) == build("methods", name)


def test_layers_and_penalties_are_built_from_their_names() -> None:
    built = build(
        "methods", {"name": "fed+", "penalty": "l2", "layers": [HYBRID, {"layer": "0", "penalty": "squared"}]}
    )
    assert built == FedPlus(penalty=L2Norm(), layers=(Layer("2", L1Norm(), 0.5), Layer("0", Squared(), 0.1)))


@pytest.mark.parametrize("method", [kind() for kind in CATALOG["methods"].values()], ids=lambda m: m.name)
def test_a_method_survives_a_file(method: Method) -> None:
    assert build("methods", json.loads(json.dumps(describe(method)))) == method


def test_a_method_with_layers_survives_a_file() -> None:
    method = FedAvgPlus(layers=(Layer("2", L1Norm(), 0.5), Layer("0", L2Norm())), kappa=0.9)
    assert build("methods", json.loads(json.dumps(describe(method)))) == method


@pytest.mark.parametrize("aggregator", [kind() for kind in CATALOG["aggregators"].values()], ids=lambda a: a.name)
def test_an_aggregator_survives_a_file(aggregator: Any) -> None:
    assert build("aggregators", json.loads(json.dumps(describe(aggregator)))) == aggregator


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"penalty": "l3"}, "there is no penalty called 'l3'. Did you mean 'l2'?"),
        ({"layers": [HYBRID | {"penalty": "l3"}]}, "there is no penalty called 'l3'. Did you mean 'l2'?"),
        ({"layers": [HYBRID, {"layer": "0"}]}, "fed+.layers[1] needs a value for penalty"),
        ({"layers": [{"name": "0"}]}, "there is no setting of fed+.layers[0] called 'name'. Known: "),
        ({"layers": [HYBRID | {"delta": "much"}]}, "fed+.layers[0].delta = 'much'"),
        ({"layers": [HYBRID | {"delta": -1}]}, "fed+.layers[0].delta = -1.0: it must be zero or more"),
        ({"layers": HYBRID}, "fed+.layers = "),
        ({"layers": ["2"]}, "fed+.layers[0] = '2'"),
    ],
)
def test_a_mistake_is_named(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        build("methods", {"name": "fed+", **spec})
    assert message in str(caught.value)


def test_a_variants_penalty_is_its_own() -> None:
    with pytest.raises(SettingError, match=r"no setting of method 'fedavg\+' called 'penalty'"):
        build("methods", {"name": "fedavg+", "penalty": "l1"})


def test_a_name_in_other_letters_is_the_one_that_is_meant() -> None:
    assert str(unknown("method", "FEDAVG", ["fedavg", "fedavgm"])) == (
        "there is no method called 'FEDAVG'. Did you mean 'fedavg'? Known: fedavg, fedavgm"
    )
