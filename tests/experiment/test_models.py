"""The models that a run kept are those whose figures it shows: from memory, and from its folder alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import descant as dc
from descant.errors import NoModelError, NoSharedModelError, SettingError
from descant.experiment.settings import RunSettings
from descant.experiment.verify import verify
from tests.engine.test_contract_client import FineTuned
from tests.experiment.conftest import Finished
from tests.experiment.kept import ALL, CLIENTS, SOME, accuracy, counted, shown
from tests.experiment.small import DATA, Net, begin, task


@pytest.mark.few(1)
@pytest.mark.parametrize("round", ["chosen", "last"])
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_models_predict_exactly_what_the_tables_show(tmp_path: Path, store: str, round: Any) -> None:
    live = begin(tmp_path, store=store, **SOME)
    assert live is not None
    rounds = {kind: live.summary()[f"{kind}.round@chosen_on_valid"] for kind in ("personal", "shared", "selected")}
    assert set(rounds.values()) != {9}, "the chosen round is another one than the last"
    for run in (live, dc.load(tmp_path)):
        for k in CLIENTS:
            found = {
                "personal": run.personal(k, round=round, model=Net()),
                "shared": run.shared(round=round, model=Net()),
                "selected": run.selected(k, round=round, model=Net()),
            }
            for kind, model in found.items():
                assert not model.training
                assert accuracy(model, k) == shown(run, kind, round, k), (kind, k)
    assert not verify(tmp_path)


def test_running_statistics_come_with_the_model(done: Finished) -> None:
    run = done.run
    for of in (run, dc.load(done.folder)):
        model = of.personal(1, round="last", model=Net())
        assert not torch.equal(model.norm.running_mean, torch.zeros(5))
        assert torch.equal(model.norm.running_mean, run.personal(1, round="last").norm.running_mean)
        assert torch.equal(model.shift, task().model.shift), "and what is not trained is the run's"
        assert torch.equal(model.random.weight, task().model.random.weight)


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [dc.methods.FedAvg(steps=2, batch=5), dc.methods.Ditto(steps=2, batch=5)])
def test_clients_may_keep_their_own_running_statistics(tmp_path: Path, method: dc.methods.Method) -> None:
    torch.manual_seed(0)
    local = dc.Task(Net(), buffers="local")
    live = dc.simulate(local, DATA, method, rounds=4, cohort=5, out=tmp_path)
    for run in (live, dc.load(tmp_path)):
        for k in CLIENTS:
            personal, shared = run.personal(k, model=Net()), run.shared(client=k, model=Net())
            assert accuracy(personal, k) == shown(run, "personal", "chosen", k)
            of = "shared" if method.personalizes else "personal"
            assert accuracy(shared, k) == shown(run, of, "chosen", k)
        with pytest.raises(SettingError, match=r"its own running statistics.*run\.shared\(client='0'\)"):
            run.shared(model=Net())


def test_a_method_with_one_model_keeps_one(tmp_path: Path) -> None:
    method = dc.methods.FedAvg(steps=3, batch=5)
    live = dc.simulate(task(), DATA, method, rounds=5, out=tmp_path, downlink="float16")
    for run in (live, dc.load(tmp_path)):
        for k in CLIENTS:
            assert accuracy(run.personal(k, model=Net()), k) == shown(run, "personal", "chosen", k)
        server, arrived = run.shared(model=Net()).head.weight, run.personal(0, model=Net()).head.weight
        assert torch.equal(server.half().float(), arrived) and not torch.equal(server, arrived)
    [file] = (tmp_path / "models").glob(f"personal-{live.summary()['personal.round@chosen_on_valid']:08d}.*")
    assert file.stat().st_size < 2 * sum(4 * p.numel() for p in Net().parameters()) + 2000


@pytest.mark.slow
def test_what_is_trained_to_be_deployed_is_what_was_evaluated(tmp_path: Path) -> None:
    method = FineTuned(lr=0.3, steps=2, batch=4)
    live = dc.simulate(task(), DATA, method, rounds=5, cohort=4, out=tmp_path, evaluate=ALL)
    for run in (live, dc.load(tmp_path)):
        for round in ("chosen", "last"):
            for k in CLIENTS:
                assert accuracy(run.personal(k, round=round, model=Net()), k) == shown(run, "personal", round, k)


@settings(max_examples=10)  # each is a run
@given(
    st.lists(st.sampled_from([math.nan, 0.0, 0.5, 1.0, math.inf, -1.0]), min_size=2, max_size=7),
    st.booleans(),
    st.integers(1, 3),
)
def test_the_models_are_of_the_chosen_round_with_ties_and_nan(table: list[float], higher: bool, every: int) -> None:
    run = counted(table, higher, every)
    chosen = run.summary().get("personal.round@chosen_on_valid")
    evaluated = [t for t in range(len(table)) if t % every == 0 or t == len(table) - 1]
    known = [t for t in evaluated if not math.isnan(table[t])]
    expected = (max if higher else min)(known, key=lambda t: table[t]) if known else None
    assert chosen == expected
    shown_round = len(table) - 1 if chosen is None else chosen
    assert run.personal(1).round.item() == run.shared().round.item() == shown_round
    assert run.personal(1, round="last").round.item() == len(table) - 1


def collapsing(**how: Any) -> dc.Run:
    """A regression that gets better for a round or two, by momentum, and then diverges."""
    torch.manual_seed(1)
    data = dc.FederatedData.from_arrays([(np.eye(20, 4, dtype="float32"), np.ones((20, 1), "float32"))] * 3)
    method = dc.methods.FedAvg(lr=1e12, steps=5)
    return dc.simulate(dc.Task(nn.Linear(4, 1), "squared_error"), data, method, rounds=20, **how)


@pytest.mark.few(1)
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_a_run_that_collapses_keeps_the_models_of_the_round_before(tmp_path: Path, store: Any) -> None:
    live = collapsing(out=tmp_path, store=store)
    assert live.collapse is not None
    chosen = live.summary()["personal.round@chosen_on_valid"]
    assert 0 <= chosen < live.collapse.round
    for run in (live, dc.load(tmp_path)):
        for model in (run.personal(1, model=nn.Linear(4, 1)), run.shared(model=nn.Linear(4, 1))):
            inputs, targets = (torch.eye(20, 4), torch.ones(20, 1))
            everything = torch.cat([run_part for run_part in (model(inputs[:4]) - targets[:4]).square()])
            assert everything.isfinite().all()
        with pytest.raises(NoModelError, match=f"collapsed in round {live.collapse.round}.*round='chosen'"):
            run.personal(1, round="last", model=nn.Linear(4, 1))


def test_without_validation_data_the_tables_show_the_last_round_and_so_do_the_models(tmp_path: Path) -> None:
    part = (np.eye(4, dtype="float32"), np.arange(4) % 3)
    data = dc.FederatedData.from_arrays([{"train": part, "test": part}] * 2)
    live = dc.simulate(task(), data, dc.methods.Local(steps=2), rounds=3, out=tmp_path)
    for run in (live, dc.load(tmp_path)):
        one, other = (run.personal(0, round=round, model=Net()).state_dict() for round in ("chosen", "last"))
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert sorted(file.name for file in (tmp_path / "models").iterdir()) == ["personal-00000003.safetensors"]


def test_clients_go_by_name_or_number() -> None:
    part = (np.eye(6, 4, dtype="float32"), np.arange(6) % 3)
    data = dc.FederatedData.from_arrays({"Ulm": part, "1": part, "Bonn": part})
    run = dc.simulate(task(), data, dc.methods.Local(steps=2, batch=2), rounds=2)
    by_name, by_number = run.personal("Bonn").state_dict(), run.personal(np.int64(2)).state_dict()
    assert all(torch.equal(by_name[name], by_number[name]) for name in by_name)
    weights = [run.personal(k).head.weight for k in ("Ulm", 0, "1", 1)]
    assert torch.equal(weights[0], weights[1]) and torch.equal(weights[2], weights[3])
    assert not torch.equal(weights[0], weights[2])
    for wrong, said in (("Ulma", "did you mean 'Ulm'"), (3, "from 0 to 2"), (True, "from 0 to 2"), (0.5, "0.5")):
        with pytest.raises(SettingError, match=f"client = .*{said}"):
            run.personal(wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="round = 'best'"):
        run.personal(0, round="best")  # type: ignore[arg-type]
    with pytest.raises(NoSharedModelError, match="Local has no shared model"):
        run.shared()


@pytest.mark.few(1)
@pytest.mark.parametrize("model", ["linear", {"name": "mlp", "hidden": [7, 5]}])
def test_a_run_from_settings_needs_nothing_but_its_folder(tmp_path: Path, model: Any) -> None:
    asked = {
        "data": {"name": "synthetic", "clients": 6, "samples": 30},
        "model": model,
        "method": "ditto",
        "rounds": 4,
    }
    live = RunSettings.of(asked).execute(tmp_path)
    run, data = dc.load(tmp_path), RunSettings.of(asked).federated_data()
    for k in range(6):
        assert accuracy(run.personal(k), k, data) == shown(live, "personal", "chosen", k)
        assert accuracy(run.shared(), k, data) == shown(live, "shared", "chosen", k)


def test_a_model_by_name_is_built_without_the_data() -> None:
    from descant.experiment.modules import example_of, like_data

    tokens = [(np.array([[1, 5], [2, 3], [4, 11], [0, 1], [7, 7]]), np.array([0, 1, 0, 1, 1]))] * 2
    images = [(np.zeros((5, 3, 8, 8), "float32"), np.array([0, 1, 2, 1, 1]))] * 2
    for clients, name in ((tokens, "lstm"), (images, "cnn"), (images, "mlp")):
        data = dc.FederatedData.from_arrays(clients)
        about = {"data": {"name": "mine", "classes": data.classes, "example": example_of(data)}}
        make: Callable[[dc.FederatedData], nn.Module] = dc.models.MODELS[name]
        one, other = make(data).state_dict(), make(like_data(about)).state_dict()
        assert {n: t.shape for n, t in one.items()} == {n: t.shape for n, t in other.items()}
