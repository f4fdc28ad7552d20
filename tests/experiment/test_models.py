"""The models that a run kept are those whose figures it shows: from memory, and from its folder alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import descant as dc
from descant.errors import DamagedError, NoModelError, NoSharedModelError, SettingError
from descant.experiment import keeping
from descant.experiment.settings import RunSettings
from descant.experiment.verify import verify
from descant.sealed import read_json, write_json
from tests.engine.test_contract_client import FineTuned
from tests.experiment.small import DATA, Net, begin, reseal, result, resume, task

ALL = dc.Evaluation(every=2, models=("personal", "shared", "selected"))
SOME: dict[str, Any] = {"rounds": 9, "cohort": 3, "evaluate": ALL}


def accuracy(model: nn.Module, client: int, data: dc.FederatedData = DATA) -> float:
    """By plain torch."""
    inputs, targets = data.test.client(client)
    return float((model(inputs).argmax(1) == targets).double().mean())


def shown(run: dc.Run, kind: str, round: str, client: int) -> float:
    """What the tables say."""
    at = run.summary()[f"{kind}.round@{'last' if round == 'last' else 'chosen_on_valid'}"]
    row = run.clients.filter(pl.col("round") == at, pl.col("model") == kind, pl.col("client") == client)
    return float(row["test_accuracy"].item())


@pytest.mark.few(1)
@pytest.mark.parametrize("round", ["chosen", "last"])
@pytest.mark.parametrize("store", ["memory", "disk"])
def test_models_predict_exactly_what_the_tables_show(tmp_path: Path, store: str, round: Any) -> None:
    live = begin(tmp_path, store=store, **SOME)
    assert live is not None
    rounds = {kind: live.summary()[f"{kind}.round@chosen_on_valid"] for kind in ("personal", "shared", "selected")}
    assert set(rounds.values()) != {9}, "the chosen round is another one than the last"
    for run in (live, dc.load(tmp_path)):
        for k in range(len(DATA)):
            found = {
                "personal": run.personal(k, round=round, model=Net()),
                "shared": run.shared(round=round, model=Net()),
                "selected": run.selected(k, round=round, model=Net()),
            }
            for kind, model in found.items():
                assert not model.training
                assert accuracy(model, k) == shown(run, kind, round, k), (kind, k)
    assert not verify(tmp_path)


@pytest.mark.slow
def test_memory_and_disk_keep_the_same_bits(tmp_path: Path) -> None:
    for store in ("memory", "disk"):
        begin(tmp_path / store, store=store, **SOME)
    files = {store: sorted((tmp_path / store / "models").iterdir()) for store in ("memory", "disk")}
    assert [file.name for file in files["memory"]] == [file.name for file in files["disk"]] and files["disk"]
    for one, other in zip(*files.values(), strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_running_statistics_come_with_the_model(tmp_path: Path) -> None:
    run = begin(tmp_path, store="memory", **SOME)
    assert run is not None
    for of in (run, dc.load(tmp_path)):
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
        for k in range(len(DATA)):
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
        for k in range(len(DATA)):
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
            for k in range(len(DATA)):
                assert accuracy(run.personal(k, round=round, model=Net()), k) == shown(run, "personal", round, k)


class Counter(nn.Module):
    """A model whose number says how many rounds it was trained for."""

    def __init__(self) -> None:
        super().__init__()
        self.round = nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[:, :1] * 0 + self.round


def counted(table: list[float], higher: bool, every: int = 1, **how: Any) -> dc.Run:
    """A run in which every round moves the model by 1, and its metric is what a table says."""
    values = torch.tensor(table, dtype=torch.float64)

    def of(outputs: Tensor, targets: Tensor) -> Tensor:
        return values[outputs[:, 0].round().long().clamp(0, len(values) - 1)]

    counting = dc.Task(Counter(), lambda outputs, targets: -outputs[:, 0], dc.Metric("told", of, higher))
    part = (np.zeros((3, 1)), np.zeros((3, 1)))
    data = dc.FederatedData.from_arrays([{"train": part, "valid": part, "test": part}] * 2)
    method = dc.methods.FedAvg(lr=1.0, steps=1)
    return dc.simulate(counting, data, method, rounds=len(table) - 1, mode="vmap", evaluate=every, **how)


@settings(max_examples=15, deadline=None)
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


class Other(Net):
    """The same tensors, and another forward."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(torch.relu(self.norm(self.random(inputs + self.shift))))
        return outputs


