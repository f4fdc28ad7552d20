"""The figures that a comparison will have are known by name before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from descant.errors import SettingError
from descant.experiment.grid import comparison
from descant.experiment.promised import promised_figures, refuse_unknown_figures
from tests.bad_input.calling import COMPARISON, descant

ACCURACY = "personal.test_accuracy.mean@last"


def values(**changes: Any) -> dict[str, Any]:
    data = {"name": "synthetic", "clients": 6, "samples": 30, "dim": 4, "classes": 3}
    methods = {"alone": {"name": "local", "steps": 1}, "Ditto": {"name": "ditto", "steps": 1}}
    return {"data": data, "methods": methods, "rounds": 1} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"evaluate": {"models": ["personal", "shared", "selected"]}},
        {"evaluate": {"parts": ["train", "test"]}},
        {"attacks": "sign-flip", "malicious": 0.3},
        {"attacks": "backdoor", "malicious": 0.3},
        {"newcomers": 2, "methods": {"Averaged": {"name": "fedavg", "steps": 1}}},
        {"metric": "f1"},
    ],
    ids=str,
)
def test_what_is_promised_is_what_a_run_has(changes: dict[str, Any]) -> None:
    grid = comparison(values(**changes))
    for cell, run in grid.run():
        assert promised_figures(grid.ready(cell)) == list(run.summary())


def test_a_name_that_no_run_will_have_is_refused_before_the_first(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(COMPARISON)
    done = descant("compare", "two.yaml", "--figure", "personal.test_acuracy.mean@last", cwd=tmp_path)
    assert done.status == 2 and "Traceback" not in done.err
    assert f"Did you mean '{ACCURACY}'?" in done.err and "... (247 in all)" in done.err
    assert not (tmp_path / "runs").exists()
    asked = ("--figure", "shared.test_loss.mean@last", "--figure", "bytes_up")  # the first is Ditto's alone
    assert descant("compare", "two.yaml", *asked, cwd=tmp_path).status == 0


def test_of_finished_runs_the_figures_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list(comparison(values(), tmp_path).run())

    def refuse(*_: Any) -> None:
        raise AssertionError("a finished cell was made ready")

    grid = comparison(values(), tmp_path)
    monkeypatch.setattr(type(grid), "ready", refuse)
    refuse_unknown_figures(grid, [ACCURACY, "shared.test_accuracy.mean@last"])
    with pytest.raises(SettingError, match="there is no figure called 'nope'"):
        refuse_unknown_figures(grid, [ACCURACY, "nope"])
