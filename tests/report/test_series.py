"""The numbers behind the charts are those of the runs' own tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import descant as dc
from descant.report import Report
from descant.report.series import both_models, chosen, holdings, over_rounds, per_client, sorted_clients, thinned
from descant.report.tables import worst_served


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return Report.of(folder)


def frames(folder: Path) -> pl.DataFrame:
    """All clients' tables of all runs, as polars reads them."""
    found = []
    for path in sorted(folder.glob("*/clients.parquet")):
        about = pl.read_json(path.with_name("run.json"))["config"][0]
        frame = pl.read_parquet(path).with_columns(label=pl.lit(about["label"]), seed=pl.lit(about["seed"]))
        found.append(frame.with_columns(pl.col("round").cast(pl.Int64)))
    return pl.concat(found)


def test_a_curve_is_the_mean_over_clients_then_over_seeds(report: Report, folder: Path, labels: list[str]) -> None:
    curves = over_rounds(report.experiments[0], "accuracy", "personal")
    seeds = (
        frames(folder)
        .filter(pl.col("model") == "personal")
        .group_by("label", "seed", "round")
        .agg(
            pl.col("test_accuracy").mean(),
            worst=pl.col("test_accuracy").bottom_k(2).mean(),  # a tenth of 12, rounded up
            best=pl.col("test_accuracy").top_k(2).mean(),
            bytes=(pl.col("bytes_up") + pl.col("bytes_down")).mean(),
            examples=pl.col("examples").mean(),
        )
    )
    wanted = seeds.group_by("label", "round").agg(
        mean=pl.col("test_accuracy").mean(),
        low=pl.col("test_accuracy").min(),
        high=pl.col("test_accuracy").max(),
        worst=pl.col("worst").mean(),
        best=pl.col("best").mean(),
        bytes=pl.col("bytes").mean(),
        gradients=pl.col("examples").mean(),
    )
    both = curves.join(wanted, left_on=["method", "round"], right_on=["label", "round"], suffix="_wanted")
    assert len(both) == len(curves) == 3 * 5
    for name in ("mean", "low", "high", "worst", "best", "bytes", "gradients"):
        np.testing.assert_allclose(both[name], both[f"{name}_wanted"], rtol=1e-4, atol=1e-12)
    assert curves["method"].unique(maintain_order=True).to_list() == labels, "in the order of the comparison"


def test_the_reported_figures_are_those_of_the_summary(report: Report) -> None:
    experiment = report.experiments[0]
    assert experiment.rule == "chosen_on_valid"
    rows = chosen(experiment)
    for entry in experiment.entries:
        for run in entry.runs:
            [row] = rows.filter(method=entry.label, seed=run.config["seed"]).to_dicts()
            figures = run.summary()
            assert row["metric"] == pytest.approx(figures["personal.test_accuracy.mean@chosen_on_valid"], rel=1e-4)
            assert row["variance"] == pytest.approx(
                figures["personal.test_accuracy.variance@chosen_on_valid"], rel=1e-4
            )
            assert row["loss_variance"] == pytest.approx(
                figures["personal.test_loss.variance@chosen_on_valid"], rel=1e-4
            )


def test_sorted_clients_begin_with_the_worst_served_and_keep_the_mean(report: Report, labels: list[str]) -> None:
    rows, figures = sorted_clients(report.experiments[0]), chosen(report.experiments[0])
    for label in labels:
        values = rows.filter(method=label)["value"].to_numpy()
        assert len(values) == 12 and (np.diff(values) >= -1e-9).all()
        assert values.mean() == pytest.approx(figures.filter(method=label)["metric"].mean(), rel=1e-4)


def test_both_models_are_there_where_a_method_has_both(report: Report, labels: list[str]) -> None:
    experiment = report.experiments[0]
    found = {entry.label: both_models(entry, experiment) for entry in experiment.entries}
    assert [label for label, frame in found.items() if not frame.is_empty()] == [labels[1]]
    frame = found[labels[1]]
    assert frame["client"].to_list() == experiment.history.federation.names
    entry = experiment.entries[1]
    rounds = [h.best_round("personal", "valid", 0) for h in entry.histories]
    wanted = np.mean(
        [h.evaluated["shared"][t]["test_accuracy"] for h, t in zip(entry.histories, rounds, strict=True)], axis=0
    )
    np.testing.assert_allclose(frame["shared"], wanted, rtol=1e-4)


def test_who_holds_what_is_what_the_data_says(report: Report) -> None:
    experiment = report.experiments[0]
    held, sizes = holdings(federation := experiment.history.federation)
    assert federation.labels is not None
    assert held["examples"].sum() == federation.labels.sum() == federation.sizes["train"].sum()
    assert sizes.filter(part="test")["examples"].to_list() == federation.sizes["test"].tolist()


def test_a_line_ends_where_its_first_seed_collapses(collapsed: Path) -> None:
    experiment = Report.of(collapsed).experiments[0]
    curves = over_rounds(experiment, "loss", "personal")
    wild, calm = (curves.filter(method=label) for label in ("wild", "calm"))
    [run] = experiment.entries[1].runs
    assert run.collapse is not None and 0 < run.collapse.round <= 12
    assert wild["round"].max() == run.collapse.round - 1
    assert wild["end"].to_list() == [False] * (len(wild) - 1) + [True]
    assert not calm["end"].any() and calm["round"].max() == 12


@pytest.mark.parametrize(("count", "most"), [(0, 5), (3, 5), (5, 5), (6, 5), (1000, 250), (251, 250)])
def test_thinning_keeps_both_ends_and_no_more_than_asked(count: int, most: int) -> None:
    kept = thinned(count, most)
    assert kept == sorted(set(kept)) and len(kept) <= most
    if count:
        assert kept[0] == 0 and kept[-1] == count - 1
    if count <= most:
        assert kept == list(range(count))


@pytest.mark.slow
def test_clients_that_attack_are_not_among_the_served(tmp_path: Path) -> None:
    data = dc.data.synthetic(clients=6, samples=30)
    for name in ("fedavg", "local"):
        torch.manual_seed(0)
        dc.simulate(
            dc.Task(torch.nn.Linear(60, 10)),
            data,
            name,
            rounds=2,
            attacks="sign-flip",
            malicious=[1, 4],
            out=tmp_path / name,
        )
    report = Report.of(tmp_path)
    [experiment] = report.experiments
    for entry in experiment.entries:
        [values] = per_client(entry, experiment, "test_accuracy", "personal").values()
        assert np.isnan(values).nonzero()[0].tolist() == [1, 4]
    named = [row[1].text for row in worst_served(experiment).rows]
    assert named and not {"1", "4"} & set(named)
    [page] = report.save(tmp_path / "report.html")
    assert "Figures are of the benign clients, without the 2 malicious." in page.read_text()


def test_what_a_method_costs_is_what_those_who_take_part_spend() -> None:
    """What newcomers spend as they arrive is on no axis of a chart."""
    data = dc.data.synthetic(clients=6, samples=30, dim=4, classes=3)
    run = dc.simulate(
        dc.Task(dc.models.linear(data)), data, "fedavg", rounds=2, newcomers=[0, 3], newcomer_rounds=5, mode="vmap"
    )
    table = over_rounds(Report([run]).experiments[0], "accuracy", "personal")
    last = table.filter(table["round"] == 2).row(0, named=True)
    figures = run.summary()
    assert last["gradients"] == pytest.approx(figures["examples_per_client"], rel=1e-3)
    assert last["bytes"] == pytest.approx((figures["bytes_up"] + figures["bytes_down"]) / 4, rel=1e-3)
