"""The command line, as a person or a program uses it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from descant.cli.app import Kind
from descant.experiment.attackgrid import attack_grid
from descant.experiment.budget import Goals
from descant.experiment.cells import FromFile
from descant.experiment.grid import comparison
from descant.experiment.settings import read_settings
from descant.methods import METHODS
from tests.bad_input.calling import descant

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = "data: {name: synthetic, clients: 5, samples: 30}\nrounds: 2\nmode: vmap\n"  # and a method, or several


def test_list_methods_as_json_says_name_summary_paper_and_fields(tmp_path: Path) -> None:
    found = json.loads(descant("list", "methods", "--json", cwd=tmp_path).out)
    assert [entry["name"] for entry in found] == list(METHODS)
    for entry in found:
        assert set(entry) == {"name", "summary", "paper", "fields"}
        assert entry["summary"] and entry["paper"]
        for field in entry["fields"]:
            assert set(field) == {"name", "type", "default", "required", "help"}
    [entry] = [entry for entry in found if entry["name"] == "lp-proj"]
    lp_proj = {field["name"]: field["default"] for field in entry["fields"]}
    assert lp_proj["dim"] == 21 and lp_proj["p"] == 1.0


@pytest.mark.parametrize("kind", [kind.value for kind in Kind if kind is not Kind.METHODS])
def test_every_kind_can_be_listed(tmp_path: Path, kind: str) -> None:
    found = json.loads(descant("list", kind, "--json", cwd=tmp_path).out)
    assert isinstance(found, list) and (found or kind == "attacks")
    assert descant("list", kind, cwd=tmp_path).status == 0


def test_what_cannot_be_listed_is_said_in_one_line(tmp_path: Path) -> None:
    done = descant("list", "method", cwd=tmp_path)
    assert done.status == 2 and "no kind called 'method'. Did you mean 'methods'?" in done.err
    assert len(done.err.splitlines()) == 1 and not done.out


def test_run_leaves_a_run_and_prints_its_figures(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL + "method: ditto\n")
    done = descant("run", str(file), "--set", "method.steps=2", cwd=tmp_path)
    assert done.status == 0, done.err
    assert "chosen on valid" in done.out and "runs/small" in done.out
    assert (tmp_path / "runs" / "small" / "rounds.parquet").is_file()
    again = descant("run", str(file), cwd=tmp_path)
    assert again.status == 2 and "already holds a run" in again.err and "Traceback" not in again.err
    assert descant("run", str(file), "--set", "method.steps=2", "--overwrite", "-q", cwd=tmp_path).status == 0


def test_compare_prints_a_row_a_method_and_reads_finished_cells(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    file.write_text(
        SMALL + "seeds: 2\nmethods: {One step: {name: local, steps: 1}, Averaged: {name: fedavg, steps: 3}}\n"
    )
    done = descant("compare", str(file), cwd=tmp_path)
    assert done.status == 0, done.err
    assert "One step" in done.out and "Averaged" in done.out and "±" in done.out
    assert "Not at equal compute" in done.out
    again = descant("compare", str(file), cwd=tmp_path)
    assert again.out == done.out and not again.err
    for_programs = descant("compare", str(file), "--json", cwd=tmp_path).out.splitlines()
    [note] = [event for event in map(json.loads, for_programs) if event["event"] == "note"]
    assert note["data"] == "synthetic" and note["note"] in " ".join(done.out.split())


@pytest.mark.slow
def test_tables_are_of_the_rounds_that_were_asked_for(tmp_path: Path) -> None:
    attacked = "methods: [{name: fedavg, steps: 1}]\nattacks: [sign-flip]\nfractions: [0.2]\n"
    (tmp_path / "table.yaml").write_text(SMALL + attacked)
    shown = {"chosen": "the round chosen on validation data", "last": "the last round"}
    for round, said in (shown | {"best-on-test": "the best round on test data"}).items():
        done = descant("robustness", "table.yaml", "-q", "--round", round, cwd=tmp_path)
        assert done.status == 0 and f", at {said};" in " ".join(done.out.split()), done


@pytest.mark.parametrize(
    ("text", "message"),
    [("rounds: 3\nmethod: dito\ndata: digits\n", "Did you mean 'ditto'"), ("data: [", "not valid YAML")],
)
def test_a_mistake_is_one_line_and_no_traceback(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    done = descant("run", str(file), cwd=tmp_path)
    assert done.status == 2 and message in done.err and "Traceback" not in done.err


def test_json_lines_say_every_round_and_the_whole_summary(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL + "method: ditto\nlabel: mine\n")
    done = descant("run", str(file), "--set", "method.steps=2", "--set", "rounds=3", "--json", cwd=tmp_path)
    assert done.status == 0 and done.err == ""
    events = [json.loads(line) for line in done.out.splitlines()]
    assert [e["round"] for e in events if e["event"] == "round"] == [1, 2, 3]
    assert {e["model"] for e in events if e["event"] == "evaluated"} == {"personal", "shared"}
    assert all(e["label"] == "mine" and e["seed"] == 0 for e in events)
    assert events[-1]["event"] == "finished"
    summary = json.loads((tmp_path / "runs" / "small" / "summary.json").read_text())
    assert events[-1]["summary"] == summary
    assert sum(e["bytes_up"] for e in events if e["event"] == "round") == summary["bytes_up"]


def test_where_there_is_no_terminal_a_line_says_round_accuracy_and_bytes(tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(SMALL + "methods: [fedavg]\nseeds: 2\n")
    done = descant("compare", str(file), cwd=tmp_path)
    lines = done.err.splitlines()
    assert len(lines) == 2 and lines[1].startswith("fedavg, seed 1 (2 of 2): round 2 of 2, 0.")
    assert "on test" in lines[0] and lines[0].endswith("kB")
    quiet = descant("compare", str(file), "-q", "-o", str(tmp_path / "quiet"), cwd=tmp_path)
    assert quiet.status == 0 and quiet.err == ""


def test_report_writes_a_page_or_files_and_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # To pack the code that draws takes a second: tests/report/test_page.py looks at it.
    monkeypatch.setattr("descant.report.page._bundle", lambda: "")
    file = tmp_path / "small.yaml"
    file.write_text(SMALL + "methods: [local, fedavg]\n")
    assert descant("compare", str(file), "-q", cwd=tmp_path).status == 0
    done = descant("report", "runs/small", cwd=tmp_path)
    assert done.status == 0 and done.out.strip() == "report.html", done.err
    assert "<h1>descant: synthetic</h1>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    done = descant("report", "runs/small", "--format", "csv", "-o", "tables", cwd=tmp_path)
    assert done.out.strip() == "tables/synthetic.csv" and (tmp_path / "tables" / "synthetic.csv").is_file()
    done = descant("report", "runs/small", "-o", "x.pdf", cwd=tmp_path)
    assert done.status == 2 and "x.html, and print that" in done.err and not (tmp_path / "x.pdf").exists()
    done = descant("report", "runs/nothing", cwd=tmp_path)
    assert done.status == 2 and "no such folder" in done.err and "Traceback" not in done.err


@pytest.mark.few(1)
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_the_examples_run(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)  # a method of the examples is imported
    values = yaml.safe_load((EXAMPLES / name).read_text())
    command = "robustness" if "fractions" in values else "compare" if "methods" in values else "run"
    short = ["--set", "rounds=1", "--set", "data.clients=10"]
    short += ["--set", "seeds=1"] if command != "run" else []
    done = descant(command, str(EXAMPLES / name), *short, "-q", cwd=tmp_path)
    assert done.status == 0, done.err


@pytest.mark.parametrize("file", sorted((EXAMPLES / "papers").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_papers_tables_are_valid_comparisons(file: Path) -> None:
    values = read_settings(file)
    goals = {name: values.pop(name, None) for name in ("budgets", "targets", "papers")}
    assert not any(goals.values()) or Goals.of(**goals).papers  # of `descant budget`
    attacked = "fractions" in values
    grid = attack_grid(values).grid if attacked else comparison(values)
    labels = {cell.label for cell in grid.cells}
    assert set(values["methods"]) <= labels if attacked else set(values["methods"]) == labels
    assert len(grid.cells) == 3 * len(labels)
    assert all(cell.settings.data["seed"] == "run" for cell in grid.cells if isinstance(cell, FromFile))


def test_a_line_of_progress_in_a_pipe_is_one_line(tmp_path: Path) -> None:
    label = "a method whose label says all that was changed in it " * 3
    settings = {
        "data": {"name": "synthetic", "clients": 3, "samples": 12, "dim": 3, "classes": 2},
        "methods": {label.strip(): {"name": "fedavg", "steps": 1}},
        "rounds": 1,
        "mode": "vmap",
    }
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(settings))
    done = descant("compare", "one.yaml", cwd=tmp_path)
    assert done.status == 0 and len(done.err.splitlines()) == 1, done.err
