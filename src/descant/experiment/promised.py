"""The figures that runs will have, by name: known before anything is run."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from descant.attacks import Attack
from descant.engine.evaluation import evaluated_models
from descant.errors import DamagedError, unknown
from descant.experiment.cells import Cell
from descant.experiment.grid import Grid
from descant.experiment.history import AT_EVALUATION, SPENT, SUCCESS
from descant.experiment.journal import finished
from descant.experiment.ready import Ready, history_of
from descant.experiment.run import Run


def refuse_unknown_figures(grid: Grid, names: Iterable[str]) -> None:
    """Refuse a figure that no run of the grid will have, before any is run."""
    missing, known, asked = dict.fromkeys(names), dict[str, None](), []
    for cell in grid.cells:
        if not missing:
            return
        if (told := cell.apart_from_seed()) in asked:  # the seed does not name figures
            continue
        asked.append(told)
        known |= dict.fromkeys(_figures(grid, cell))
        missing = {name: None for name in missing if name not in known}
    for name in missing:
        raise unknown("figure", name, known)


def _figures(grid: Grid, cell: Cell) -> Iterable[str]:
    """The figures of a cell: of its run, where it is finished, and else those that it promises."""
    if grid.folder is not None and finished(grid.folder / cell.key):
        try:
            return Run.load(grid.folder / cell.key).summary()
        except DamagedError:
            return ()  # it is left out when its turn comes
    return promised_figures(grid.ready(cell))


def promised_figures(run: Ready) -> list[str]:
    """The names in `Run.summary` of a run that goes well: they are read off a history with a 0 for every figure."""
    history, wanted = history_of(run), run.plan.evaluation
    none = np.zeros(len(history.federation.names))
    columns = [f"{part}_{measure}" for measure in ("loss", history.metric) for part in wanted.parts]
    if "test" in wanted.parts and any(type(attack).probe is not Attack.probe for attack in run.plan.attacks):
        columns.append(f"test_{SUCCESS}")
    history.spent[0] = dict.fromkeys((*SPENT, *AT_EVALUATION), none.astype(np.int64))
    history.evaluated = {model: {0: dict.fromkeys(columns, none)} for model in evaluated_models(wanted, run.method)}
    return list(history.summary())
