"""What benchmarks/gpu.py makes of the times that it takes. No GPU is needed, and no test asserts a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
import torch

import descant as dc

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def ends(lengths: list[float]) -> list[float]:
    """When rounds of these lengths end, the first at 10."""
    return list(accumulate(lengths, initial=10.0))


@pytest.mark.parametrize(
    ("length", "rounds"),
    [
        (0.01, 33),  # thirty after three that are warm
        (0.2, 19),  # three seconds' worth after these
        (2.0, 6),  # five after the first
    ],
)
def test_a_row_ends_after_its_rounds_or_its_seconds(length: float, rounds: int) -> None:
    from gpu_clock import enough

    marks = ends([length] * 99)
    assert next(n for n in range(1, 99) if enough(marks[:n], rounds=30, seconds=3.0)) == rounds


def test_evaluations_are_in_no_median_round_and_count_for_those_with_evaluation() -> None:
    from gpu_clock import EVERY, Clock

    quick = [
        0.5,
        0.4,
        *(0.3 if r % EVERY == 0 else 0.1 for r in range(3, 33)),
    ]  # evaluations after rounds 10, 20, 30
    clock = Clock(lambda marks: False, ends(quick), [0.2] * 3)
    assert clock.round_seconds == pytest.approx(0.1)
    assert clock.with_evaluation == pytest.approx((30 * 0.1 + 3 * 0.2) / 30)
    slow = Clock(lambda marks: False, ends([2.0] * 5), [1.0])  # which hold none
    assert (slow.round_seconds, slow.with_evaluation) == pytest.approx((2.0, 2.1))


def test_a_run_is_timed_round_by_round_and_every_second_has_its_stage() -> None:
    from gpu_clock import Clock, Spent
    from gpu_rows import ROWS

    row = replace(next(row for row in ROWS if row.key == "logistic"), clients=5, samples=12, steps=1)
    data, spent, clock = row.data(), Spent(), Clock.of_row(rounds=6, seconds=60.0)
    evaluation = dc.Evaluation(every=4, parts=("test",))
    method = row.method(row.steps, row.batch)
    run = dc.simulate(row.model(data), data, method, rounds=99, evaluate=evaluation, callbacks=clock, device="cpu")
    spent.on_run(clock.marks)
    assert len(run.history.rounds) == len(clock.marks) == 9
    assert len(clock.evaluations) == 3  # after rounds 4 and 8, and after the last
    assert list(spent.stages) == ["start and first round", "8 rounds", "end"]
    assert "8 rounds" in str(spent) and min(spent.stages.values()) >= 0


def test_a_whole_run_is_extrapolated_from_a_part_of_its_clients_and_rounds() -> None:
    from gpu_rows import SETUPS

    setups = {setup.key: setup for setup in SETUPS}
    part = replace(setups["blazefl-resnet18"], cohort=100, part=10, rounds=3, of=25, every=5)
    # The start and its round take 7 s, further rounds 2 s each: of all clients 20, and the first 18 beside the 7.
    assert part.extrapolated([17.0, 19.0, 21.0], began=10.0, ended=99.0, evaluation=3.0) == 7 + 18 + 24 * 20 + 5 * 3
    assert "extrapolated from 2 rounds after the first to 10 times as many clients and 25 rounds" in part.means
    all_of_it = replace(part, part=None, rounds=3, of=3)
    assert all_of_it.extrapolated([17.0, 19.0, 21.0], began=10.0, ended=22.0, evaluation=1.0) == 12
    assert all_of_it.means == "measured"


def test_state_goes_back_to_where_it_was() -> None:
    from gpu_store import in_host_memory, share_shown

    from descant.state import store
    from descant.state.streams import Streams

    before = (store._SHARE, Streams.gather, Streams.scatter)
    with in_host_memory() as travelled:
        assert store._SHARE == 0.0
        store.ClientStore(3, lambda who: {"v": torch.zeros(len(who), 2)})  # on the processor nothing travels
    assert (store._SHARE, Streams.gather, Streams.scatter) == before and travelled.times == 0
    assert share_shown(beside=0.015, on_gpu=0.010, copies=0.005) == pytest.approx(1.0)


def test_what_travels_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpu_store import in_host_memory

    from descant.state import store
    from descant.state.streams import Streams
    from tests.state.deferred import Deferred

    ways, streams = Deferred(), Streams.__new__(Streams)
    ways.allocate(7, {"v": ((2,), torch.float32)})
    monkeypatch.setattr(Streams, "gather", lambda self, names, who, after: ways.gather(names, who, after))
    monkeypatch.setattr(Streams, "scatter", lambda self, rows, who, aside: ways.scatter(rows, who, aside))
    with in_host_memory() as travelled:
        Streams.scatter(streams, {"v": torch.zeros(3, 2)}, torch.tensor([6, 0, 3]), aside=True)
        Streams.gather(streams, ["v"], torch.arange(5), None)
    assert store._SHARE > 0
    assert (travelled.row, travelled.times, travelled.back, travelled.to) == (8, 1, 24, 40)


def test_a_row_may_have_a_cohort() -> None:
    from gpu_rows import ROWS

    rows = {row.key: row for row in ROWS}
    assert (rows["ditto"].working, rows["ditto-cohort"].working, rows["ditto-cohort"].clients) == (248, 248, 992)
    assert rows["ditto"].beside and rows["ditto-cohort"].beside
