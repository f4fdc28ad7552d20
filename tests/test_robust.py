"""`robustness`: methods under attack in Python, in memory or on the grid of the command line."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import yaml

import descant as dc
from descant.attacks import SignFlip
from descant.errors import SettingError
from descant.experiment.attackgrid import CLEAN, Place
from descant.methods import FedAvg, Local
from tests.bad_input.calling import descant, refused

DATA = dc.data.synthetic(clients=6, samples=30, dim=4, classes=3)
METHODS = {"Together": FedAvg(steps=1, batch=4), "Alone": Local(steps=1, batch=4)}
ATTACKS = {"flip": SignFlip(tau=1.0), "blast": [SignFlip(tau=1e25, on="position")]}
HOW: dict[str, Any] = {"rounds": 4, "mode": "vmap", "nonfinite": "keep"}
FIGURE = "personal.test_accuracy.mean@last"


@cache
def task(seed: int = 0) -> dc.Task:
    torch.manual_seed(seed)
    return dc.Task(torch.nn.Linear(4, 3))


@pytest.fixture(scope="module")
def found() -> dc.Robustness:
    """Attackers who turn the model around and make it 1e25 times larger: in float32 it overflows in some rounds."""
    return dc.robustness(task(), DATA, METHODS, attacks=ATTACKS, fractions=[0, 0.5], seeds=2, **HOW)


def test_every_run_is_the_one_that_simulate_makes(found: dc.Robustness) -> None:
    run = dc.simulate(task(), DATA, METHODS["Together"], attacks=ATTACKS["flip"], malicious=0.5, seed=1, **HOW)
    assert found.runs[Place("Together", "flip", 0.5)][1].clients.equals(run.clients)
    clean = dc.simulate(task(), DATA, METHODS["Together"], seed=1, **HOW)
    assert found.runs[Place("Together")][1].clients.equals(clean.clients)
    assert len(list(found)) == 2 * (3 + 2), "what is shared is there once"


def test_attackers_are_the_same_in_every_method_and_attack(found: dc.Robustness) -> None:
    for seed in (0, 1):
        runs = [there[seed] for place, there in found.runs.items() if place.fraction]
        sets = {tuple(np.flatnonzero(run.history.federation.members("malicious"))) for run in runs}
        assert len(sets) == 1 and len(sets.pop()) == 3


def test_the_table_has_the_figures_of_the_benign_and_marks_collapses(found: dc.Robustness) -> None:
    table = found.table(rule="last")
    assert table.height == len(found.runs) == 6
    row = table.row(by_predicate=(pl.col("method") == "Together") & (pl.col("attack") == "flip"), named=True)
    runs = found.runs[Place("Together", "flip", 0.5)]
    each = [run.summary()[FIGURE] for run in runs]
    assert row["test_accuracy"] == pytest.approx(np.mean(each))
    assert row["test_accuracy_spread"] == pytest.approx(np.std(each, ddof=1))
    benign = [run.history.evaluated["personal"][4]["test_accuracy"] for run in runs]
    members = [run.history.federation.members("benign") for run in runs]
    variances = [values[who].var() for values, who in zip(benign, members, strict=True)]
    assert row["variance"] == pytest.approx(np.mean(variances)) and row["attackers"] == 3
    blast = found.runs[Place("Together", "blast", 0.5)]
    rounds = [run.collapse.round for run in blast if run.collapse is not None]
    assert len(rounds) == 2, "both seeds overflow"
    row = table.row(by_predicate=(pl.col("method") == "Together") & (pl.col("attack") == "blast"), named=True)
    assert (row["collapsed"], row["collapsed_round"], row["test_accuracy"]) == (2, min(rounds), None)
    early = found.table(rule="best_on_test").filter(pl.col("collapsed") > 0)  # a round before has a figure, which
    assert early["test_accuracy"].to_list() == early["variance"].to_list() == [None]  # would flatter it
    assert "★" in repr(found) and "Together, clean: 0." in repr(found)


def test_tables_and_page_say_where_methods_did_not_compute_equally_much(found: dc.Robustness) -> None:
    table = found.table()
    lasting = table.filter(pl.col("collapsed") == 0)
    assert lasting["equal_compute"].all() and table.filter(pl.col("collapsed") > 0)["equal_compute"].to_list() == [
        None
    ]
    assert not any("equal compute" in line for line in found._report().notices())
    methods = METHODS | {"More": Local(steps=3, batch=4)}
    other = dc.robustness(task(), DATA, methods, attacks=ATTACKS, fractions=[0, 0.5], seeds=2, **HOW)
    table = other.table()
    for place, row in zip(other.runs, table.to_dicts(), strict=True):
        spent = [run.rounds["examples"].sum() / 6 for run in other.runs[place]]
        assert row["examples_per_client"] == pytest.approx(np.mean(spent))
    assert table.filter(pl.col("collapsed") == 0)["equal_compute"].to_list() == [False] * 8
    assert other.worst()["equal_compute"].to_list() == [None, False, False]
    note = "Not at equal compute: example gradients a client are 16 (Together, Alone); 48 (More)."
    assert note in other._report().notices()


def test_seeds_that_collapsed_make_no_compute_unequal() -> None:
    """Seeds draw cohorts, and clients hold unequally many examples: what is left of one method is other seeds."""
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(n, 5, generator=generator) for n in (10, 20, 60, 100, 200, 10)]
    data = dc.FederatedData.from_arrays([(x[:, :4], (x[:, 4] > 0).long()) for x in drawn], classes=3)
    methods = {"Together": FedAvg(steps=1, batch=None), "Alone": Local(steps=1, batch=None)}
    attacks = {"blast": ATTACKS["blast"]}
    more = HOW | {"rounds": 6, "cohort": 2, "seeds": 4}
    found = dc.robustness(task(), data, methods, attacks=attacks, fractions=[0, 0.2], **more)
    assert found.table()["collapsed"].to_list() == [0, 3, 0, 0]
    assert found.table()["equal_compute"].to_list() == [True, None, True, True]
    assert not any("equal compute" in line for line in found._report().notices())


def test_the_worst_attack_is_the_one_that_collapses(found: dc.Robustness) -> None:
    worst = found.worst()
    assert worst["method"].to_list() == ["Together", "Alone"]
    assert worst["attack"].to_list() == ["blast", "none"] and worst["collapsed"].to_list() == [2, 0]
    assert found.verdict().startswith("With 50 % of attackers Together collapses under its worst attack, blast (Al")


def test_a_first_round_beyond_the_last_and_an_unknown_rule_are_refused(found: dc.Robustness) -> None:
    with pytest.raises(SettingError, match="first = 9"):
        found.table(first=9)
    with pytest.raises(SettingError, match=r"first = -3: rounds are counted from 0"):
        found.table(first=-3)
    with pytest.raises(SettingError, match=r"no rule called 'best'"):
        found.table(rule="best")
    with pytest.raises(SettingError, match=r"no figure called 'heat'"):
        found.plot("heat")


@pytest.mark.slow
def test_tables_and_page_are_files(found: dc.Robustness, tmp_path: Path) -> None:
    written = found.save(tmp_path / "there", rule="best_on_test", first=1)
    assert [path.name for path in written] == ["robustness.csv", "robustness.parquet", "robustness.html"]
    table = found.table(rule="best_on_test", first=1)
    assert pl.read_parquet(written[1]).equals(table)
    assert pl.read_csv(written[0])["test_accuracy"].to_list() == pytest.approx(table["test_accuracy"].to_list())
    page = written[2].read_text()
    assert "because papers print it" in page and "★" in page and "Collapses" in page
    assert found.save(tmp_path / "there") == written
    written[0].write_text(kept := written[0].read_text().replace("Together", "Mine"))
    with pytest.raises(SettingError, match=r"robustness\.csv' was changed since descant wrote it"):
        found.save(tmp_path / "there")
    assert written[0].read_text() == kept
    (tmp_path / "there" / ".descant-report").unlink()
    with pytest.raises(SettingError, match=r"robustness\.csv' is there already, and descant did not write it"):
        found.save(tmp_path / "there")  # how a table begins says nothing of what somebody wrote below it
    assert written[0].read_text() == kept


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["csv", "parquet", "html"])
def test_files_of_somebody_else_are_kept(found: dc.Robustness, tmp_path: Path, kind: str) -> None:
    (mine := tmp_path / f"robustness.{kind}").write_text("my own figures")
    with pytest.raises(SettingError, match=f"robustness.{kind}' is there already, and"):
        found.save(tmp_path)
    assert mine.read_text() == "my own figures" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["fractions", "attacks"])
def test_a_chart_has_a_mark_for_every_outcome(found: dc.Robustness, name: str) -> None:
    chart = found.plot(name, rule="last").to_dict()
    rows = [row for rows in chart["datasets"].values() for row in rows]
    shown = {(row["method"], row["attack"], row["fraction"]) for row in rows}
    wanted = {(p.method, p.attack, p.fraction) for p in found.runs if name == "fractions" or p.attack != CLEAN}
    assert wanted <= shown
    table = {(r["method"], r["attack"], r["fraction"]): r["test_accuracy"] for r in found.table("last").to_dicts()}
    for row in rows:
        if (value := table.get((row["method"], row["attack"], row["fraction"]))) is not None:
            assert row["mean"] == pytest.approx(value, rel=1e-4)


def test_it_reads_a_file_and_what_is_finished(tmp_path: Path) -> None:
    settings = {
        "data": {"name": "synthetic", "clients": 5, "samples": 20, "dim": 3, "classes": 3},
        "methods": {"Krum": {"name": "fedavg", "run": {"aggregator": "krum"}}},
        "attacks": {"flip": "sign-flip"},
        "fractions": [0, 0.4],
        "assumed": [True, 1],
        "rounds": 1,
    }
    file = tmp_path / "table.yaml"
    file.write_text(yaml.safe_dump(settings))
    rounds: list[int] = []

    def count(record: object) -> None:
        rounds.append(1)

    first = dc.robustness(file, out=tmp_path / "runs", progress=count)
    seen = len(rounds)
    again = dc.robustness(file, out=tmp_path / "runs", progress=count)
    assert seen and len(rounds) == seen and again.table().equals(first.table())
    table = first.table()
    assert table["assumed"].to_list() == [0.0, 1.0, 0.4, 1.0], (
        "the true share in the table, and the guess beside it"
    )
    assert table["in_table"].to_list() == [True, False, True, False]
    beyond = "Krum, 40 % of attackers: 'krum' takes them to be 1 of 5 messages, the most that it survives."
    assert beyond in first._report().notices()
    assert list(first._report().assumed_tables) == ["Assumed attackers, under flip"]
    (guess,) = first._report().assumed_tables["Assumed attackers, under flip"].rows
    figures = [row["test_accuracy"] for row in table.to_dicts() if not row["in_table"]]
    assert guess[0].text == "Krum, f = 1" and [cell.value for cell in guess[1:]] == figures
    assert [figure.key for figure in first._report().figures] == ["fractions", "attacks", "assumed"]
    with pytest.raises(SettingError, match=r"methods: the settings file .* has them already"):
        dc.robustness(file, methods=["fedavg"])


def test_one_method_that_attackers_reach_is_compared_with_nobody(found: dc.Robustness) -> None:
    figure = f"{found.table().filter(method='Together', attack='flip')['test_accuracy'][0]:.3f}"
    flip = dc.Robustness({place: runs for place, runs in found.runs.items() if place.attack != "blast"})
    assert flip.verdict().startswith(f"With 50 % of attackers Together has {figure} under flip (Alone has ")
    assert "best worst case" not in flip.verdict() + found.verdict()
    twice = {
        replace(place, method="Again"): runs for place, runs in found.runs.items() if place.method == "Together"
    }
    both = dc.Robustness(found.runs | twice).verdict()
    assert both.startswith("With 50 % of attackers every method collapses under some attack.")
    [heat] = [figure for figure in flip._report().figures if figure.key == "attacks"]
    assert "frame" not in heat.caption and "last column" not in heat.caption, "there is none"
    [heat] = [figure for figure in found._report().figures if figure.key == "attacks"]
    assert "A frame marks each method's worst attack, and the last column" in heat.caption


def test_objects_are_refused_by_name() -> None:
    with pytest.raises(SettingError, match="data: a table of robustness needs it"):
        dc.robustness(task())
    with pytest.raises(SettingError, match=r"fractions\[0\] = 1\.0"):
        dc.robustness(task(), DATA, METHODS, attacks=ATTACKS, fractions=[1.0], rounds=1)
    with pytest.raises(SettingError, match="methods: a table of robustness needs them"):
        dc.robustness(task(), DATA, attacks=ATTACKS, fractions=[0.5], rounds=1)


FILE = """\
data: {name: synthetic, clients: 5, samples: 20, dim: 3, classes: 3}
methods: {Together: {name: fedavg, steps: 1}, Alone: {name: local, steps: 1}}
attacks: {flip: sign-flip, poison: lp-proj/poison}
fractions: [0, 0.4]
rounds: 2
"""


@pytest.mark.slow
def test_the_command_prints_a_table_an_attack_and_the_worst_and_runs_nothing_twice(tmp_path: Path) -> None:
    (tmp_path / "table.yaml").write_text(FILE)
    done = descant("robustness", "table.yaml", "--first", "1", cwd=tmp_path)
    assert done.status == 0, done.err
    for said in ("Under flip", "Under poison", "The worst attack on each method", "clean", "40 %"):
        assert said in done.out
    assert "With 40 % of attackers Together has " in done.out and "One seed" in done.out
    left = tmp_path / "runs" / "table"
    assert {path.name for path in left.glob("robustness.*")} == {
        f"robustness.{k}" for k in ("csv", "parquet", "html")
    }
    assert len(list(left.glob("*/run.json"))) == 3 + 2
    again = descant("robustness", "table.yaml", "--first", "1", cwd=tmp_path)
    assert again.out == done.out and not again.err, "no run, no progress"


def test_mistakes_are_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "table.yaml").write_text(FILE)
    for override, said in {
        "fractions=[1.0]": "fractions[0] = 1.0",
        "attacks={a: sign-flop}": "attacks.a: there is no attack called 'sign-flop'",
        "methods=null": "methods: a table of robustness needs them",
        "rounds=0": "rounds = 0",
    }.items():
        refused(descant("robustness", "table.yaml", "-q", "--set", override, cwd=tmp_path), said)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_training_alone_is_the_same_under_every_attack(found: dc.Robustness) -> None:
    """So that one run at a fraction may stand for all attacks."""
    how: dict[str, Any] = {"malicious": 0.5, "seed": 1} | HOW
    runs = [dc.simulate(task(), DATA, METHODS["Alone"], attacks=a, **how) for a in ("random-labels", "gaussian")]
    runs.append(found.runs[Place("Alone", "blast", 0.5)][1])
    figures = [
        {name: run.summary()[name] for name in run.summary() if name.startswith("personal.")} for run in runs
    ]
    assert figures[0] == figures[1] == figures[2] and FIGURE in figures[0]
