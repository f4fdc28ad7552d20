"""Tables on a terminal: which figures, and what a narrow one keeps."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from torch import nn

import descant as dc
from descant.cli.tables import _data_notes, comparison_notes, comparison_table, print_figure, print_run
from descant.experiment import Run
from descant.experiment.cells import Cell
from descant.experiment.grid import comparison
from descant.experiment.table import short

SETTINGS = {
    "data": {"name": "synthetic", "clients": 5, "samples": 30},
    "rounds": 2,
    "seeds": 2,
    "mode": "vmap",
    "methods": {"One step": {"name": "local", "steps": 1}, "Averaged": {"name": "fedavg", "steps": 1}},
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Cell, Run]]:
    return list(comparison(SETTINGS, tmp_path_factory.mktemp("grid")).run())


def console(width: int = 140) -> Console:
    return Console(width=width, record=True, file=StringIO())


def test_a_figure_is_printed_by_seed_and_in_the_mean(results: list[tuple[Cell, Run]]) -> None:
    name = "personal.test_accuracy.mean@best_on_test"
    print_figure(results, name, where := console())
    text = where.export_text()
    assert name in text and "seed 0" in text and "seed 1" in text
    by_seed = [run.summary()[name] for cell, run in results if cell.label == "One step"]
    [line] = [line for line in text.splitlines() if line.strip().startswith("One step")]
    assert line.split()[2:] == [short(value, 4) for value in (*by_seed, sum(by_seed) / 2)]


def test_rows_of_fewer_seeds_than_were_asked_for_are_marked(results: list[tuple[Cell, Run]]) -> None:
    comparison_table(results, where := console(), asked=3)
    text = where.export_text()
    assert "One step (2 of 3 seeds)" in text and "Averaged (2 of 3 seeds)" in text
    comparison_table([result for result in results if str(result[0]) != "'Averaged' (seed 1)"], where := console())
    text = where.export_text()
    assert "Averaged (1 of 2 seeds)" in text and "One step (" not in text


def test_a_figure_that_no_run_came_to_have_is_a_dash(results: list[tuple[Cell, Run]]) -> None:
    print_figure(results, "shared.test_accuracy.mean@chosen_on_valid", where := console())
    [line] = [line for line in where.export_text().splitlines() if line.strip().startswith("One step")]
    assert line.split()[2:] == ["–", "–", "–"]


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_a_narrow_terminal_breaks_words_and_never_a_number(results: list[tuple[Cell, Run]], width: int) -> None:
    comparison_table(results, where := console(width))
    text = where.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    name = "personal.test_accuracy.mean@chosen_on_valid"
    own = [run.summary()[name] for cell, run in results if cell.label == "One step"]
    assert f"{short(sum(own) / 2)} ±" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert ("No room here for" in text) == (width < 100)


@pytest.mark.slow
def test_the_shared_model_is_judged_in_the_round_of_its_row(tmp_path: Path) -> None:
    settings = SETTINGS | {
        "methods": {"Ditto": {"name": "ditto", "steps": 5, "lr": 0.5, "solver": {"name": "fedavg", "lr": 0.5}}},
        "rounds": 8,
    }
    found = list(comparison(settings, tmp_path).run())
    rounds = [[run.summary()[f"{m}.round@chosen_on_valid"] for m in ("personal", "shared")] for _, run in found]
    assert any(own != other for own, other in rounds), "or this would show nothing"
    values = [
        run.history.figure("shared", own, "test_accuracy")["mean"]
        for (own, _), (_, run) in zip(rounds, found, strict=True)
    ]
    comparison_table(found, where := console())
    assert f" {short(sum(values) / 2)}\N{NO-BREAK SPACE}±" in where.export_text()


def test_where_clients_attack_it_is_said_whose_the_figures_are(results: list[tuple[Cell, Run]]) -> None:
    attacked = {"attacks": "sign-flip", "malicious": 2, "seeds": 1}
    found = list(comparison(SETTINGS | attacked).run())
    said = "Figures are of the benign clients, without the 2 malicious."
    for print_it, runs, expected in (
        (comparison_table, found, True),
        (comparison_table, results, False),
        (lambda runs, where: print_run(runs[0][1], where), found, True),
        (lambda runs, where: print_run(runs[0][1], where), results, False),
    ):
        print_it(runs, where := console())
        assert (said in where.export_text()) == expected


def test_methods_on_several_data_stand_in_tables_of_their_own(tmp_path: Path) -> None:
    other = {"name": "synthetic", "clients": 7, "samples": 30}
    methods = {
        "Here": {"name": "local", "steps": 1},
        "There": {"name": "fedavg", "steps": 1, "run": {"data": other}},
        "There too": {"name": "local", "steps": 2, "run": {"data": other}},
    }
    grid = comparison(SETTINGS | {"methods": methods}, tmp_path)
    found = list(grid.run())
    comparison_table(found, where := console(), title="Three")
    first, second = where.export_text().split("On synthetic (clients 7)")
    assert "Three. On synthetic (clients 5)" in first and "Here" in first and "There" not in first
    assert "There too" in second and "Here" not in second
    assert "Not at equal compute" not in first and "Not at equal compute" in second
    print_figure(found, "personal.test_accuracy.mean@last", where := console())
    text = where.export_text()
    assert "Here, on synthetic (clients 5)" in text and "There, on synthetic (clients 7)" in text


def test_one_table_is_enough_for_draws_of_the_same_data_and_for_other_models(tmp_path: Path) -> None:
    methods = {
        "Linear": {"name": "local", "steps": 1},
        "Wide": {"name": "local", "steps": 1, "run": {"model": {"name": "mlp", "hidden": [3]}}},
    }
    drawn = {"data": {"name": "synthetic", "clients": 5, "samples": 30, "seed": "run"}}
    comparison_table(list(comparison(SETTINGS | drawn | {"methods": methods}, tmp_path).run()), where := console())
    assert "On synthetic" not in where.export_text()


def noted(run: Run, *notes: str) -> Run:
    """The run as if this had been noted of its data."""
    return Run(run.config | {"data": run.config["data"] | {"notes": list(notes)}}, run.history)


@pytest.mark.parametrize(
    ("many", "last"),
    [
        (3, "Note: 2."),
        (4, "(And 1 more note like these; the report has all.)"),
        (5, "(And 2 more notes like these; the report has all.)"),
    ],
)
def test_of_many_notes_a_terminal_has_three_and_a_program_all(
    results: list[tuple[Cell, Run]], many: int, last: str
) -> None:
    (cell, first), (other, second), *_ = results
    here = [noted(first, "0", "1"), noted(second, *map(str, range(many)))]
    said = [f"Note: {n}." for n in range(many)]
    assert _data_notes(here) == [*said[:3], *([last] if many > 3 else [])]
    assert _data_notes(here)[-1] == last
    both = list(zip((cell, other), here, strict=True))
    comparison_table(both, where := console())
    assert where.export_text().rstrip().endswith(last)
    assert [note["note"] for note in comparison_notes(both)] == said


def test_what_is_noted_of_some_data_is_not_said_of_others(results: list[tuple[Cell, Run]]) -> None:
    cell, run = results[0]
    here = noted(run, "two were left out")
    there = Run(run.config | {"data": run.config["data"] | {"name": "other"}}, run.history)
    both = [(cell, here), (cell, there)]
    assert comparison_notes(both) == [{"data": "synthetic", "note": "Note: two were left out."}]
    comparison_table(both, where := console())
    first, second = where.export_text().split("On other")
    assert "left out" in first and "left out" not in second


def test_of_one_seed_nothing_is_said_of_a_spread(results: list[tuple[Cell, Run]]) -> None:
    comparison_table([result for result in results if result[0].seed == 0], where := console())
    text = where.export_text()
    assert "mean over clients. Bytes" in text and "±" not in text and "standard deviation" not in text


def test_one_round_is_one_round(results: list[tuple[Cell, Run]], monkeypatch: pytest.MonkeyPatch) -> None:
    run = results[0][1]
    run_summary = run.summary()
    monkeypatch.setattr(Run, "summary", lambda self, first=0: run_summary | {"rounds": 1})
    print_run(run, where := console())
    assert "\n1 round, " in where.export_text()


def test_a_run_whose_messages_were_refused_says_how_many_and_from_when_on() -> None:
    settings = {"attacks": {"name": "same-value", "tau": 1e300}, "rounds": 3, "mode": "vmap", "seed": 0}
    data = dc.data.synthetic(clients=5, samples=30, seed=0)
    told = {}
    for malicious in (0.0, 0.4):
        run = dc.simulate(nn.Linear(60, 10), data, "fedavg", malicious=malicious, **settings)
        print_run(run, where := console())
        told[malicious] = where.export_text()
    assert "refused" not in told[0.0]
    assert "6 messages were refused, from round 1 on: not finite, or not to be encoded or decoded." in told[0.4]
