"""`descant robustness`: methods under attack, as tables on a terminal and as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from descant.cli import options
from descant.cli.console import out

if TYPE_CHECKING:
    from rich.console import Console

    from descant.report.robust import RobustReport


def robustness(
    file: options.File,
    set: options.Set = None,
    folder: options.GridFolder = None,
    round: options.WhichRound = options.Rule.CHOSEN,
    first: options.First = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run methods under attacks by shares of the clients, as FILE.yaml says; print tables, and write a page.

    The file has what that of a comparison has, and `attacks` (labels with what the setting attacks of a run takes)
    and `fractions` (of the clients, below 1; 0 is run once for all attacks); with `assumed`, what defences take
    the number of attackers to be. Tables are of the benign clients; each method's worst attack comes last. They
    are left in the grid's folder too: robustness.csv, robustness.parquet, and the page robustness.html.

    Runs that are finished already are read, not run again, and one that was interrupted is gone on with. The same
    command may run several times at once, and leaves out damaged runs, as `descant compare`.
    """
    from descant.cli.events import emit
    from descant.experiment.attackgrid import attack_grid
    from descant.experiment.settings import read_settings
    from descant.report.robust import RobustReport
    from descant.robust import Robustness, check_files

    where = options.grid_folder(folder, file)
    check_files(where)  # before anything runs
    grid, rule = attack_grid(read_settings(file, set), where), round.asked
    results = options.carried_out(grid.grid, first, quiet, as_json)
    found = Robustness(grid.placed(results))
    written = found.save(where, rule=rule, first=first)
    if as_json:
        for line in found.table(rule, first).to_dicts():
            emit({"event": "robustness"} | line)
        for line in found.worst(rule, first).to_dicts():
            emit({"event": "worst"} | line)
    else:
        print_robustness(RobustReport(found.runs, None, rule, first), out)
        out.print(f"The runs are in {where}, with {', '.join(path.name for path in written)}", soft_wrap=True)
    options.end_whole(grid.grid, results)


def print_robustness(report: RobustReport, console: Console) -> None:
    """Print a table an attack, what defences assume against what is true, and the worst case of every method."""
    from descant.cli.fit import Column, print_fitted

    for title, table in (report.attack_tables | report.assumed_tables | report.worst_tables).items():
        columns = [
            Column(head, [row[i].text for row in table.rows], rank=i if i > 1 else 0)
            for i, head in enumerate(table.columns)
            if i
        ]
        print_fitted(console, table.columns[0], [row[0].text for row in table.rows], columns, title=title)
    console.print(f"Figures are the {report.said()}", markup=False)
    for line in (report.verdict(), *report.notices()):
        if line:
            console.print(line, markup=False)