class Wider(Net):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 4)


def test_a_module_that_is_not_the_runs_is_refused(tmp_path: Path) -> None:
    live = begin(tmp_path, store="memory", **SOME)
    assert live is not None
    run = dc.load(tmp_path)
    with pytest.raises(SettingError, match=r"made in Python.*run\.personal\(0, model=MyNet\(\)\)"):
        run.personal(0)
    for each in (live, run):
        with pytest.raises(
            SettingError, match=r"'head\.(weight|bias)' is \[4(, 5)?\] of float32, and was \[3(, 5)?\] of float32"
        ):
            each.personal(0, model=Wider())
        with pytest.raises(SettingError, match=r"is .* of float64, and was .* of float32"):
            each.personal(0, model=Net().double())
        with pytest.raises(SettingError, match="code of its forward differ"):
            each.personal(0, model=Other())
        with pytest.raises(SettingError, match="model is a Task"):
            each.personal(0, model=task())  # type: ignore[arg-type]
    mine = Net()
    before = {name: t.clone() for name, t in mine.state_dict().items()}
    run.personal(0, model=mine)
    assert all(torch.equal(before[name], t) for name, t in mine.state_dict().items()), "what is handed in stays"


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


@pytest.mark.few(1)
@pytest.mark.parametrize("out", [True, False])
def test_fewer_models_can_be_kept(tmp_path: Path, out: bool) -> None:
    for keep in ("last", "none"):
        folder = tmp_path / keep
        where: dict[str, Any] = {"out": folder} if out else {}
        live = dc.simulate(task(), DATA, "ditto", rounds=6, keep_models=keep, evaluate=ALL, **where)  # type: ignore[arg-type]
        assert live.summary()["personal.round@chosen_on_valid"] < 6
        with pytest.raises(NoModelError, match=f"keep_models='{keep}'"):
            live.personal(0)
        for k in range(len(DATA)):  # the simulation can still make them
            assert accuracy(live.personal(k, round="last"), k) == shown(live, "personal", "last", k)
        if not out:
            continue
        run = dc.load(folder)
        assert (folder / "models").exists() == (keep == "last")
        if keep == "last":
            assert accuracy(run.selected(3, round="last", model=Net()), 3) == shown(live, "selected", "last", 3)
        else:
            with pytest.raises(NoModelError, match=r"no shared models of the last round .* keep_models='none'"):
                run.shared(round="last", model=Net())


def test_what_was_not_evaluated_was_not_kept(tmp_path: Path) -> None:
    evaluation = dc.Evaluation(models=("personal",))
    live = dc.simulate(task(), DATA, "ditto", rounds=2, evaluate=evaluation, out=tmp_path)
    assert isinstance(live.shared(), Net)
    for run, kind in ((dc.load(tmp_path), "shared"), (live, "selected")):
        with pytest.raises(NoModelError, match=f"did not evaluate them .*{kind}"):
            run.models.module(kind, 0)


@pytest.mark.slow
def test_models_too_large_for_memory_go_into_files_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path / "memory", store="memory", **SOME)
    monkeypatch.setattr(keeping, "_memory", lambda: 0)
    begin(tmp_path / "file", store="memory", chunk=5, **SOME)
    assert result(tmp_path / "file").split('"kept"')[1] == result(tmp_path / "memory").split('"kept"')[1]
    with pytest.warns(UserWarning, match="too much for memory: they are not kept; give the run a folder"):
        run = dc.simulate(task(), DATA, "ditto", rounds=6)
    assert run.summary()["personal.round@chosen_on_valid"] != 6
    with pytest.raises(NoModelError, match="too large for its memory"):
        run.personal(0)
    assert isinstance(run.personal(0, round="last"), Net)


