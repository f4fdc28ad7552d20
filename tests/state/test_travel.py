"""Rows that travel to a device and back: whatever happens in between, they are those that were kept last."""

from __future__ import annotations

from itertools import count

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from descant.state import travel
from descant.state.travel import Travel
from descant.trees import Tree
from tests.state.deferred import GARBAGE, Deferred

N = 7
SPEC = {"v": ((3,), torch.float64), "n": ((), torch.int64)}
ROW = 3 * 8 + 8

some = st.one_of(
    st.lists(st.integers(0, N - 1), min_size=1, max_size=N, unique=True),
    st.tuples(st.integers(0, N - 1), st.integers(1, N)).map(lambda p: list(range(p[0], min(N, sum(p))))),
).map(torch.tensor)  # any clients, and clients one after the other
steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), some),
        st.tuples(st.just("one leaf"), some),
        st.tuples(st.just("keep"), some),
        st.tuples(st.just("ahead"), some, some),
        st.tuples(st.just("work"), some, some),  # take, bring those who are next, keep
        st.tuples(st.just("overwrite"), some),
        st.tuples(st.sampled_from(["time passes", "settle", "make room"])),
    ),
    max_size=25,
)


class Checked:
    """Rows that travel, beside plain ones."""

    def __init__(self, free: int = 10**9, seed: int = 0) -> None:
        self.ways = Deferred(free=free, seed=seed)
        self.travel = Travel(N, SPEC, self.ways)
        self.travel.allocate()
        self.plain = {name: torch.full((N, *shape), GARBAGE, dtype=dtype) for name, (shape, dtype) in SPEC.items()}
        self.known = torch.zeros(N, dtype=torch.bool)
        self.value = count(1)

    def new(self, who: Tensor) -> Tree:
        value = torch.tensor([next(self.value) for _ in who])
        self.plain["v"][who], self.plain["n"][who] = value[:, None].expand(-1, 3).double(), value
        self.known[who] = True
        return {"v": value[:, None].double().expand(-1, 3), "n": value}  # the first lies otherwise than the store's

    def take(self, who: Tensor, *names: str) -> None:
        if self.known[who].any():
            found = self.travel.take(names or list(SPEC), who, self.known[who])
            for name in names or SPEC:
                assert found[name][self.known[who]].equal(self.plain[name][who[self.known[who]]])
                found[name].fill_(-1)  # it is a copy

    def keep(self, who: Tensor) -> None:
        rows = self.new(who)
        self.travel.keep(who, rows)
        rows["n"].fill_(-2)  # nobody knows what becomes of it later

    def ahead(self, who: Tensor, working: Tensor) -> None:
        self.travel.ahead(who, self.known[who], working)

    def step(self, what: str, who: Tensor, then: Tensor) -> None:
        if what == "take":
            self.take(who)
        elif what == "one leaf":
            self.take(who, "n")
        elif what == "keep":
            self.keep(who)
        elif what == "ahead":
            self.ahead(who, then)
        elif what == "work":
            self.take(who)
            self.ahead(then, who)
            self.keep(who)
            self.take(then)
        elif what == "overwrite":
            self.travel.overwrite(who)
            for name, leaf in self.new(who).items():
                self.travel.rows[name][who] = leaf
        elif what == "time passes":
            self.ways.some_time_passes()
        elif what == "make room":
            self.travel.make_room()
        else:
            self.settled()

    def settled(self) -> None:
        self.travel.settle()
        for name, leaf in self.plain.items():
            assert self.travel.rows[name][self.known].equal(leaf[self.known])

    @property
    def on_device(self) -> int:
        sent = sum(len(each.who) for each in self.travel._sent if each.rows)
        return sent + (0 if self.travel._ahead is None else len(self.travel._ahead[1].who))


@settings(max_examples=200)  # of a few milliseconds each
@given(steps, st.integers(0, 99), st.sampled_from([10**9, 40 * ROW, 0]))
def test_what_is_taken_is_what_was_kept_last(steps: list[tuple[str, Tensor, Tensor]], seed: int, free: int) -> None:
    checked = Checked(free, seed)
    nobody = torch.empty(0, dtype=torch.int64)
    for what, *who in steps:
        checked.step(what, *[*who, nobody, nobody][:2])
        assert len(checked.travel._sent) <= travel._LAST
    checked.settled()


def test_who_works_again_at_once_is_not_brought_again() -> None:
    checked, everyone = Checked(), torch.arange(N)
    checked.keep(everyone)
    for _ in range(4):
        checked.take(everyone)
        checked.ahead(everyone, working=everyone)
        checked.keep(everyone)
    assert (checked.ways.brought, checked.ways.sent) == (0, 5 * N)
    checked.settled()


def test_rows_of_the_next_clients_come_while_others_work_and_nothing_is_brought_twice() -> None:
    checked = Checked()
    chunks = [torch.arange(0, 3), torch.arange(3, 6), torch.tensor([6, 1])]
    for who in chunks:
        checked.keep(who)
    before = checked.ways.brought
    for who, then in zip(chunks, [*chunks[1:], chunks[0]], strict=True):
        checked.ahead(then, working=who)
        brought = checked.ways.brought
        checked.keep(who)
        checked.take(then)
        assert checked.ways.brought == brought  # all that was not there came ahead
    assert checked.ways.brought > before


