"""Kinds of values that a setting may have, beyond what the tests of `simulate` try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from descant.aggregators import GeometricMedian, Mean
from descant.errors import SettingError
from descant.experiment.allowed import HowMany
from descant.experiment.parts import Parts


@pytest.mark.parametrize(
    ("value", "found"),
    [(0, 0), (3, 3), (0.0, 0.0), (0.25, 0.25), (1.0, 1.0), ([], ()), ([2, 5], (2, 5)), ((np.int64(4),), (4,))],
)
def test_some_clients_are_a_number_a_fraction_or_a_list(value: Any, found: Any) -> None:
    allowed = HowMany(0, listed=True)
    assert (checked := allowed.check("malicious", value)) == found and type(checked) is type(found)
    assert allowed.check("malicious", allowed.plain(checked)) == found


@pytest.mark.parametrize("value", [-1, 1.5, -0.1, True, None, "2", "0", [1, 1], [-1], [0.5], [True], float("nan")])
def test_other_values_are_not(value: Any) -> None:
    with pytest.raises(SettingError, match=r"malicious = .*: it must be .*, a list of different clients' numbers"):
        HowMany(0, listed=True).check("malicious", value)


def test_several_parts_are_a_list_and_one_may_stand_alone() -> None:
    allowed = Parts("aggregators")
    both = allowed.check("combine", ["mean", {"name": "geometric-median", "cap": 7}])
    assert both == (Mean(), GeometricMedian(cap=7)) and allowed.check("combine", ()) == ()
    assert allowed.check("combine", "mean") == allowed.check("combine", Mean()) == (Mean(),)
    assert allowed.check("combine", allowed.plain(both)) == both
    assert allowed.brief(both) == [{"name": "mean"}, {"name": "geometric-median", "cap": 7}]
    with pytest.raises(SettingError, match=r"combine\[1\]\.cap = 0: it must be a positive number"):
        allowed.check("combine", ["mean", {"name": "geometric-median", "cap": 0}])
