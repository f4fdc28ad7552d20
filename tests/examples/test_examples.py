"""The examples run as a newcomer runs them, and what they say is so."""

from __future__ import annotations

import io
import re
import runpy
import subprocess
import sys
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import descant as dc
from descant.experiment.attackgrid import attack_grid
from descant.experiment.grid import comparison
from descant.experiment.settings import RunSettings, read_settings
from descant.methods import METHODS

EXAMPLES = Path(__file__).parents[2] / "examples"


def python(name: str, *arguments: str, cwd: Path) -> str:
    """What `python name arguments` prints."""
    out = io.StringIO()
    with chdir(cwd), mock.patch.object(sys, "argv", [str(EXAMPLES / name), *arguments]), redirect_stdout(out):
        inside(name, "__main__")
    return out.getvalue()


def inside(name: str, called: str = "program") -> dict[str, Any]:
    """What a program defines."""
    path = EXAMPLES / name
    with mock.patch.object(sys, "path", [str(path.parent), *sys.path]):  # it may read what stands beside it
        return runpy.run_path(str(path), run_name=called)


@pytest.mark.slow
def test_own_model_trains_and_leaves_a_run_that_read_results_reads(tmp_path: Path) -> None:
    said = python("own_model.py", cwd=tmp_path)
    figures = dc.load(tmp_path / "runs" / "own-model").summary()
    accuracy = figures["personal.test_accuracy.mean@chosen_on_valid"]
    assert f"accuracy, mean over wards: {accuracy:.3f}" in said and accuracy > 0.85
    read = python("read_results.py", "runs/own-model", cwd=tmp_path)
    assert "ditto: the worst-served clients" in read and re.search(r"better .* for \d of 8 clients", read)


@pytest.mark.slow
def test_read_results_finds_the_worst_clients_and_what_a_byte_buys(tmp_path: Path) -> None:
    said = python("read_results.py", cwd=tmp_path)
    run = dc.load(tmp_path / "runs" / "read-results" / "fedavg")
    last = run.clients.filter(round=15)
    worst = last.sort("test_accuracy", "client").row(0, named=True)
    row = rf"│ {worst['client']} +┆ {worst['test_accuracy']:.6}"
    assert re.search(rf"fedavg: the worst-served clients\n[^│]*│[^│]*│\n[^│]*{row}", said)
    assert re.search(r"mean accuracy 0.9: lp-proj \d+ kB", said)


@pytest.mark.slow
def test_settings_are_chosen_on_validation_data_and_make_a_table(tmp_path: Path) -> None:
    """On fewer clients and rounds: trials, the best of each, its runs, and the page's table of them."""
    small = ["data.clients=6", "cohort=3", "rounds=2", "evaluate.every=2"]
    trials = python("methods/choose.py", "trials", "synthetic", "Local", "MOCHA", cwd=tmp_path)
    (tmp_path / "trials.yaml").write_text(trials)
    tried = list(comparison(read_settings(tmp_path / "trials.yaml", small), tmp_path / "trials").run())
    assert [cell.label.split(" | ")[0] for cell, _ in tried] == ["Local"] * 6 + ["MOCHA"] * 6
    (tmp_path / "best.yaml").write_text(python("methods/choose.py", "best", "synthetic", "trials", cwd=tmp_path))
    figure = "personal.valid_accuracy.mean@chosen_on_valid"
    best = max((run.summary()[figure] for cell, run in tried if cell.label.startswith("MOCHA")))
    settings = read_settings(tmp_path / "best.yaml", [*small, "seeds=[100]"])
    chosen = list(comparison(settings, tmp_path / "best").run())
    assert chosen[1][1].summary()[figure] == best
    heads, _, *lines = python("methods/table.py", "best", cwd=tmp_path).splitlines()
    assert heads == "| method | test accuracy | worst tenth | worse than alone | sent | gradients |"
    rows = {cells[1]: cells[2:-1] for cells in ([cell.strip() for cell in line.split("|")] for line in lines)}
    mocha, figures = rows["MOCHA"], dc.Comparison(run for _, run in chosen).table().row(1, named=True)
    assert mocha[0] == f"{figures['test_accuracy']:.3f} ±0.000"
    harmed, steps = figures["worse_than_alone"], figures["gradients_per_client"]
    assert mocha[2:] == [f"{100 * harmed:.0f} %", f"{2 * 3 * 610 * 4 / 1000:.0f} kB", f"{steps:.0f}"]
    assert rows["Local"][2:] == ["–", "0", "20"]


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["synthetic", "digits", "mnist-by-writer"])
def test_every_method_is_in_the_settings_of_every_comparison(name: str) -> None:
    """But for MOCHA, where the model is not linear, FedBN, which wants BatchNorm, what stands for a family, and
    what is compared at equal bytes (examples/hush)."""
    family = {"fedbn", "fed+", "fedgeomed+", "fedcomed+", "lp-proj-admm"}
    family |= {"hush", "one-projection", "pfed1bs", "pfedlms"}
    settings = read_settings(EXAMPLES / "methods" / f"{name}.yaml")
    grid = comparison(settings, None)
    named = {method["name"] for method in settings["methods"].values()}
    assert named == METHODS.keys() - family - (set() if settings["model"] == "linear" else {"mocha"})
    assert len(grid.cells) == 5 * len(settings["methods"])


