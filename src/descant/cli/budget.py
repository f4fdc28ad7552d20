"""`descant budget`: what methods reach within a budget of bytes, and what they spend to reach a target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from descant.cli import options
from descant.cli.console import out

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from descant.experiment.budget import Goals

_TABLE = "budget.csv"


def budget(
    file: options.File,
    set: options.Set = None,
    folder: options.GridFolder = None,
    budgets: Annotated[
        list[str] | None, typer.Option("--budget", metavar="BYTES", help="like '300 kB'; may be repeated")
    ] = None,
    targets: Annotated[
        list[str] | None, typer.Option("--target", metavar="METRIC", help="like 0.6; may be repeated")
    ] = None,
    papers: Annotated[
        bool | None,
        typer.Option("--papers/--bytes", help="count as lp-proj's authors do, in numbers; or real bytes"),
    ] = None,
    round: options.WhichRound = options.Rule.CHOSEN,
    first: options.First = 0,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Run a comparison, and print test accuracy within budgets of bytes and the bytes that targets cost.

    The file has what that of a comparison has, and `budgets` (bytes of all clients, up and down) and `targets` (of
    the mean test metric); the options of the same names take their place. Runs that are finished already are read,
    not run again, and damaged ones are left out, as by `descant compare`.

    The table is left in the grid's folder too, as budget.csv. It has the example gradients that a client took until
    the row's round (`examples_per_client`); `equal_compute` is false where methods differ in them for a goal.
    """
    from descant.cli.events import emit
    from descant.comparison import Comparison
    from descant.experiment.budget import Goals, budget_frame, check_parts, check_targets
    from descant.experiment.grid import COMPARED, comparison, refuse_unknown
    from descant.experiment.settings import RunSettings, read_settings
    from descant.task.measures import resolve
    from descant.written import check_names, write_ours

    values = read_settings(file, set)
    own = ("budgets", "targets", "papers")
    refuse_unknown(values, RunSettings, (*COMPARED, *own))
    said = {name: values.pop(name, None) for name in own}
    goals = Goals.of(budgets or said["budgets"], targets or said["targets"], _or(papers, said["papers"]))
    where = options.grid_folder(folder, file)
    check_names(where, [_TABLE])  # before anything runs
    grid = comparison(values, where)
    for cell in grid.cells:
        assert isinstance(cell.settings, RunSettings)
        check_parts(cell.at.get("evaluate", "evaluate"), cell.settings.evaluate.parts)
        check_targets(goals, resolve(cell.settings.loss, cell.settings.metric).metric.name)
    results = options.carried_out(grid, first, quiet, as_json)
    found = Comparison(run for _, run in results)
    frame = budget_frame(found.runs, goals, rule=round.asked, first=first)
    assert grid.folder is not None
    check_names(grid.folder, [_TABLE])  # runs take long: somebody may have written there since
    write_ours(grid.folder, {_TABLE: frame.write_csv().encode()})
    if as_json:
        for line in frame.to_dicts():
            emit({"event": "budget"} | line)
    else:
        print_budget(frame, goals, next(iter(found)).history.metric, out, options.seeds_of(grid))
        out.print(f"The runs are in {grid.folder}; for charts: descant report {grid.folder}", soft_wrap=True)
    options.end_whole(grid, results)


def print_budget(frame: pl.DataFrame, goals: Goals, metric: str, console: Console, asked: int = 0) -> None:
    """Print a row a method and a column a goal; a row of fewer seeds than were `asked` for is marked."""
    import polars as pl

    from descant.cli.fit import Column, print_fitted
    from descant.experiment.table import compute_said, human_bytes, of_fewer, with_spread

    amount = _count if goals.papers else human_bytes
    seeds = dict(frame.select("method", "seeds").iter_rows())
    marks = {method: of_fewer(there, max(asked, *seeds.values())) for method, there in seeds.items()}
    names = [f"{method} ({mark})" if mark else method for method, mark in marks.items()]
    columns, notes = [], {}
    for goal in goals.budgets:
        rows = frame.filter(pl.col("budget") == goal).to_dicts()
        cells = [with_spread(r["value"], r["spread"]) if r["reached"] else "–" for r in rows]
        columns.append(Column(f"{metric} within {amount(goal)}", _marked(cells, rows)))
        notes[f"Within {amount(goal)}"] = compute_said(_spent(rows))
    for target in goals.targets:
        rows = frame.filter(pl.col("target") == target).to_dicts()
        cells = [_cost(row, amount) if row["reached"] else "never" for row in rows]
        columns.append(
            Column(f"{'numbers' if goals.papers else 'bytes'} to {metric} {target:g}", _marked(cells, rows))
        )
        notes[f"To {metric} {target:g}"] = compute_said(_spent(rows))
    print_fitted(console, "method", names, columns)
    if goals.papers:
        console.print(
            "Counted as lp-proj's authors do: numbers of 32 bits of all clients, up and down, and what is reached "
            "in t rounds costs t + 1."
        )
    else:
        console.print("Bytes of all clients, up and down.")
    counted = "" if goals.papers else "; round 0, the untrained model, costs nothing and does not count"
    if goals.targets:
        console.print(
            f"A target is reached in the first evaluated round whose mean test {metric} is as good{counted}."
        )
    if (frame["seeds"] > 1).any():
        console.print("± is the standard deviation over seeds, and '2 of 3' says of how many seeds a figure is.")
    if "–" in (cell for column in columns for cell in column.cells):
        console.print(f"– : no round was evaluated within the budget{counted}.")
    for of, note in notes.items():
        if note:
            console.print(f"{of}: {note[0].lower()}{note[1:]}", markup=False)


def _marked(cells: Sequence[str], rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say of how many seeds a figure is, where it is not of all."""
    return [
        f"{cell} ({row['reached']} of {row['seeds']})" if 0 < row["reached"] < row["seeds"] else cell
        for cell, row in zip(cells, rows, strict=True)
    ]


def _spent(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Example gradients a client until the round of a row, by method."""
    return {row["method"]: row["examples_per_client"] for row in rows if row["reached"]}


def _cost(row: dict[str, Any], amount: Callable[[float], str]) -> str:
    return amount(row["value"]) + (f" ±{amount(row['spread'])}" if row["spread"] is not None else "")


def _count(amount: float) -> str:
    return f"{amount:,.0f}"


def _or(option: bool | None, said: Any) -> Any:
    return option if option is not None else said if said is not None else False
