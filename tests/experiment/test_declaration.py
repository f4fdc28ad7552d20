"""A setting is declared once: `simulate` takes, checks, records and resumes what the declaration says."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import descant as dc
from descant.aggregators import GeometricMedian, Mean
from descant.errors import SettingError
from descant.experiment.declaration import Call, Settings, declared
from descant.experiment.settings import RunSettings
from descant.methods import FedAvg

DOCS = Path(__file__).parents[2] / "docs"
NAN, INF = float("nan"), float("inf")


@pytest.fixture
def simulate() -> Callable[..., dc.Run]:
    data = dc.datasets.synthetic(clients=4, samples=20)

    def run(**settings: Any) -> dc.Run:
        given = {"method": "local", "rounds": 1} | settings
        return dc.simulate(dc.Task(nn.Linear(60, 10)), data, **given)

    return run


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(DOCS)
    monkeypatch.delitem(sys.modules, "simulate_text", raising=False)
    return __import__("simulate_text")


def test_simulate_has_the_signature_and_the_docstring_of_the_declaration(text: ModuleType) -> None:
    source = text.SOURCE.read_text(encoding="utf-8")
    assert text.written(source) == source, "write them anew: python docs/simulate_text.py"
    parameters = inspect.signature(dc.simulate).parameters
    assert [*parameters][:3] == ["task", "data", "method"]
    for name, entry in declared(Call).items():
        default = inspect.Parameter.empty if entry.required else entry.default
        assert parameters[name].default == default and parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert f"\n    {name}: {entry.help.split()[0]}" in inspect.getdoc(dc.simulate)  # type: ignore[operator]
    assert len(parameters) == 3 + len(declared(Call))


@pytest.mark.parametrize("of", [Call, RunSettings])
def test_every_setting_says_what_it_is_and_its_default_is_allowed(of: type[Settings]) -> None:
    for name, entry in declared(of).items():
        assert entry.help.endswith(".") and entry.allowed.what and entry.role in ("result", "how", "label", "call")
        if not entry.required:
            value = entry.allowed.check(name, entry.default)
            if entry.role != "call":
                assert entry.allowed.check(name, entry.allowed.plain(value)) == value


WHOLE = "a whole number, 1 or more"
SEED = "a whole number, from 0 to 18446744073709551615"
FRACTION = "a fraction above 0 and at most 1.0"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *[("rounds", value, WHOLE) for value in (1.5, 2.0, True, "3", None, 0, -1, INF, NAN)],
        *[("seed", value, SEED) for value in (-1, 2**64, 1.0, True, None, "1")],
        *[("stragglers", value, "a share from 0 to 1") for value in (-0.1, 1.1, NAN, INF, True, "0.5", None)],
        *[("cohort", value, FRACTION) for value in (0, 0.0, 1.5, -0.5, True, NAN, INF, "all", [1])],
        *[("own_start", value, "true or false") for value in (1, 0, "yes", None)],
        *[("overwrite", value, "true or false") for value in (1, None)],
        *[("drop_last", value, "true or false") for value in (1, "no")],
        *[("sampling", value, "'uniform' or 'size'") for value in ("sizes", None, 1, ["size"])],
        *[("trainers", value, "'cohort' or 'everyone'") for value in ("all", True)],
        *[("nonfinite", value, "'drop' or 'keep'") for value in ("hide", None)],
        *[("store", value, "'memory' or 'disk'") for value in ("ram", None)],
        *[("mode", value, "'auto', 'compile', 'vmap' or 'loop'") for value in ("fast", None)],
        *[("evaluate", value, "a whole number of rounds") for value in (0, True, 1.5, "all", None)],
        *[(name, value, f"{WHOLE}, or nothing") for name in ("chunk", "commit") for value in (0, 2.0, True, "4")],
        *[("threads", value, "a whole number, from 1 to 1024, or nothing") for value in (0, 2.0, True, 1025)],
        *[("device", value, "a device of torch") for value in ("gpu", 3, None)],
        *[("label", value, "text, or nothing") for value in (3, "", " ")],
        *[("out", value, "the path of a folder") for value in (3, True)],
        ("progress", 3, "a function"),
        ("aggregator", 3, "an Aggregator"),
        ("method", 3, "a Method"),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused_by_name(
    simulate: Callable[..., dc.Run], name: str, value: Any, allowed: str
) -> None:
    with pytest.raises(SettingError) as caught:
        simulate(**{name: value})
    assert str(caught.value).startswith(f"{name} = {value!r}: it must be ") and allowed in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": FedAvg}, r"method = FedAvg: it is a class; make an object of it, as in FedAvg\(\)"),
        ({"aggregator": Mean}, r"aggregator = Mean: it is a class"),
        ({"method": "fedavgg"}, "method: there is no method called 'fedavgg'. Did you mean 'fedavg'"),
        ({"method": {"name": "fedavg", "lr": -1.0}}, r"method\.lr = -1\.0: it must be a positive number"),
        ({"aggregator": {"name": "geometric-median", "cap": 0}}, r"aggregator\.cap = 0: it must be a positive"),
        ({"method": Mean()}, r"method = Mean\(\): it must be a Method"),
        ({"evaluate": {"every": 0}}, r"evaluate\.every = 0"),
        ({"evaluate": {"often": 1}}, r"evaluate\.often: there is no setting of evaluate called 'often'"),
        ({"evaluate": {"every": True}}, r"evaluate\.every = True"),
        ({"store": "disk"}, "store = 'disk': it must be 'memory' unless there is a folder"),
        ({"store": "disk", "commit": 2, "out": "x"}, "commit = 2: it must be 1"),
        ({"cohort": 5}, "cohort = 5: it must be a number of clients from 1 to 4"),
    ],
)
def test_a_mistake_is_said_with_its_remedy(
    simulate: Callable[..., dc.Run], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        simulate(**settings)


def test_what_is_no_task_and_no_data_is_told_how_to_become_one() -> None:
    data = dc.datasets.synthetic(clients=4, samples=20)
    module = nn.Linear(60, 10)
    with pytest.raises(SettingError, match=r"task is a int: it must be a task"):
        dc.simulate(3, data, "local", rounds=1)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"data is a list: it must be a descant\.FederatedData"):
        dc.simulate(dc.Task(module), [data], "local", rounds=1)  # type: ignore[arg-type]


def test_parts_are_taken_by_object_by_name_and_by_spec(simulate: Callable[..., dc.Run]) -> None:
    spec = {"name": "fedavg", "steps": 2, "lr": 0.5}
    named = simulate(method=spec, aggregator={"name": "geometric-median", "cap": 9}, codec="native")
    built = simulate(method=FedAvg(steps=2, lr=0.5), aggregator=GeometricMedian(cap=9))
    assert named.config["method"] == built.config["method"] and named.config["method"]["lr"] == 0.5
    assert named.config["aggregator"] == built.config["aggregator"] and named.config["aggregator"]["cap"] == 9


def test_numbers_of_numpy_are_numbers(simulate: Callable[..., dc.Run]) -> None:
    settings = {
        "rounds": np.int64(1),
        "cohort": np.float32(0.5),
        "seed": np.uint64(2**64 - 1),
        "own_start": np.True_,
    }
    config = simulate(**settings, device=torch.device("cpu"), method=FedAvg(lr=np.float32(0.5))).config
    assert (config["rounds"], config["cohort"], config["seed"]) == (1, 2, 2**64 - 1)
    assert config["own_start"] is True and type(config["seed"]) is int and type(config["method"]["lr"]) is float


def test_a_run_records_every_setting_under_its_name(simulate: Callable[..., dc.Run]) -> None:
    config = simulate(evaluate=3, cohort=0.5, label="mine").config
    for name, entry in declared(Settings).items():
        assert name in config or name in config["execution"], name
        if name in config and name not in ("evaluate", "cohort", "label", "rounds") and not entry.required:
            assert config[name] == entry.allowed.plain(entry.allowed.check(name, entry.default))
    assert config["evaluate"] == {"every": 3, "parts": ["train", "valid", "test"], "models": ["personal", "shared"]}
    assert config["cohort"] == 2 and config["label"] == "mine"
