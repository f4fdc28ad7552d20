"""Callbacks are told what happens, may stop a run, and never spoil what was committed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import descant as dc
from descant.callbacks import Callback, Stop
from descant.engine import RoundRecord
from descant.errors import SettingError
from descant.experiment import unfinished
from descant.report import Report
from descant.report.tables import notices, summary_rows

DATA = dc.data.synthetic(clients=5, samples=30, dim=4, classes=3)


def simulate(*callbacks: Any, **settings: Any) -> dc.Run:
    torch.manual_seed(0)
    how: dict[str, Any] = {"rounds": 4, "mode": "vmap", "method": "ditto"} | settings
    return dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, callbacks=list(callbacks), **how)


def resume(folder: Path, *callbacks: Any) -> dc.Run:
    return dc.resume(folder, dc.Task(torch.nn.Linear(4, 3)), DATA, callbacks=list(callbacks))


class Told(Callback):
    """Writes down what it is told; at `stop` it asks for the end, at `fail` it raises."""

    def __init__(self, stop: tuple[str, int] | None = None, fail: tuple[str, int] | None = None) -> None:
        self.stop, self.fail = stop, fail
        self.calls: list[Any] = []
        self.ended: dc.Run | None = None

    def _hear(self, what: str, round: int) -> Stop | None:
        self.calls.append((what, round))
        if (what, round) == self.fail:
            raise OSError("no room for the log")
        return Stop("enough") if (what, round) == self.stop else None

    def on_start(self, config: dict[str, Any]) -> None:
        self.calls.append(("start", config["rounds"]))

    def on_round(self, record: RoundRecord) -> Stop | None:
        self.sent = record.bytes_up
        return self._hear("round", record.round)

    def on_evaluated(self, round: int, figures: dict[str, float]) -> Stop | None:
        self.figures = figures
        return self._hear("evaluated", round)

    def on_end(self, run: dc.Run) -> None:
        self.calls.append(("end", len(run.history.rounds)))
        self.ended = run

    def on_error(self, error: BaseException) -> None:
        self.calls.append(("error", str(error)))


UNBROKEN = [
    ("start", 4),
    ("evaluated", 0),
    ("round", 1),
    ("round", 2),
    ("evaluated", 2),
    ("round", 3),
    ("round", 4),
    ("evaluated", 4),
    ("end", 4),
]


def test_a_callback_is_told_everything_in_order() -> None:
    told = Told()
    run = simulate(told, evaluate=2)
    assert told.calls == UNBROKEN and told.ended is run
    assert run.stopped is None and run.summary()["stopped_round"] is None
    last = {name: value for name, value in run.summary().items() if name.endswith("@last")}
    assert told.figures == {
        name.removesuffix("@last"): value
        for name, value in last.items()
        if name.count(".") == 2  # MODEL.PART_MEASURE.STATISTIC
    }
    assert told.sent == run.history.rounds[-1]["bytes_up"] > 0


@pytest.mark.few(1)
@pytest.mark.parametrize("asked", [("round", 3), ("evaluated", 2), ("evaluated", 0)])
def test_a_stopped_run_ends_with_its_round_evaluated_and_says_so(asked: tuple[str, int], tmp_path: Path) -> None:
    told = Told(stop=asked)
    run = simulate(told, evaluate=2, out=tmp_path)
    assert run.stopped is not None and (run.stopped.round, run.stopped.why) == (asked[1], "enough")
    assert [row["round"] for row in run.history.rounds] == list(range(1, asked[1] + 1))
    assert max(run.history.evaluated["personal"]) == asked[1], "the last round is an evaluated one"
    assert told.calls[-1] == ("end", asked[1])
    read = dc.load(tmp_path)
    assert read.stopped == run.stopped and not unfinished(tmp_path)
    assert read.summary()["stopped_round"] == asked[1] and read.summary()["stopped_why"] == "enough"
    assert "stopped: enough" in repr(read)


def test_until_it_is_stopped_a_run_is_the_one_that_goes_on() -> None:
    whole, part = simulate(), simulate(Told(stop=("round", 2)))
    assert part.clients.equals(whole.clients.filter(whole.clients["round"] <= 2))


def test_who_asks_to_stop_in_the_last_round_stops_nothing() -> None:
    assert simulate(Told(stop=("evaluated", 4))).stopped is None


def test_the_report_says_that_a_run_was_stopped() -> None:
    [experiment] = Report([simulate(Told(stop=("round", 2)))]).experiments
    assert "ditto, seed 0, was stopped after round 2 of 4: enough." in notices(experiment, summary_rows(experiment))


@pytest.mark.few(1)
@pytest.mark.parametrize("fail", [("round", 3), ("evaluated", 2), ("evaluated", 3)])
def test_an_error_in_a_callback_ends_the_run_and_it_can_be_resumed(fail: tuple[str, int], tmp_path: Path) -> None:
    other, failing = Told(), Told(fail=fail)
    with pytest.raises(OSError, match="no room for the log") as caught:
        simulate(other, failing, commit=1, out=tmp_path / "broken")
    note, run = caught.value.__notes__
    assert run.startswith("in the run of")
    assert "callback Told" in note and str(tmp_path / "broken") in note
    assert other.calls[-1] == failing.calls[-1] == ("error", "no room for the log")
    assert unfinished(tmp_path / "broken")
    again = Told()
    resumed, unbroken = resume(tmp_path / "broken", again), simulate(out=tmp_path / "unbroken")
    assert resumed.clients.equals(unbroken.clients)
    assert again.calls == [("start", 4), ("evaluated", 0), *_both(1), *_both(2), *_both(3), *_both(4), ("end", 4)]


def _both(round: int) -> list[tuple[str, int]]:
    return [("round", round), ("evaluated", round)]


def test_a_callback_that_has_asked_to_stop_is_heard_again_when_the_run_is_resumed(tmp_path: Path) -> None:
    """Killed between the request and the end: told the same again, it asks again."""
    with pytest.raises(OSError):
        simulate(Told(stop=("round", 2)), Told(fail=("round", 2)), commit=1, out=tmp_path)
    run = resume(tmp_path, Told(stop=("round", 2)))
    assert run.stopped is not None and run.stopped.round == 2 and len(run.history.rounds) == 2


def test_without_the_callback_a_resumed_run_goes_on_to_its_end(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        simulate(Told(stop=("round", 2)), Told(fail=("round", 2)), commit=1, out=tmp_path)
    assert resume(tmp_path).stopped is None and len(dc.load(tmp_path).history.rounds) == 4


def test_a_callback_cannot_change_the_settings_of_a_run() -> None:
    class Meddler(Callback):
        def on_start(self, config: dict[str, Any]) -> None:
            config["method"]["name"] = "mine"

    assert simulate(Meddler()).config["method"]["name"] == "ditto"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (3, r"callbacks = 3: it must be a list of callbacks"),
        ([print], r"callbacks\[0\] = .*: it must be an object of a class made from descant\.callbacks\.Callback"),
        ([Told], r"callbacks\[0\] = Told: it is a class; make an object of it, as in Told\(\)"),
    ],
)
def test_what_is_no_callback_is_refused(given: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, "local", rounds=1, callbacks=given)


def test_one_callback_may_stand_alone() -> None:
    told = Told()
    dc.simulate(dc.Task(torch.nn.Linear(4, 3)), DATA, "local", rounds=1, mode="vmap", callbacks=told)
    assert told.calls[-1] == ("end", 1)


def test_only_a_stop_stops() -> None:
    class Vague(Callback):
        def on_round(self, record: RoundRecord) -> Any:
            return True

    with pytest.raises(SettingError, match=r"callback Vague returned True: .* descant\.callbacks\.Stop\('why'\)"):
        simulate(Vague())