@pytest.mark.slow
def test_the_new_method_is_compared_with_local_training(tmp_path: Path) -> None:
    said = python("new_method.py", cwd=tmp_path)
    assert re.search(r"local +accuracy 0\.9\d\d, 0 kB up", said)
    # 10 of 20 clients send 650 numbers of 4 bytes in each of 20 rounds
    assert re.search(r"mean-regularized +accuracy 0\.9\d\d, 520 kB up", said)


@pytest.mark.slow
def test_the_new_parts_hold_against_their_attack_in_a_quarter_of_the_bytes(tmp_path: Path) -> None:
    said = python("new_parts.py", cwd=tmp_path)
    accuracy = {
        name: float(figure) for name, figure in re.findall(r"^(\S+) +accuracy (0\.\d+)", said, re.MULTILINE)
    }
    assert accuracy["__main__:Closest"] > accuracy["mean"] + 0.05
    # 20 clients send 650 numbers of a byte, the largest of these and their number of examples, 20 times
    assert said.count(f"{20 * 20 * (650 + 4 + 4):,} B up") == 2


def test_the_new_parts_do_what_their_first_lines_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from new_parts import Bytes, Closest

    leaves = {"x": torch.tensor([[0.0, 0.0], [1.0, 1.0], [1.2, 1.0], [9.0, 9.0]])}
    assert Closest(keep=0.5)(leaves)["x"].tolist() == pytest.approx([1.1, 1.0])
    update = torch.tensor([[0.5, -2.0, 0.0], [0.0, 0.0, 0.0]])
    _, payloads = Bytes().pack(None, {}, update)
    assert [len(payload) for payload in payloads] == [7, 7]
    _, again = Bytes().unpack(None, {}, payloads, torch.zeros_like(update))
    assert torch.allclose(again, update, atol=2.0 / 254)


def test_the_new_method_trains_and_shares_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from new_method import MeanRegularized

    data = dc.data.synthetic(clients=8, samples=40)
    run = dc.simulate(dc.Task(dc.models.linear(data)), data, MeanRegularized(lam=0.1, steps=5), rounds=10)
    before, after = (run.history.figure("personal", t, "train_loss")["mean"] for t in (0, 10))
    assert after < before
    mean = torch.stack([run.personal(k, round="last")[0].weight for k in range(8)]).mean(0)  # type: ignore[index]
    assert run.shared(round="last")[0].weight.allclose(mean, atol=1e-6)  # type: ignore[index]


