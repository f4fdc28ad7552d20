"""The page on attacks: the papers' figures are theirs, and every figure has its command."""

from __future__ import annotations

from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "robustness.md").read_text()

# lp-proj (JMLR 2024), Tables 6 to 9, rows Synthetic(0, 0): test accuracy and variance, a star where it collapses.
# Global+Mean, +Median and +Krum are FedAvg here.
TABLES: dict[str, tuple[str, dict[str, list[str]]]] = {
    "6": (
        "Same value",
        {
            "lp-proj-1": [".880 (.011)", ".884 (.012)", ".869 (.010)"],
            "lp-proj-2": [".873 (.012)", ".875 (.014)", ".858 (.012)"],
            "RSA": [".879 (.011)", ".885 (.012)", ".863 (.008)"],
            "Ditto": [".851 (.020)", ".855 (.017)", ".837 (.014)"],
            "FedAvg": [".485 (.161)", ".462 (.169)", ".446 (.166)"],
            "FedAvg, median": [".604 (.121)", ".434 (.156)", ".471 (.155)"],
            "FedAvg, Krum": [".318 (.133)", ".298 (.131)", ".285 (.122)"],
        },
    ),
    "7": (
        "Sign flip",
        {
            "lp-proj-1": [".885 (.010)", ".885 (.010)", ".863 (.010)"],
            "lp-proj-2": [".884 (.010)", "★", "★"],
            "RSA": [".834 (.022)", ".881 (.012)", ".848 (.011)"],
            "Ditto": [".850 (.017)", "★", "★"],
            "FedAvg": [".324 (.130)", "★", "★"],
            "FedAvg, median": [".425 (.139)", ".192 (.087)", "★"],
            "FedAvg, Krum": [".308 (.157)", ".281 (.134)", "★"],
        },
    ),
    "8": (
        "Gaussian",
        {
            "lp-proj-1": [".880 (.011)", ".885 (.011)", ".862 (.009)"],
            "lp-proj-2": [".846 (.020)", ".861 (.018)", ".844 (.011)"],
            "RSA": [".851 (.018)", ".868 (.017)", ".837 (.015)"],
            "Ditto": [".674 (.056)", ".722 (.045)", ".710 (.047)"],
            "FedAvg": [".173 (.080)", ".189 (.082)", ".246 (.102)"],
            "FedAvg, median": [".143 (.071)", ".189 (.083)", ".204 (.091)"],
            "FedAvg, Krum": [".148 (.086)", ".208 (.105)", ".290 (.086)"],
        },
    ),
    "9": (
        "Data poison",
        {
            "lp-proj-1": [".881 (.011)"],
            "lp-proj-2": [".866 (.014)"],
            "RSA": [".875 (.011)"],
            "Ditto": [".342 (.123)"],
            "FedAvg": [".141 (.059)"],
            "FedAvg, median": [".435 (.133)"],
            "FedAvg, Krum": [".300 (.146)"],
        },
    ),
}
CLEAN = {  # Table 6, column Clean
    "lp-proj-1": ".888 (.010)",
    "lp-proj-2": ".887 (.010)",
    "RSA": ".832 (.026)",
    "Ditto": ".857 (.018)",
    "FedAvg": ".772 (.044)",
    "FedAvg, median": ".519 (.140)",
    "FedAvg, Krum": ".235 (.109)",
}


def rows(heading: str) -> tuple[list[str], dict[str, list[str]]]:
    """The columns and the rows of the table under a heading, by their first cell."""
    text = PAGE.partition(f"### {heading}\n")[2].partition("\n##")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "
    ]
    return lines[0][1:], {name: cells for name, *cells in lines[1:]}


@pytest.mark.parametrize("number", TABLES)
def test_the_figures_of_lp_projs_tables(number: str) -> None:
    heading, expected = TABLES[number]
    columns, found = rows(heading)
    theirs = [i for i, head in enumerate(columns) if head.endswith(f"Table {number}")]
    assert {name: [found[name][i] for i in theirs] for name in expected} == expected


def test_the_figures_without_attackers() -> None:
    columns, found = rows("Nobody attacks")
    place = columns.index("Table 6, Clean")
    assert {name: found[name][place] for name in CLEAN} == CLEAN


def test_the_figures_have_their_commands() -> None:
    part = PAGE.partition("## lp-proj's Tables 6 to 9")[2]
    assert "descant robustness examples/papers/lp-proj-attacks.yaml" in part
    assert "--set nonfinite=drop" in part and "--round best-on-test" in part


def test_who_collapses_under_sign_flip_is_said_as_the_table_shows_it() -> None:
    columns, found = rows("Sign flip")
    ours = [i for i, head in enumerate(columns) if head.endswith("ours")]
    fallen = {(name, i) for name, cells in found.items() for i in ours if "★" in cells[i]}
    theirs = {(name, i) for name in TABLES["7"][1] for i in ours if "★" in found[name][i + 1]}
    assert fallen == theirs and len(fallen) == 8 and "13 that stand and 8 that fall" in PAGE
    _, both = rows("Kept or dropped")
    for name, rounds in {"lp-proj-1": ("91", "52"), "RSA": ("88", "52")}.items():
        kept, dropped = both[name][::2], both[name][1::2]
        assert not any("★" in cell for cell in kept) and dropped == [f"★ {round}" for round in rounds]
        assert f"{name} in rounds {rounds[0]} and {rounds[1]}" in PAGE
