"""What came out under attack: worst cases by brute force, and collapses."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descant.errors import SettingError
from descant.experiment.attackgrid import CLEAN, NONE, Place
from descant.experiment.outcomes import Outcome, outcomes, outcomes_frame, worst_cases

METHODS, ATTACKS, FRACTIONS = ("a", "b"), (CLEAN, "x", "y", "z"), (0.2, 0.5)


def outcome(place: Place, mean: float = 0.5, collapsed: tuple[int, ...] = (), seeds: int = 3) -> Outcome:
    mean = nan if collapsed else mean
    return Outcome(place, seeds, 1, collapsed, mean, 0.01, mean, mean, nan if collapsed else 0.02, 7.0)


@st.composite
def tables(draw: st.DrawFn) -> list[Outcome]:
    found = []
    for method in METHODS:
        for attack in ATTACKS:
            for fraction in FRACTIONS:
                for assumed in (None, 0.1):
                    place = Place(method, attack, fraction, assumed)
                    mean = draw(st.sampled_from([nan, *np.linspace(0, 1, 9).tolist()]))
                    rounds = tuple(sorted(draw(st.lists(st.integers(1, 9), max_size=2))))
                    if draw(st.booleans()):
                        found.append(outcome(place, mean, rounds))
    return found


@given(tables(), st.booleans())
def test_the_worst_attack_is_the_one_that_no_other_is_worse_than(found: list[Outcome], higher: bool) -> None:
    worst = worst_cases(found, higher)
    for method in METHODS:
        for fraction in FRACTIONS:
            rivals = [o for o in found if (o.place.method, o.place.fraction) == (method, fraction)]
            rivals = [o for o in rivals if o.place.attack != CLEAN and o.place.assumed is None]
            rivals = [o for o in rivals if o.collapsed or isfinite(o.mean)]
            if not rivals:
                assert (method, fraction) not in worst
                continue
            chosen = worst[method, fraction]
            assert chosen in rivals
            if gone := [o for o in rivals if o.collapsed]:
                assert chosen.collapsed[0] == min(o.collapsed[0] for o in gone)
            else:
                means = [o.mean for o in rivals]
                assert chosen.mean == (min(means) if higher else max(means))
    assert len(worst) <= len(METHODS) * len(FRACTIONS)


def test_a_collapse_is_a_star_with_its_round_and_has_no_figure() -> None:
    at = Place("a", "x", 0.5)
    assert outcome(at, collapsed=(83,), seeds=1).text == "★ 83"
    assert outcome(at, collapsed=(76, 80, 83)).text == "★ 76–83"
    assert outcome(at, collapsed=(83,)).text == "★ 83 (1 of 3)"
    assert outcome(at, 0.885).text == "0.885 ±0.010 (0.020)" and outcome(at, 0.885, seeds=1).text == "0.885 (0.020)"
    assert outcome(at, nan).text == "–"
    frame = outcomes_frame([outcome(at, collapsed=(76, 83)), outcome(at, 0.885)], "accuracy")
    assert frame["collapsed"].to_list() == [2, 0] and frame["collapsed_round"].to_list() == [76, None]
    assert frame["test_accuracy"].to_list() == [None, 0.885] and frame["variance"].to_list() == [None, 0.02]


def test_nothing_attacks_what_sends_nothing() -> None:
    found = [replace(outcome(Place("a", attack, 0.5)), mute=True) for attack in ("x", "y")]
    (worst,) = worst_cases(found).values()
    assert worst == replace(found[0], place=Place("a", NONE, 0.5))


def test_a_table_needs_a_run() -> None:
    with pytest.raises(SettingError, match="at least one run"):
        outcomes({})
