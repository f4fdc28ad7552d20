"""`descant data`: fetch and show, as a person uses them."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import descant as dc
from descant.cli.app import app
from descant.cli.holdings import holdings_table, spark
from descant.datasets import synthetic
from descant.errors import SettingError
from tests.bad_input.calling import descant

SETTINGS = "data: {name: digits, partition: {name: labels, clients: 5, labels: 2}}\nmethod: ditto\nrounds: 2\n"


def show(*arguments: str) -> str:
    """What `descant data show` prints."""
    done = CliRunner().invoke(app, ["data", "show", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "run.yaml").write_text(SETTINGS)
    return str(tmp_path / "run.yaml")


def test_show_prints_who_holds_what(file: str) -> None:
    printed = show(file)
    assert "digits: who holds what" in printed and "5 clients, 1,797 examples" in printed
    assert "2.0 of 10 labels a client on average" in printed and "█" in printed and "highest: 5" in printed
    assert "4.0 of 10 labels" in show(file, "--set", "data.partition.labels=4")


def test_a_data_set_that_is_drawn_anew_for_every_run_is_shown_for_its_seed(file: str) -> None:
    drawn = [show(file, "--set", "data.seed=run", "--set", f"seed={seed}") for seed in (0, 1, 0)]
    assert drawn[0] == drawn[2] != drawn[1]


def test_show_says_who_was_left_out(file: str) -> None:
    tight = ("--set", "data.partition={name: power-law, clients: 6, labels: 2}", "--set", "data.least=300")
    assert "Note: " in (printed := show(file, *tight, "--set", "data.tiny=drop")) and "left out" in printed
    assert "pooled" in show(file, *tight, "--set", "data.tiny=pool")


@pytest.mark.few(1)
@pytest.mark.parametrize(("format", "begins"), [("html", b"<!doctype html>"), ("png", b"\x89PNG")])
def test_show_draws_who_holds_what(tmp_path: Path, file: str, format: str, begins: bytes) -> None:
    where = tmp_path / f"drawn.{format}"
    assert str(where) in show(file, "--format", format, "--out", str(where)).replace("\n", "")
    drawn = where.read_bytes()
    assert drawn.lstrip().startswith(begins)
    show(file, "--format", format, "--out", str(where))  # its own chart is replaced
    where.write_text("my notes")
    done = descant("data", "show", file, "--format", format, "--out", str(where), cwd=tmp_path)
    assert done.status == 2 and "is there already, and is no page or picture that descant wrote" in done.err
    assert where.read_text() == "my notes"
    assert b'src="http' not in drawn  # it opens without a network
    if format == "html":
        assert b"5 clients, 1,797 examples" in drawn and b'"width":"container"' in drawn  # as wide as the window
        assert drawn.count(b'name="generator"') == 1


def test_show_draws_what_the_name_of_the_file_says(tmp_path: Path, file: str) -> None:
    show(file, "--out", str(tmp_path / "drawn.html"))
    assert (tmp_path / "drawn.html").read_text().lstrip().startswith("<!doctype html>")
    for format, name in (("png", "a.html"), ("html", "a.png"), ("text", "a.txt")):
        done = descant("data", "show", file, "--format", format, "-o", name, cwd=tmp_path)
        assert done.status == 2 and f"--out = '{name}': a chart is a file that ends in ." in done.err
        assert not (tmp_path / name).exists()
    done = descant("data", "show", file, "-o", "a.pdf", cwd=tmp_path)
    assert done.status == 2 and "ends in .html or .png" in done.err


def test_show_asks_for_data(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("method: ditto\n")
    with pytest.raises(SettingError, match="'data' is missing"):
        show(str(tmp_path / "run.yaml"))


def test_missing_files_are_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESCANT_DATA", str(tmp_path / "none"))
    (tmp_path / "run.yaml").write_text("data: {name: mnist, partition: {name: iid, clients: 3}}\n")
    done = descant("data", "show", "run.yaml", cwd=tmp_path)
    assert done.status == 2 and "descant data fetch mnist" in done.err and "Traceback" not in done.err


def test_fetch_without_a_network_says_which_file_to_put_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "no_proxy": "",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("urllib.request._opener", None)  # which keeps the proxies that it was made with
    done = descant("data", "fetch", "heart-disease", "--root", str(tmp_path), cwd=tmp_path)
    assert done.status == 2 and "Traceback" not in done.err
    assert "processed.cleveland.data" in done.err and "download it elsewhere" in done.err


def test_bars_grow_with_the_share_and_show_all_that_is_there() -> None:
    assert spark([0, 0.001, 0.5, 0.499, 0], full=1.0) == " ▁▄▄ "
    assert spark([0.2, 0.1, 0], full=0.2) == "█▄ "


def test_many_clients_are_thinned_and_a_regression_has_no_labels() -> None:
    table = holdings_table(synthetic(clients=120, samples=20))
    assert table.row_count == 40 and "40 clients are shown" in str(table.caption)
    regression = dc.FederatedData.from_arrays([(np.ones((9, 2), "f4"), np.ones((9, 1), "f4"))])
    assert not any("labels" in str(column.header) for column in holdings_table(regression).columns)
    assert next(iter(table.columns[0].cells)) == "0" and list(table.columns[0].cells)[-1] == "119"


def test_a_narrow_terminal_keeps_the_numbers_of_who_holds_what() -> None:
    data = synthetic(clients=3, samples=5000, seed=1)
    console = Console(width=44, record=True, file=StringIO())
    console.print(holdings_table(data, console.width))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 44
    for part in ("train", "valid", "test"):
        assert all(f"{int(size):,}" in text for size in data.part(part).sizes)


def test_labels_that_are_words_are_shown_as_words(tmp_path: Path) -> None:
    for client in ("ann", "bob"):
        np.savez(tmp_path / f"{client}.npz", inputs=np.eye(8, dtype=np.float32), targets=["cat", "[dog]"] * 4)
    (tmp_path / "run.yaml").write_text(f"data: {{name: folder, folder: {tmp_path}}}\n")
    assert "training labels [dog], cat (highest" in show(str(tmp_path / "run.yaml"))
    many = dc.FederatedData.from_arrays([(np.eye(90, dtype=np.float32), [f"word {k:02}" for k in range(90)])])
    console = Console(file=StringIO(), width=200)
    console.print(holdings_table(many, 200))
    assert "training labels word 00 to word 89" in console.file.getvalue()  # type: ignore[attr-defined]
