"""Figures and tables as files: pictures for a paper, tables for a text or another program."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import vl_convert
from altair import SCHEMA_VERSION

from descant.errors import SettingError
from descant.experiment.table import compute_note
from descant.files import claim_folder
from descant.report.page import facts
from descant.report.tables import RULES, Table, inequalities, overview, summary_rows
from descant.written import check_names, write_ours

if TYPE_CHECKING:
    from descant.report.report import Report

_COLUMNS = ("method", "figure", "mean", "spread", "seeds", "collapsed", "equal_compute")  # of a csv
FORMATS = ("html", "png", "svg", "csv", "md", "latex")
_LATEX = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"±": "$\\pm$", "–": "--", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\\": "\\textbackslash{}"}
)


def export(report: Report, folder: Path, format: str) -> list[Path]:
    """Write every figure (png, svg) or table (csv, md, latex) of a report into a folder; the files written.

    Files of earlier exports are replaced, unless somebody changed them since, and nobody else's.
    """
    if folder.exists() and not folder.is_dir():
        raise SettingError(f"'{folder}' is a file: name a folder for the files of format {format}")
    claim_folder(folder)
    contents = dict(_pictures(report, format) if format in ("png", "svg") else _tables(report, format))
    check_names(folder, contents)
    write_ours(folder, {name: text.encode() if isinstance(text, str) else text for name, text in contents.items()})
    return [folder / name for name in contents]


def _pictures(report: Report, format: str) -> Iterable[tuple[str, bytes | str]]:
    version = ".".join(SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    for key, figures in report.figures.items():
        for figure in figures:
            spec = figure.chart.to_dict()
            name = re.sub(r"[^\w.+-]+", "-", f"{key}-{figure.key}.{format}")  # a metric may have any name
            if format == "svg":
                yield name, vl_convert.vegalite_to_svg(spec, vl_version=version)
            else:
                yield name, vl_convert.vegalite_to_png(spec, vl_version=version, scale=2)


def _tables(report: Report, format: str) -> Iterable[tuple[str, str]]:
    for experiment in report.experiments:
        found = summary_rows(experiment, report.first)
        if format == "csv":  # every figure, one a line: for programs
            alike = "no" if compute_note(found) else "yes"
            lines = [
                (row.label, name, row.mean[name], spread, row.seeds, row.collapsed, alike)
                for row in found
                for name in row.mean
                for spread in (row.spread[name] if row.seeds > 1 else None,)
            ]
            yield f"{experiment.key}.csv", _csv([_COLUMNS, *lines])
            continue
        unlike = inequalities(experiment, found)
        for rule in RULES:
            if any(f"{experiment.model}.round@{rule}" in row.mean for row in found):
                table = overview(experiment, found, rule, full=True)
                configs = (run.config for entry in experiment.entries for run in entry.runs)
                about = f"{experiment.title}: {facts(*configs)}"
                table = replace(table, caption=" ".join([about, table.caption, *unlike]))
                text = _markdown(table) if format == "md" else _latex(table)
                yield f"{experiment.key}-{rule}.{'md' if format == 'md' else 'tex'}", text


def _csv(lines: Iterable[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _markdown(table: Table) -> str:
    lines = [table.columns, ("---", *("---:" for _ in table.columns[1:]))]
    lines += [tuple(cell.text.replace("|", "\\|") for cell in row) for row in table.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + f"\n\n{table.caption}\n"


def _latex(table: Table) -> str:
    """A booktabs table."""
    lines = [" & ".join(text.translate(_LATEX) for text in table.columns) + " \\\\", "\\midrule"]
    lines += [" & ".join(cell.text.translate(_LATEX) for cell in row) + " \\\\" for row in table.rows]
    head = ["\\begin{table}", f"\\caption{{{table.caption.translate(_LATEX)}}}"]
    head += [f"\\begin{{tabular}}{{l{'r' * (len(table.columns) - 1)}}}", "\\toprule"]
    return "\n".join([*head, *lines, "\\bottomrule", "\\end{tabular}", "\\end{table}", ""])
