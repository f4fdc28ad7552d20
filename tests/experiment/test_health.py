"""A run's health in its folder, after an interruption, in events and in the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import descant as dc
from descant.cli.events import event_of
from descant.engine import HealthRecord, RoundRecord
from descant.errors import DamagedError
from descant.experiment.history import at_point
from descant.report import Report
from tests.experiment.small import DATA, begin, resume, task

FEDAVG = dc.methods.FedAvg(steps=2, batch=None)
HOW: dict[str, Any] = {"rounds": 6, "mode": "vmap", "evaluate": 6}


@pytest.mark.few(1)
@pytest.mark.parametrize("store", ["memory", "disk"])
@pytest.mark.parametrize("stop", [4, 5])  # just after a round that was looked at, and after the next
def test_an_interrupted_run_has_the_health_of_the_unbroken_one(tmp_path: Path, store: str, stop: int) -> None:
    whole = begin(tmp_path / "whole", store=store, rounds=8, health=2)
    begin(tmp_path / "broken", stop, store=store, rounds=8, health=2)
    again = resume(tmp_path / "broken")
    assert whole is not None and again.health["round"].unique().sort().to_list() == [2, 4, 6, 8]
    assert again.health.equals(whole.health)
    assert dc.load(tmp_path / "broken").health.equals(whole.health)


def test_the_table_lies_in_the_folder_of_a_run_that_looks_and_of_no_other(tmp_path: Path) -> None:
    for name, health in (("looks", {"rounds": [1, 6], "points": [0, 1]}), ("not", None)):
        run = dc.simulate(task(), DATA, FEDAVG, out=tmp_path / name, health=health, **HOW)
        assert (tmp_path / name / "health.parquet").exists() == (health is not None)
        assert dc.load(tmp_path / name).health.equals(run.health)
    table = pl.read_parquet(tmp_path / "looks" / "health.parquet")
    columns = ["round", "client", "jump", "distance", "loss_began", "loss_at_0", "loss_at_1"]
    assert table.columns == columns and len(table) == 2 * len(DATA)
    dc.simulate(task(), DATA, FEDAVG, out=tmp_path / "looks", overwrite=True, **HOW)
    assert not (tmp_path / "looks" / "health.parquet").exists(), "the run that lay there before had it"


def test_a_damaged_table_is_named(tmp_path: Path) -> None:
    dc.simulate(task(), DATA, FEDAVG, out=tmp_path, health=3, **HOW)
    file = tmp_path / "health.parquet"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(DamagedError, match=r"health\.parquet"):
        dc.load(tmp_path)


def test_the_record_comes_before_that_of_its_round_and_is_an_event(tmp_path: Path) -> None:
    records: list[Any] = []
    run = dc.simulate(task(), DATA, FEDAVG, health=[2, 5], progress=records.append, **HOW)
    kinds = [(r.round, type(r)) for r in records if isinstance(r, HealthRecord | RoundRecord) and r.round in (2, 5)]
    assert kinds == [(2, HealthRecord), (2, RoundRecord), (5, HealthRecord), (5, RoundRecord)]
    event = event_of(next(r for r in records if isinstance(r, HealthRecord)))
    mean = run.health.filter(pl.col("round") == 2)["jump"].mean()
    assert event is not None and (event["event"], event["round"]) == ("health", 2)
    assert event["jump"] == pytest.approx(mean, rel=1e-12) and event["distance"] == pytest.approx(mean, rel=1e-12)


def test_the_report_draws_the_jumps_and_the_lines_of_those_who_looked() -> None:
    attack: dict[str, Any] = {"malicious": 2, "attacks": "sign-flip"} | HOW

    def made(method: Any, seed: int = 0, **how: Any) -> dc.Run:
        torch.manual_seed(0)
        return dc.simulate(torch.nn.Linear(4, 3), DATA, method, seed=seed, **attack, **how)

    looked = {"fedavg": [made(FEDAVG, seed, health=2) for seed in (0, 1)], "fed+": [made("fed+", health=2)]}
    report = Report([*looked["fedavg"], *looked["fed+"], made("local")])
    figures = {figure.key: figure for figure in report.figures[report.experiments[0].key]}
    (jumps,) = figures["jump"].chart.to_dict()["datasets"].values()
    assert {(row["method"], row["round"]) for row in jumps} == {(m, t) for m in looked for t in (2, 4, 6)}
    for row in jumps:  # of the benign, and means over seeds
        found = [benign(run, row["round"])["jump"].to_numpy() for run in looked[row["method"]]]
        assert row["mean"] == pytest.approx(np.mean([f.mean() for f in found]), rel=1e-4)
        assert row["spread"] == pytest.approx(np.mean([f.std() for f in found]), rel=1e-4)
        assert (row["mean"] == 0) == (row["method"] == "fed+")
    lines = [row for rows in figures["line"].chart.to_dict()["datasets"].values() for row in rows]
    assert {(row["method"], row["round"]) for row in lines} == {(m, t) for m in looked for t in (2, 4, 6)}
    for row in lines:
        some = [benign(run, row["round"]) for run in looked[row["method"]]]
        assert row["loss"] == pytest.approx(np.mean([s[at_point(row["theta"])].mean() for s in some]), rel=1e-4)
        assert row["began"] == pytest.approx(np.mean([s["loss_began"].mean() for s in some]), rel=1e-4)
    assert figures["jump"].title == "Jumps of the clients' models"
    without = Report([made("local")])
    assert not {"jump", "line"} & {figure.key for figure in without.figures[without.experiments[0].key]}


@pytest.mark.slow
def test_the_page_shows_the_jumps() -> None:
    looked = dc.simulate(task(), DATA, FEDAVG, health=2, **HOW)
    assert "Jumps of the clients" in Report([looked]).html()


def benign(run: dc.Run, round: int) -> pl.DataFrame:
    malicious = run.history.federation.malicious
    assert malicious is not None and malicious.sum() == 2
    return run.health.filter(pl.col("round") == round, ~pl.col("client").is_in(malicious.nonzero()[0].tolist()))


def test_health_in_a_settings_file_is_the_same(tmp_path: Path) -> None:
    from descant.experiment.declaration import Settings

    for value in (3, [3, 6], {"rounds": [3, 6], "part": "valid"}, dc.Health(rounds=3, points=(0.5,))):
        made = Settings.of({"rounds": 6, "health": value})
        again = Settings.of({"rounds": 6, "health": made.plain("result")["health"]})
        assert made.health == again.health and isinstance(made.health, dc.Health)
    assert "health" not in Settings.of({"rounds": 6}).identity()
