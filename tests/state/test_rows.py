"""The kernel that moves rows, step by step on a CPU, where Triton is installed. On a GPU: tests/gpu."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.interpreted import marks, outside, run_of, within
from tests.moving import DTYPES, Moved, moved

pytestmark = marks


@outside
def test_the_kernel_holds_step_by_step() -> None:
    done = run_of(__file__)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.startswith("s.....")  # all but this one ran


@pytest.fixture(params=[(16, 2**14), (3, 2**8)], ids=["as it is", "small tiles"])
def rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The kernel as it is, and with so small tiles that every program has many."""
    from descant.state import rows

    programs, tile = request.param
    monkeypatch.setattr(rows, "_PROGRAMS", programs)
    monkeypatch.setattr(rows, "_TILE", tile)
    return rows


@within
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moved(longest=200))
def test_rows_are_moved_and_no_others(rows: ModuleType, given: Moved) -> None:
    given.check(rows, "cpu")


@within
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [2047, 2048, 5001])
def test_rows_that_are_longer_than_a_tile(rows: ModuleType, dtype: torch.dtype, length: int) -> None:
    Moved(dtype, (length,), 4, [2, 0, 3], 1, 3).check(rows, "cpu")


@within
def test_many_short_rows(rows: ModuleType) -> None:
    Moved(torch.float32, (), 3000, list(range(2999, 0, -2)), 0, 0).check(rows, "cpu")


@within
def test_nobody_and_nothing(rows: ModuleType) -> None:
    Moved(torch.float32, (3,), 4, [], 0, 0).check(rows, "cpu")
    Moved(torch.float32, (0,), 4, [2, 1], 0, 0).check(rows, "cpu")
    assert rows.arrives(torch.empty(4, 0), torch.device("cpu"))


@within
def test_rows_that_do_not_lie_together_are_refused(rows: ModuleType) -> None:
    apart = torch.zeros(6, 4)[:, ::2]
    with pytest.raises(RuntimeError, match="view"):  # a copy of them would be written
        rows.scatter(torch.zeros(2, 2), apart, torch.tensor([0, 3]))


@within
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("broken", [None, "gather", "scatter"])
def test_rows_that_do_not_arrive_are_seen(
    rows: ModuleType, dtype: torch.dtype, broken: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broken is not None:
        monkeypatch.setattr(rows, broken, lambda *given: None)
    some = torch.zeros(3, 5, dtype=dtype)
    assert rows.arrives(some, torch.device("cpu")) == (broken is None)
    assert not some[1:].any()
