"""Figures and tables as files."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from descant.errors import SettingError
from descant.files import write_bytes
from descant.report import Report


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return Report.of(folder)


def test_csv_has_every_figure_exactly(report: Report, tmp_path: Path) -> None:
    [path] = report.save(tmp_path, "csv")
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    entry = report.experiments[0].entries[0]
    summaries = [run.summary() for run in entry.runs]
    name = "personal.test_loss.mean@last"
    [line] = [line for line in lines if line["method"] == entry.label and line["figure"] == name]
    assert float(line["mean"]) == pytest.approx(sum(s[name] for s in summaries) / 2, rel=1e-12)
    assert line["seeds"] == "2" and line["collapsed"] == "0"
    assert {line["method"] for line in lines} == {entry.label for entry in report.experiments[0].entries}


def test_markdown_has_as_many_cells_in_every_row(report: Report, tmp_path: Path) -> None:
    paths = report.save(tmp_path, "md")
    assert [path.name for path in paths] == [
        f"synthetic-{rule}.md" for rule in ("chosen_on_valid", "last", "best_on_test")
    ]
    rows = [line for line in paths[0].read_text().splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1


def test_latex_escapes_what_latex_would_read(report: Report, tmp_path: Path) -> None:
    text = report.save(tmp_path, "latex")[0].read_text()
    assert "\\toprule" in text and text.count("\\\\") == 1 + 3
    assert '\\& "co"|\\%\\_\\#' in text
    rows = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert len({line.replace("\\&", "").count("&") for line in rows}) == 1


@pytest.mark.slow
def test_every_figure_is_drawn_as_a_picture(report: Report, tmp_path: Path) -> None:
    figures = next(iter(report.figures.values()))
    paths = report.save(tmp_path, "svg")
    assert [path.name for path in paths] == [f"synthetic-{figure.key}.svg" for figure in figures]
    for path, figure in zip(paths, figures, strict=True):
        text = path.read_text()
        assert text.startswith("<svg") and figure.title in text
        assert "var(--" not in text, "colours of its own: a picture has no style sheet"


@pytest.mark.slow
def test_a_chart_can_be_had_by_name_and_as_png(report: Report, tmp_path: Path) -> None:
    run = report.experiments[0].entries[1].runs[0]
    run.plot("fairness").save(tmp_path / "fairness.png")
    assert (tmp_path / "fairness.png").read_bytes().startswith(b"\x89PNG")
    assert run.plot().to_dict()["title"]["text"] == "Test accuracy over rounds"
    with pytest.raises(SettingError, match="Did you mean 'fairness'"):
        run.plot("fairnes")
    with pytest.raises(SettingError, match="Known: csv, html"):
        report.save(tmp_path, "pdf")


@pytest.mark.slow
def test_a_notebook_shows_the_page(report: Report, tmp_path: Path) -> None:
    run = report.experiments[0].entries[0].runs[0]
    shown = run.report(tmp_path / "page.html")._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<script" not in shown
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("format", ["csv", "md", "latex"])
def test_files_of_earlier_exports_are_replaced_and_nobody_elses(
    report: Report, tmp_path: Path, format: str
) -> None:
    older = Report(report.experiments[0].entries[0].runs).save(tmp_path / "first", format)
    before = [path.read_bytes() for path in older]
    paths = report.save(tmp_path / "first", format)
    assert paths == older and all(path.read_bytes() != raw for path, raw in zip(paths, before, strict=True))
    other = tmp_path / "other" / paths[-1].name
    other.parent.mkdir()
    other.write_text("my notes")
    with pytest.raises(SettingError, match="is there already, and descant did not write it: choose another folder"):
        report.save(other.parent, format)
    assert other.read_text() == "my notes" and list(other.parent.iterdir()) == [other]


@pytest.mark.parametrize("format", ["csv", "md", "latex"])
def test_an_exported_file_that_somebody_changed_is_kept(report: Report, tmp_path: Path, format: str) -> None:
    paths = report.save(tmp_path, format)
    text = paths[-1].read_text() + "a remark of mine\n"
    paths[-1].write_text(text)
    there = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SettingError, match=f"{paths[-1].name}' was changed since descant wrote it: rename it"):
        report.save(tmp_path, format)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == there
    paths[-1].rename(tmp_path / "mine")
    assert report.save(tmp_path, format) == paths and (tmp_path / "mine").read_text() == text


def test_an_export_that_was_stopped_half_way_is_gone_on_with(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Report(report.experiments[0].entries[0].runs).save(tmp_path, "md")
    left = [1]

    def stops(path: Path, pieces: list[bytes]) -> None:
        if not left:
            raise OSError("stopped")
        left.pop()
        write_bytes(path, pieces)

    monkeypatch.setattr("descant.written.write_bytes", stops)
    with pytest.raises(OSError, match="stopped"):
        report.save(tmp_path, "md")
    monkeypatch.undo()
    assert all(report.experiments[0].entries[2].label in path.read_text() for path in report.save(tmp_path, "md"))


def test_a_file_in_the_place_of_the_folder_is_named(report: Report, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("x")
    with pytest.raises(SettingError, match=r"page\.html' is a file: name a folder for the files of format csv"):
        report.save(tmp_path / "page.html", "csv")


def test_tables_say_what_is_not_equal(report: Report, tmp_path: Path) -> None:
    experiment = report.experiments[0]
    alike = Report(experiment.entries[2].runs)
    note = "Not at equal compute: example gradients a client are "
    for format in ("md", "latex"):
        told, quiet = (each.save(tmp_path / f"{i}", format) for i, each in enumerate((report, alike)))
        assert all(f"{note}" in path.read_text() and "(alone)" in path.read_text() for path in told)
        assert not any("Not at equal" in path.read_text() for path in quiet)
    for i, (each, said) in enumerate(((report, "no"), (alike, "yes"))):
        [path] = each.save(tmp_path / f"csv{i}", "csv")
        with path.open(newline="") as file:
            assert {line["equal_compute"] for line in csv.DictReader(file)} == {said}


def test_tables_say_what_they_are_of(report: Report, tmp_path: Path) -> None:
    for path in report.save(tmp_path, "md"):
        assert report.experiments[0].title in path.read_text()
