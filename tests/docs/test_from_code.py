"""What is written from the code says what the code says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest

from descant import simulate
from descant.methods import METHODS, Local

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(DOCS)
    return lambda name: __import__(name)


@dataclass(frozen=True, kw_only=True)
class Hasty(Local):
    """Hasty training (Nobody, 2031), Algorithm 7: min_v f_k(v) + haste ||v - w*||_1, with w* from afar.

    `haste` is how much. Sends n_k.
    """

    name: ClassVar[str] = "hasty"
    paper: ClassVar[str] = "Nobody 2031, On Haste"

    haste: float = 0.125


def test_a_method_that_is_added_appears(load: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "hasty", Hasty)
    section = load("from_code").methods().split("## hasty {: #hasty }")[1]
    assert "Hasty training (Nobody, 2031), Algorithm 7\n" in section
    formula = "min<sub>v</sub> f<sub>k</sub>(v) + haste ‖v − w&#42;‖<sub>1</sub>, with w&#42; from afar."
    assert f"> {formula}\n" in section
    assert "Sends n<sub>k</sub>." in section and "Nobody 2031, On Haste" in section
    assert "| `haste` | `float` | `0.125` |" in section
    assert "| `lr` | `float | ByRound` | `0.1` | [Descent](#descent) |" in section
    assert "    class Hasty(Local):" in section


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("w_k and weight_decay", "w<sub>k</sub> and weight&#95;decay"),
        ("||w - P x||_p^p", "‖w − P x‖<sub>p</sub><sup>p</sup>"),
        ("w <- (1 - beta) w", "w ← (1 − beta) w"),
        ("`f_k ** 2` of x_{k, t}", "`f_k ** 2` of x<sub>k, t</sub>"),
        ("a * b * c [N, d] <em>", "a &#42; b &#42; c &#91;N, d&#93; &lt;em>"),
        ("theta_i and beta_2", "theta<sub>i</sub> and beta<sub>2</sub>"),
        ("j^-1.2", "j<sup>-1.2</sup>"),
        ("of **one** client", "of **one** client"),
    ],
)
def test_formulas_are_set_and_code_is_left_alone(
    load: Callable[[str], ModuleType], text: str, expected: str
) -> None:
    assert load("markdown_text").inline(text) == expected


def test_a_heading_can_be_linked_whatever_its_name(load: Callable[[str], ModuleType]) -> None:
    text = load("markdown_text")
    assert text.heading(2, "fed+") == "## fed+ {: #fedplus }" and text.anchor("lp-proj") == "lp-proj"


def test_arguments_are_told_as_the_docstring_tells_them(load: Callable[[str], ModuleType]) -> None:
    told = load("python_text").arguments(simulate)
    assert told["rounds"] == "the number of communication rounds."
    assert told["chunk"].endswith("Results do not depend on it.")
    assert "out" in told and "progress" in told


def test_the_settings_are_told_as_they_are_declared(load: Callable[[str], ModuleType]) -> None:
    result, how = load("from_code").settings().split("### How it is carried out")
    assert "| `seed` | `0` | a whole number, from 0 to 18446744073709551615 | all draws of the run follow" in result
    assert (
        "| `method` | required |" in result
        and "| `chunk` | `null` | a whole number, 1 or more, or nothing |" in how
    )
    assert result.index("`data`") < result.index("`rounds`") and "`out`" not in result + how


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_a_page_reads_in_the_repository_as_it_stands(load: Callable[[str], ModuleType], page: Path) -> None:
    """No empty placeholder, and nothing behind the code; `python docs/pages.py` writes them."""
    text = page.read_text()
    assert "--8<--" not in text and "-->\n<!-- end -->" not in text
    assert "\n:   " not in text, "a definition list, which a repository does not set"
    assert load("pages").as_it_stands(text) == text
    anchors = re.findall(r'<a id="(.*?)">', text)
    assert len(set(anchors)) == len(anchors), "a link can lead to one place alone"


def test_a_page_in_the_repository_has_no_markup_of_the_site(load: Callable[[str], ModuleType]) -> None:
    plain = load("pages").plain
    folded = '??? note "The code"\n\n    ```python\n    x = 1\n    ```\n\n'
    text = f"## fed+ {{: #fedplus }}\n\nText.\n\n{folded}## next {{: #next }}"
    assert plain(text) == '<a id="fedplus"></a>\n\n## fed+\n\nText.\n\n<a id="next"></a>\n\n## next'