def test_the_new_method_is_named_by_its_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    settings = RunSettings.of(read_settings(EXAMPLES / "new_method.yaml", ["rounds=1"]))
    run = settings.execute()
    assert run.config["method"]["name"] == "new_method:MeanRegularized" and run.summary()["rounds"] == 1


@pytest.mark.slow
def test_the_table_of_robustness_shows_who_holds(tmp_path: Path) -> None:
    found = dc.robustness(EXAMPLES / "robustness.yaml", out=tmp_path / "runs")
    worst = {(row["method"], row["fraction"]): row for row in found.worst().to_dicts()}
    for fraction in (0.2, 0.4):
        plain, cut = (
            worst["FedAvg", fraction]["test_accuracy"],
            worst["FedAvg, trimmed", fraction]["test_accuracy"],
        )
        assert plain < cut < worst["lp-proj-1", fraction]["test_accuracy"]
    rows = found.table().to_dicts()
    assert {row["assumed"] for row in rows if not row["in_table"]} == {0.1, 0.4}
    trimmed = [row for row in rows if row["in_table"] and row["method"] == "FedAvg, trimmed"]
    told = {(row["fraction"], row["assumed"]) for row in trimmed}
    assert told == {(0.0, 0.0), (0.2, 0.2), (0.4, 0.4)}, "the truth"
    assert [path.suffix for path in found.save(tmp_path)] == [".csv", ".parquet", ".html"]


def test_the_papers_table_of_robustness_is_a_grid() -> None:
    grid = attack_grid(read_settings(EXAMPLES / "papers" / "lp-proj-attacks.yaml"))
    # seven methods: clean, three attacks by three fractions, one by one; what trains alone: clean, three fractions
    assert len(grid.grid.cells) == 3 * (7 * 11 + 4) and len(grid.places) == 8 * 11


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hash", "hadamard", "blocks"])
def test_lp_proj_trains_a_resnet_34_within_2_gib_and_sends_600_numbers(kind: str, tmp_path: Path) -> None:
    """In a process of its own, whose memory at most is read at its end, torch and the model included.

    From where Linux counts it anew for every program: `getrusage` begins with that of the process that began it.
    """
    at_most = "print(open('/proc/self/status').read().partition('VmHWM:')[2].split()[0])"  # KiB
    program = f"import runpy, sys; sys.argv[1:] = [{kind!r}]; runpy.run_path({str(EXAMPLES / 'large_model.py')!r})"
    command = [sys.executable, "-c", f"{program}; {at_most}"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "21,797,672 parameters" in said
    losses = [
        float(loss) for loss in re.findall(r"\d+\.\d+", said.partition("loss by round: ")[2].partition("\n")[0])
    ]
    assert len(losses) == 4 and losses[-1] < losses[0]
    assert "a message: 2,400 bytes" in said
    assert int(said.split()[-1]) < 2 * 2**20


@pytest.mark.slow
def test_compressed_methods_send_less_and_are_personalized(tmp_path: Path) -> None:
    compared = dc.compare(EXAMPLES / "compressed.yaml", seeds=1, rounds=12, out=tmp_path, evaluate={"every": 12})
    runs = {label: run for label, (run,) in compared.runs.items()}
    sent = {label: run.summary()["bytes_up"] for label, run in runs.items()}
    assert list(runs) == ["plain", "QSGD", "DGC", "sketch", "LBGM", "STC, both ways"]
    assert sent.pop("plain") == 12 * 10 * 610 * 4 > max(sent.values())
    heard = {label: run.summary()["bytes_down"] for label, run in runs.items()}
    assert heard.pop("STC, both ways") * 2 < min(heard.values()) == max(heard.values()) == 12 * 10 * 610 * 4
    for run in runs.values():
        personal, shared = (
            run.history.figure(model, 12, "test_accuracy")["mean"] for model in ("personal", "shared")
        )
        assert personal > shared
