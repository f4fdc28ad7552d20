"""The page of findings: the papers' figures are theirs, and what `descant theory` is said to print it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from descant.theory.checks import CHECKS, Agreement, Claim

PAGE = (Path(__file__).parents[2] / "docs" / "findings.md").read_text()
THEORY = PAGE.partition("## What the papers' theory says")[2]

# lp-proj (JMLR 2024), Table 4: test accuracy and train loss.
MNIST = {
    "lp-proj-1": (".9822", ".0101"),
    "lp-proj-2": (".9825", ".0060"),
    "local, 1 step": (".9822", ".0204"),
    "Ditto": (".9863", ".0266"),
    "pFedMe": (".9824", ".0511"),
    "RSA": (".9809", ".0829"),
    "FedAvg": (".9416", ".2099"),
}
FASHION = {
    "lp-proj-1": ".9752",
    "lp-proj-2": ".9749",
    "local, 1 step": ".9748",
    "Ditto": ".9770",
    "pFedMe": ".9729",
    "RSA": ".9605",
    "FedAvg": ".9694",
}
SYNTHETIC = {
    "lp-proj-1": ".8868, .0769",
    "lp-proj-2": ".8867, .0818",
    "Ditto": ".8569, .3500",
    "pFedMe": ".8580, .3542",
    "FedAvg": ".7714, .7988",
    "local": ".8665, .2522",
}
# FLAME, Table III: MNIST '# label=2', MNIST 'Dir(0.5)', hybrid skew MNIST, hybrid skew FMNIST.
FLAME = {
    "FLAME-PM": (".9835", ".9523", ".9456", ".8989"),
    "FLAME-GM": (".7984", ".9333", ".9129", ".8315"),
    "FLAME-HM": (".9835", ".9523", ".9494", ".9046"),
    "pFedMe-PM, eta = 0.1": (".9791", ".9245", ".9264", ".8753"),
    "pFedMe-GM, eta = 0.1": (".7423", ".8875", ".8762", ".7840"),
    "Ditto-PM, one global step a round": (".9783", ".9122", ".9269", ".8738"),
    "Ditto-GM, the same": (".4782", ".7997", ".8709", ".7524"),
}


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by their first cell, without emphasis; the first of a name counts."""
    text = PAGE.partition(f"## {heading}")[2].partition("\n## ")[0]
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("| "):
            first, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
            found.setdefault(first, cells)
    return found


def test_the_figures_of_lp_projs_table_4() -> None:
    rows = table("lp-proj's Table 4")
    assert {name: (rows[name][1], rows[name][4]) for name in MNIST} == MNIST
    assert {name: rows[name][6] for name in FASHION} == FASHION
    synthetic = table("lp-proj on synthetic(0, 0)")
    assert {name: synthetic[name][5] for name in SYNTHETIC} == SYNTHETIC


def test_the_figures_of_flames_table_3() -> None:
    rows = table("FLAME's Table III")
    said = {name: tuple(re.search(r"\((?:paper )?(\.\d+)\)", cell)[1] for cell in rows[name][:4]) for name in FLAME}  # type: ignore[index]
    assert said == FLAME


@pytest.fixture(scope="module")
def printed() -> list[Agreement | Claim]:
    return [finding for check in CHECKS.values() for finding in check(2000, 0)]  # the defaults of `descant theory`


@pytest.mark.slow
def test_descant_theory_prints_every_figure_that_the_page_has_from_it(printed: list[Agreement | Claim]) -> None:
    claims = [finding for finding in printed if isinstance(finding, Claim)]
    known = set(re.findall(r"\d[\d.,]*\d|\d", " ".join(f"{c.statement} {c.where} {c.numbers}" for c in claims)))
    known |= {str(len(claims)), str(len(printed) - len(claims))}
    said = re.findall(r"(?<![A-Za-z₁(])\d[\d.,]*\d(?:e-\d)?%?", re.sub(r"`[^`]*`|\(\d+\)", "", THEORY))
    assert len(said) > 20
    missing = [number for number in said if number.removesuffix("%") not in known and "e-" not in number]
    assert not missing


@pytest.mark.slow
def test_the_page_counts_and_names_what_does_not_hold(printed: list[Agreement | Claim]) -> None:
    fail = [c for c in printed if isinstance(c, Claim) and not c.holds and c.repeats is None]
    results = {(c.paper, c.where) for c in fail if c.kind == "result"}
    assert results == {
        ("Ditto", "3.3, point estimation, attacked"),
        ("Ditto", "Figure 1, attacked"),
        ("FLAME", "Proposition 3"),
    }
    assert "**Three results do not hold" in THEORY and "in ten places" in THEORY
    assert len({(c.paper, c.where) for c in fail if c.kind == "formula"}) == 10
    assert sum(c.kind == "question" for c in fail) == 3


def test_every_block_of_figures_has_its_command() -> None:
    for part in PAGE.split("\n## ")[1:]:
        if "|---|" in part or part.startswith("What the papers"):
            assert "```sh\ndescant " in part, part[:60]