def test_a_cohort_takes_what_the_last_one_left_from_the_device_and_brings_the_others() -> None:
    checked = Checked()
    for who in (
        torch.arange(N),
        torch.tensor([0, 2]),
        torch.tensor([4, 6]),
    ):  # of which the first leaves the device
        checked.keep(who)
    before = checked.ways.brought
    checked.ahead(torch.tensor([1, 4, 5, 6]), working=torch.tensor([5]))
    assert checked.ways.brought - before == 1  # client 1: 5 changes yet, and 4 and 6 are there
    checked.keep(torch.tensor([5]))
    checked.take(torch.tensor([1, 4, 5, 6]))
    assert checked.ways.brought - before == 1


def test_who_is_kept_again_takes_one_place_on_the_device() -> None:
    checked = Checked()
    for who in ([0, 2], [4], [4]):
        checked.keep(torch.tensor(who))
    checked.take(torch.tensor([0, 2]))
    assert checked.ways.brought == 0


@pytest.fixture
def brought() -> Checked:
    """Clients 0 and 2 are next, and their rows were brought."""
    checked = Checked()
    for who in (torch.tensor([0, 2, 4]), torch.tensor([5]), torch.tensor([6])):
        checked.keep(who)
    checked.settled()
    checked.ahead(torch.tensor([0, 2]), working=torch.tensor([6]))
    assert checked.ways.brought == 2
    return checked


def test_rows_that_were_brought_do_not_count_once_they_are_written(brought: Checked) -> None:
    for who in ([2], [4], [6]):  # the last two take the place of the first on the device
        brought.keep(torch.tensor(who))
    brought.take(torch.tensor([0, 2]))


def test_rows_that_were_brought_are_given_away_once(brought: Checked) -> None:
    for _ in range(2):
        brought.take(torch.tensor([0, 2]))


def test_rows_that_are_on_the_device_are_given_as_copies(brought: Checked) -> None:
    brought.keep(torch.tensor([0, 2]))
    for _ in range(2):
        brought.take(torch.tensor([0, 2]))


def test_nothing_reads_rows_that_are_written_to() -> None:
    checked = Checked()
    checked.ways.some_time_passes = lambda: None  # type: ignore[method-assign]
    for who in ([0, 1], [4], [6]):
        checked.keep(torch.tensor(who))
    checked.settled()
    checked.ahead(torch.tensor([0, 1]), working=torch.tensor([6]))  # straight from their place
    assert checked.ways.to.made < len(checked.ways.to.asked)
    checked.step("overwrite", torch.tensor([1]), torch.tensor([]))
    assert checked.ways.to.made == len(checked.ways.to.asked)
    checked.take(torch.tensor([0, 1]))


@pytest.mark.parametrize("cohorts", [([5, 0, 3], [1, 2], [4, 6]), [range(N)] * 3], ids=["others", "everyone"])
def test_two_cohorts_may_be_on_the_way_back_and_nobody_waits_for_them(cohorts: list[list[int]]) -> None:
    checked, back = Checked(), []
    checked.ways.some_time_passes = lambda: None  # type: ignore[method-assign]
    for who in cohorts:
        checked.keep(torch.tensor(who))
        back.append(checked.ways.back.made)
    assert back == [0, 0, len(SPEC)]  # with a third one, the first has to be back
    checked.settled()


@pytest.mark.parametrize("free", [10**9, 0])
def test_rows_on_the_way_back_are_brought_after_they_arrived_and_the_processor_does_not_wait(free: int) -> None:
    checked, who = Checked(free), torch.tensor([5, 0, 3])
    checked.ways.some_time_passes = lambda: None  # type: ignore[method-assign]
    checked.keep(who)
    if free:
        checked.keep(torch.tensor([1]))  # and the next who are kept are the second: of `who` nothing stays then
        checked.ahead(who, working=torch.tensor([2]))
        assert checked.ways.brought == len(who) and checked.ways.back.made == 0
        checked.keep(torch.tensor([2]))
    checked.take(who)
    assert checked.ways.brought == len(who)


def test_without_room_nothing_stays_on_the_device_and_nothing_is_brought_ahead() -> None:
    checked = Checked(free=0)
    for who in (torch.tensor([0, 2]), torch.tensor([4, 6])):
        checked.keep(who)
        checked.ahead(torch.tensor([0, 2]), working=who)
        assert checked.on_device == 0
    checked.take(torch.tensor([0, 2, 4]))


def test_memory_that_ran_short_is_left_to_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = Checked()
    checked.keep(torch.tensor([0, 2]))
    assert checked.travel.make_room() and not checked.travel.make_room()
    checked.keep(torch.tensor([4, 6]))
    checked.ahead(torch.tensor([0, 2]), working=torch.tensor([4, 6]))
    assert checked.on_device == 0
    checked.settled()
    full = Checked()
    plain = torch.empty

    def short(*shape: int, **more: object) -> Tensor:
        if more.get("device") is not None:
            raise torch.OutOfMemoryError
        return plain(*shape, **more)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(torch, "empty", short)
    full.keep(torch.tensor([0, 2]))
    assert full.on_device == 0
    full.settled()


def test_where_rows_could_not_leave_for_want_of_memory_those_before_them_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked, who = Checked(), torch.tensor([0, 2])
    checked.ways.some_time_passes = lambda: None  # type: ignore[method-assign]
    checked.keep(who)

    def short(*given: object, **more: object) -> None:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as patched, pytest.raises(torch.OutOfMemoryError):
        patched.setattr(checked.ways, "scatter", short)
        checked.travel.keep(who, {name: torch.zeros_like(leaf[who]) for name, leaf in checked.plain.items()})
    checked.take(who)
    checked.settled()