@pytest.mark.few(1)
@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("stop", [1, 5, 6, 8])
def test_an_interrupted_run_ends_with_the_same_models(tmp_path: Path, store: str, stop: int) -> None:
    begin(tmp_path / "unbroken", store=store, **SOME)
    begin(tmp_path / "broken", stop=stop, store=store, **SOME | {"commit": None if store == "disk" else 2})
    assert not verify(tmp_path / "broken")
    resume(tmp_path / "broken")
    names = [sorted(f.name for f in (tmp_path / which / "models").iterdir()) for which in ("broken", "unbroken")]
    assert names[0] == names[1]
    for name in names[0]:
        assert (tmp_path / "broken/models" / name).read_bytes() == (
            tmp_path / "unbroken/models" / name
        ).read_bytes()


def test_damaged_models_of_an_unfinished_run_are_named(tmp_path: Path) -> None:
    begin(tmp_path, stop=8, store="memory", **SOME)
    path = next((tmp_path / "models").glob("personal-*"))
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    [said] = verify(tmp_path)
    assert path.name in said
    with pytest.raises(DamagedError, match=path.name):
        resume(tmp_path)
    path.unlink()
    with pytest.raises(DamagedError, match=rf"{path.name} is missing"):
        resume(tmp_path)


def test_only_the_best_so_far_lies_in_the_folder(tmp_path: Path) -> None:
    seen: set[int] = set()

    def look(record: Any) -> None:
        files = sorted(file.name for file in tmp_path.glob("models/personal-*"))
        assert len(files) <= 1
        seen.update(int(name.split("-")[1].split(".")[0]) for name in files)

    counted([0.0, 0.5, 0.5, 0.2, 0.9, 0.1, 0.9], True, out=tmp_path, commit=1, progress=look)
    assert seen == {0, 1, 4}, "written when the best improved, and then alone"
    assert sorted(file.name for file in tmp_path.glob("models/*")) == [
        f"{kind}-{round:08d}.safetensors" for kind in ("personal", "shared") for round in (4, 6)
    ]


@pytest.mark.parametrize("kind", ["personal", "shared", "selected"])
def test_a_damaged_file_of_models_is_named(tmp_path: Path, kind: str) -> None:
    run = begin(tmp_path / "run", store="memory", **SOME)
    assert run is not None
    name = f"{kind}-{run.summary()[f'{kind}.round@chosen_on_valid']:08d}.safetensors"
    path = tmp_path / "run" / "models" / name
    raw, other = path.read_bytes(), next(f for f in path.parent.glob(f"{kind}-*") if f != path)
    for damaged in (raw[:-1] + bytes([raw[-1] ^ 1]), raw[:-3], b"", other.read_bytes(), None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(DamagedError, match=name):
            dc.load(tmp_path / "run").models.module(kind, 0, "chosen", Net())
        assert [said for said in verify(tmp_path / "run") if name in said]


def test_a_folder_cannot_name_files_of_somebody_elses(tmp_path: Path) -> None:
    begin(tmp_path / "run", store="memory", **SOME)
    run = dc.load(tmp_path / "run")
    at = run.summary()["personal.round@chosen_on_valid"]
    (tmp_path / "run" / "models").rename(tmp_path / "elsewhere")
    (tmp_path / "run" / "models").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match=rf"personal-{at:08d}\.safetensors lies behind a link"):
        run.personal(0, model=Net())
    about, _ = read_json(tmp_path / "run" / "run.json")
    for kind, file in (("personal", "../secret.safetensors"), ("../x", f"models/../x-{at:08d}.safetensors")):
        listed = about["models"] | {"chosen": {kind: {"round": at, "file": file, "checksum": ""}}}
        reseal(tmp_path / "run" / "run.json", models=listed)
        with pytest.raises(DamagedError, match="does not say which models it keeps"):
            dc.load(tmp_path / "run")


def test_a_folder_of_a_version_without_models_says_so(tmp_path: Path) -> None:
    begin(tmp_path, store="memory", **SOME)
    about, _ = read_json(tmp_path / "run.json")
    del about["models"], about["config"]["keep_models"]
    write_json(tmp_path / "run.json", about)
    with pytest.raises(NoModelError, match=r"a version of descant that kept no models; state\.safetensors"):
        dc.load(tmp_path).personal(0, model=Net())
