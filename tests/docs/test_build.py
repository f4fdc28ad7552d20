"""The documentation builds without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html import unescape
from importlib.util import find_spec
from pathlib import Path

import pytest

from descant.cli.app import app
from descant.experiment.declaration import declared
from descant.experiment.settings import RunSettings
from descant.kinds import CATALOG
from descant.listing import entries
from descant.methods import Method

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.slow  # the whole site is built


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("material") is None or find_spec("mkdocs") is None:
        pytest.skip("mkdocs-material is not installed (pip install 'descant[docs]')")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


def sections(page: Path, level: int) -> dict[str, str]:
    """The HTML of a page by the text of its headings."""
    found = re.split(rf'<h{level} id="[^"]*">(.*?)<', page.read_text())
    return dict(zip(found[1::2], found[2::2], strict=True))


def test_every_method_has_a_section_with_its_objective_its_paper_and_all_its_fields(site: Path) -> None:
    found = sections(site / "methods.html", 2)
    for method in entries("methods"):
        section = found[method["name"]]
        assert "<blockquote>" in section and method["paper"] in section
        for field in method["fields"]:
            assert f"<td><code>{field['name']}</code></td>" in section


@pytest.mark.parametrize("kind", [kind for kind in CATALOG if kind != "methods"])
def test_everything_else_that_settings_can_name_has_a_section(site: Path, kind: str) -> None:
    found = re.split(r'<h3 id="[^"]*">(.*?)<', (site / "parts.html").read_text())
    named = list(zip(found[1::2], found[2::2], strict=True))  # a model and a data set may be namesakes
    for entry in entries(kind):
        sections = [section for name, section in named if name == entry["name"]]
        rows = [f"<td><code>{field['name']}</code></td>" for field in entry["fields"]]
        assert any(all(row in section for row in rows) for section in sections), entry["name"]


def test_every_setting_has_a_row_that_says_what_it_is(site: Path) -> None:
    page = (site / "settings.html").read_text()
    for name in declared(RunSettings):
        row = re.search(rf"<tr>\s*<td><code>{name}</code></td>.*?</tr>", page, flags=re.DOTALL)
        assert row and "<td></td>" not in row[0]


def test_every_command_has_a_section(site: Path) -> None:
    found = sections(site / "commands.html", 2)
    groups = {"": app} | {f"{group.name} ": group.typer_instance for group in app.registered_groups}
    assert len(groups) > 1
    for before, group in groups.items():
        for command in group.registered_commands:
            name = command.name or command.callback.__name__  # type: ignore[union-attr]
            assert "--help" in found[f"descant {before}{name}"]


@pytest.mark.parametrize(
    ("page", "file"),
    [("getting-started", "own_model.py"), ("new-method", "new_method.py"), ("results", "read_results.py")],
)
def test_examples_stand_in_the_pages_as_they_are_run(site: Path, page: str, file: str) -> None:
    shown = unescape(re.sub(r"<[^>]+>", "", (site / f"{page}.html").read_text()))
    assert (ROOT / "examples" / file).read_text().strip() in shown


def test_the_page_on_concepts_names_every_function_of_the_contract(site: Path) -> None:
    page = (site / "concepts.html").read_text()
    functions = [name for name, member in vars(Method).items() if callable(member) or isinstance(member, property)]
    public = [name for name in functions if not name.startswith("_")]
    assert len(public) >= 10 and all(re.search(rf"<td><code>{name}\b", page) for name in public)


def test_formulas_are_set_and_no_markup_is_left_over(site: Path) -> None:
    for page in site.glob("*.html"):
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert "||" not in text and "--8&lt;--" not in text and "generated:" not in text and "**" not in text, page


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?([^\s\">]+)", page.read_text())
        assert loaded and not [address for address in loaded if re.match(r"(https?:)?//", address)]
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", sheet.read_text()), sheet


def test_the_sources_of_the_pages_are_not_published(site: Path) -> None:
    assert not list(site.rglob("*.py"))
