"""What aggregators survive: attackers as strong as they come, up to the number that each promises."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.aggregators import (
    AGGREGATORS,
    AdaptiveClipping,
    Aggregator,
    Bucketing,
    Bulyan,
    CenteredClipping,
    Chain,
    CoordinateMedian,
    GeometricMedian,
    KNorm,
    Krum,
    Mean,
    MultiKrum,
    NearestNeighborMixing,
    NormClipping,
    TrimmedMean,
)
from tests.aggregators.messages import combined, drawn, mail_of

SURVIVORS: list[tuple[Aggregator, int]] = [  # and the most attackers of 11 that each promises to survive
    (CoordinateMedian(), 5),
    (GeometricMedian(), 5),
    (GeometricMedian(weiszfeld=3, delta=1e-6), 5),
    (TrimmedMean(f=5), 5),
    (Krum(f=4), 4),
    (Krum(f=4, convention="lp-proj"), 4),
    (MultiKrum(f=4), 4),
    (Bulyan(f=2), 2),
    (NormClipping(), 5),
    (AdaptiveClipping(f=5), 5),
    (KNorm(f=5), 5),
    (KNorm(f=10), 10),
    (CenteredClipping(tau=1.0), 11),
    (NormClipping(norm=1.0), 11),
    (Chain(steps=(NearestNeighborMixing(f=4), TrimmedMean(f=4))), 4),
    (Chain(steps=(Bucketing(size=2), CoordinateMedian())), 2),
    (Chain(steps=(AdaptiveClipping(f=4), Krum(f=4))), 4),
]
FINITE_ONLY = (CoordinateMedian, GeometricMedian, CenteredClipping)  # the server drops the rest before these


@pytest.mark.parametrize(("aggregator", "most"), SURVIVORS, ids=lambda v: getattr(v, "name", str(v)))
@pytest.mark.parametrize("sent", [1e30, -1e30, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_result_stays_bounded_up_to_the_promised_number_of_attackers(
    aggregator: Aggregator, most: int, sent: float, dtype: torch.dtype
) -> None:
    last = aggregator.steps[-1] if isinstance(aggregator, Chain) else aggregator
    for f in range(min(most, 10) + 1):
        leaves = {name: leaf.to(dtype) for name, leaf in drawn(11, seed=f).items()}
        honest = {name: leaf[f:] for name, leaf in leaves.items()}
        for leaf in leaves.values():
            leaf[:f] = sent
        if isinstance(aggregator, Chain) and isinstance(aggregator.steps[-1], Krum):
            leaves["matrix"][:f] = 0.0  # what selects looks at the first leaf
        if isinstance(last, FINITE_ONLY):  # what is not finite is dropped on the way to the server, by default
            arrived = mail_of(leaves).finite()
            leaves = {name: leaf[arrived] for name, leaf in leaves.items()}
        for name, value in combined(aggregator, leaves).items():
            bound = 20 * float(honest[name].abs().max())
            assert np.isfinite(value).all() and abs(value).max() <= bound, (f, name)


@pytest.mark.parametrize("aggregator", [Mean(), *(kind() for kind in FINITE_ONLY)], ids=lambda a: a.name)
def test_a_nan_that_is_kept_goes_through_these(aggregator: Aggregator) -> None:
    leaves = drawn(11, seed=0)
    leaves["delta"][0] = torch.nan
    assert np.isnan(combined(aggregator, leaves)["delta"]).all()


@pytest.mark.parametrize("before", [NearestNeighborMixing(f=2), Bucketing()], ids=lambda b: b.name)
def test_what_only_mixes_survives_by_what_follows(before: Aggregator) -> None:
    leaves = drawn(11, seed=0)
    leaves["delta"][:2] = 1e30
    assert abs(combined(before, leaves)["delta"]).max() > 1e28


def test_the_documentation_says_what_each_survives() -> None:
    """The table has every aggregator, and its numbers are those that are tested above."""
    text = (Path(__file__).parents[2] / "docs" / "parts.md").read_text(encoding="utf-8")
    table = text.split("## What aggregators survive")[1].split("<!-- generated")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if "[`" in line]
    said = {row[0].split("`")[1]: row[2] for row in rows}
    assert set(said) == set(AGGREGATORS)
    promised: dict[str, set[int]] = {}
    for aggregator, most in SURVIVORS:
        if not isinstance(aggregator, Chain):
            promised.setdefault(aggregator.name, set()).add(most)
    for name, number in said.items():
        if name in promised:
            numbers = set(map(int, re.findall(r"\d+", number)))
            assert max(numbers) == max(promised[name]) and numbers <= promised[name], name
        else:
            assert number.startswith("0"), name


def test_beyond_it_the_mean_of_one_attacker_is_anything() -> None:
    leaves = drawn(11, seed=0)
    leaves["delta"][0] = 1e30
    assert abs(combined(Mean(), leaves)["delta"]).max() > 1e28
