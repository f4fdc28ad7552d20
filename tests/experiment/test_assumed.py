"""What defences are told to assume: never more than they survive."""

from __future__ import annotations

import pytest

from descant.errors import SettingError
from descant.experiment.attackgrid import AttackGrid, attack_grid

DATA = {"name": "synthetic", "clients": 10, "samples": 20, "dim": 3, "classes": 3}


def small(aggregator: object, assumed: object, **more: object) -> AttackGrid:
    """FedAvg among ten clients, with a defence that assumes something."""
    methods = {"defended": {"name": "fedavg", "steps": 1, "run": {"aggregator": aggregator}}}
    values = {"data": DATA, "attacks": ["sign-flip"], "fractions": [0.2], "rounds": 1, "seeds": 2}
    return attack_grid(values | {"methods": methods, "assumed": assumed} | more)


@pytest.mark.parametrize(
    ("aggregator", "most"),
    [
        ("krum", 3),  # 2f + 3 of 10 messages
        ("trimmed-mean", 4),
        ("bulyan", 1),
        (["nnm", "trimmed-mean"], 4),
        ([{"name": "bucketing", "size": 2}, "trimmed-mean"], 2),  # of the five that are left
        ([{"name": "k-norm"}, "krum"], 2),  # k-norm leaves eight, and Krum of these at most two
        ({"name": "krum", "convention": "lp-proj"}, 9),
    ],
)
def test_a_number_beyond_what_a_defence_survives_is_refused_before_anything_runs(
    aggregator: object, most: int
) -> None:
    small(aggregator, [most]).grid.check()
    told = f"assumed = {most + 1}: it must be .* at most, since '.*' of 'defended' survives no more than"
    with pytest.raises(SettingError, match=told):
        small(aggregator, [most + 1]).grid.check()


def test_a_share_is_refused_where_rounding_lifts_it_beyond_what_is_survived() -> None:
    small("krum", [0.3]).grid.check()
    with pytest.raises(SettingError, match=r"assumed = 0\.4: it must be 0\.3 at most.* 3 of 10 messages"):
        small("krum", [0.4]).grid.check()
    with pytest.raises(SettingError, match=r"assumed = 0\.3: it must be 0\.2 at most.* 1 of 5 messages"):
        small("krum", [0.3], cohort=5).grid.check()


def test_what_the_defence_itself_says_and_the_truth_are_not_refused() -> None:
    small({"name": "krum", "f": 9}, True).grid.check()
    small({"name": "krum", "f": 9}, [1]).grid.check()
