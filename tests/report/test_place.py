"""A page is written where nothing of anybody else's is lost."""

from __future__ import annotations

import os
import re
from io import BytesIO, StringIO
from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import pytest
from PIL import Image

import descant as dc
from descant.errors import SettingError
from descant.report import Report
from descant.report.page import filled
from descant.report.place import check_page, check_picture, write_marked

THEIRS = "<!doctype html>\n<html><head><title>Annual report</title></head></html>\n"


def test_a_page_of_ours_is_recognised_and_may_be_replaced(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(filled("A long title " * 20, [], {}, 0), encoding="utf-8")
    check_page(page)
    check_page(tmp_path / "new.HTM")
    (tmp_path / "empty.html").touch()
    check_page(tmp_path / "empty.html")


PICTURE = alt.Chart(alt.Data(values=[{"x": 1}, {"x": 2}])).mark_point().encode(x="x:Q")


@pytest.mark.parametrize("kind", ["html", "svg", "png"])
def test_a_picture_has_a_mark_of_ours_and_is_the_same_picture(tmp_path: Path, kind: str) -> None:
    if kind == "html":
        drawn = PICTURE.to_html(inline=True).encode()
    else:
        PICTURE.save(file := StringIO() if kind == "svg" else BytesIO(), format=kind)
        drawn = file.getvalue().encode() if isinstance(file, StringIO) else file.getvalue()
    place = tmp_path / "new" / f"picture.{kind}"
    write_marked(place, drawn)
    check_picture(place)
    write_marked(place, drawn)
    raw = place.read_bytes()
    if kind == "png":
        Image.open(BytesIO(raw)).verify()  # checksums
        found = Image.open(BytesIO(raw))
        assert found.info["Software"].startswith("descant ")
        assert found.tobytes() == Image.open(BytesIO(drawn)).tobytes()
    elif kind == "svg":
        assert ElementTree.canonicalize(raw.decode()) == ElementTree.canonicalize(drawn.decode())
    else:
        assert raw.replace(re.search(rb"\n<meta name=\"generator[^>]*>", raw)[0], b"") == drawn  # type: ignore[index]
    place.write_bytes(drawn)  # the same without the mark is somebody else's
    with pytest.raises(SettingError, match=rf"picture\.{kind}' is there already, and is no page or picture that"):
        write_marked(place, drawn)
    assert place.read_bytes() == drawn


@pytest.mark.parametrize("notes", ["before", "after", "in the head"])
def test_a_page_that_somebody_has_written_in_is_kept(folder: Path, tmp_path: Path, notes: str) -> None:
    page = tmp_path / "report.html"
    Report.of(folder).save(page)
    Report.of(folder).save(page)  # nobody has
    text, mine = page.read_text(encoding="utf-8"), "<p>my notes</p>\n"
    at = {"before": 0, "after": len(text), "in the head": text.index("<title>")}[notes]
    changed = text[:at] + mine + text[at:]
    page.write_text(changed, encoding="utf-8")
    with pytest.raises(SettingError, match=r"is there already, and was changed since descant wrote it"):
        Report.of(folder).save(page)
    assert page.read_text(encoding="utf-8") == changed


def test_a_page_of_an_earlier_version_may_be_replaced(folder: Path, tmp_path: Path) -> None:
    """Its mark has no checksum."""
    page = tmp_path / "report.html"
    page.write_text(Report.of(folder).html(), encoding="utf-8")
    Report.of(folder).save(page)
    assert re.search(rb'content="descant [^"]*, checksum [0-9a-f]{32}">', page.read_bytes()[:4096])


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "nothing.html").symlink_to(os.devnull)
    for check in (check_page, check_picture):
        with pytest.raises(SettingError, match=r"nothing\.html' is there already"):
            check(tmp_path / "nothing.html")


@pytest.mark.parametrize("way", ["report", "function", "run", "early"])
def test_a_file_of_somebody_elses_is_left_alone(folder: Path, tmp_path: Path, way: str) -> None:
    page = tmp_path / "report.html"
    page.write_text(THEIRS, encoding="utf-8")
    with pytest.raises(SettingError, match=r"report\.html' is there already.*choose another name, or remove it"):
        match way:
            case "report":
                Report.of(folder).save(page)
            case "function":
                dc.report(folder, page)
            case "run":
                dc.load(next(path.parent for path in folder.glob("*/run.json"))).report(page)
            case "early":  # before it is looked for runs
                dc.report(tmp_path / "nowhere", page)
    assert page.read_text(encoding="utf-8") == THEIRS


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("x.pdf", r"as in .*x\.html, and print that from a browser"),
        ("x.png", r"--format png -o FOLDER"),
        ("x.tex", r"format='latex'"),
        ("x", r"as in .*x\.html$"),
        ("", r"is a folder: name a file in it, as in .*report\.html"),
    ],
)
def test_a_name_that_is_no_pages_is_refused_with_the_remedy(tmp_path: Path, name: str, remedy: str) -> None:
    with pytest.raises(SettingError, match=remedy):
        dc.report(tmp_path / "nowhere", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_robustness_spares_others_pages_too(tmp_path: Path) -> None:
    data = dc.datasets.synthetic(clients=4, samples=12)
    task = dc.Task(dc.models.linear(data))
    found = dc.robustness(task, data, ["fedavg"], attacks=["sign-flip"], fractions=[0.25], rounds=1, mode="vmap")
    found.save(tmp_path)
    found.save(tmp_path)  # its own page is replaced
    (tmp_path / "robustness.html").write_text(THEIRS, encoding="utf-8")
    with pytest.raises(SettingError, match=r"robustness\.html' is there already"):
        found.save(tmp_path)
    assert (tmp_path / "robustness.html").read_text(encoding="utf-8") == THEIRS
