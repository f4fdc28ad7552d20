"""Aggregators beside those of byzfl (0.0.11), another library's, on random messages.

byzfl is no dependency: `.ci/run` installs it without its own ones. Where it is not there, these tests are skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from descant.aggregators import (
    AdaptiveClipping,
    Aggregator,
    Bucketing,
    CenteredClipping,
    Chain,
    CoordinateMedian,
    GeometricMedian,
    Krum,
    Mean,
    MultiKrum,
    NearestNeighborMixing,
    NormClipping,
    TrimmedMean,
)
from tests.aggregators.messages import combined, context, mail_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def byzfl() -> Iterator[tuple[Any, Any]]:
    """The modules of byzfl's aggregators and preaggregators."""
    before = dict(sys.modules)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from peers.byzfl_env import UnavailableError, load

        try:
            yield load()
        except UnavailableError as error:
            pytest.skip(str(error))
    finally:
        sys.path.remove(str(BENCHMARKS))
        for name in set(sys.modules) - set(before):
            if name.split(".")[0] in ("byzfl", "peers"):
                del sys.modules[name]


Theirs = Callable[[Any, Any, int, np.ndarray], np.ndarray]
CASES: list[tuple[str, Callable[[int, int], Aggregator], Theirs]] = [
    ("mean", lambda s, f: Mean(), lambda A, P, f, x: A.Average()(x)),
    ("coordinate median", lambda s, f: CoordinateMedian(), lambda A, P, f, x: A.Median()(x)),
    ("trimmed mean", lambda s, f: TrimmedMean(f=f), lambda A, P, f, x: A.TrMean(f=f)(x)),
    (
        "Weiszfeld from zero",
        lambda s, f: GeometricMedian(weiszfeld=3, delta=0.1, start="zero"),
        lambda A, P, f, x: A.GeometricMedian(nu=0.1, T=3)(x),
    ),
    (
        "smoothed geometric median, solved",
        lambda s, f: GeometricMedian(delta=0.1),
        lambda A, P, f, x: A.GeometricMedian(nu=0.1, T=5000)(x),
    ),
    # byzfl's Krum looks at n - f - 1 others, and that of Blanchard et al. (2017) at n - f - 2: its f is one more.
    ("Krum", lambda s, f: Krum(f=f - 1), lambda A, P, f, x: A.Krum(f=f)(x)),
    ("multi-Krum", lambda s, f: MultiKrum(f=f - 1, m=s - f), lambda A, P, f, x: A.MultiKrum(f=f)(x)),
    (
        "centered clipping",
        lambda s, f: CenteredClipping(tau=1.0, iterations=5),
        lambda A, P, f, x: A.CenteredClipping(m=None, L=5, tau=1.0)(x),
    ),
    ("norm clipping", lambda s, f: NormClipping(norm=1.0), lambda A, P, f, x: P.Clipping(c=1.0)(x).mean(0)),
    ("ARC", lambda s, f: AdaptiveClipping(f=f), lambda A, P, f, x: P.ARC(f=f)(x).mean(0)),
    ("NNM", lambda s, f: NearestNeighborMixing(f=f), lambda A, P, f, x: P.NNM(f=f)(x).mean(0)),
    (
        "NNM and the trimmed mean",
        lambda s, f: Chain(steps=(NearestNeighborMixing(f=f), TrimmedMean(f=f))),
        lambda A, P, f, x: A.TrMean(f=f)(P.NNM(f=f)(x)),
    ),
    (
        "ARC and the coordinate median",
        lambda s, f: Chain(steps=(AdaptiveClipping(f=f), CoordinateMedian())),
        lambda A, P, f, x: A.Median()(P.ARC(f=f)(x)),
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_it_is_byzfls(byzfl: tuple[Any, Any], ours: Callable[[int, int], Aggregator], theirs: Theirs) -> None:
    for seed in range(12):
        s, f = 7 + seed % 9, 1 + seed % 2
        x = torch.randn(s, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found = combined(ours(s, f), {"delta": x.clone()})["delta"]
        np.testing.assert_allclose(found, theirs(*byzfl, f, x.numpy().copy()), rtol=1e-9, atol=1e-10)


def test_krum_by_the_papers_number_of_neighbours_is_another(byzfl: tuple[Any, Any]) -> None:
    """With the same f the two conventions choose other messages now and then: else the case above shows nothing."""
    differ = 0
    for seed in range(40):
        x = torch.randn(9, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        found = combined(Krum(f=2), {"delta": x})["delta"]
        differ += not np.allclose(found, byzfl[0].Krum(f=2)(x.numpy()))
    assert 0 < differ < 40


@pytest.mark.parametrize("s", [8, 9])
def test_its_buckets_are_as_large(byzfl: tuple[Any, Any], s: int) -> None:
    """Which messages share one is drawn: that every message counts once, and the sizes, can be compared."""
    x = torch.eye(s, dtype=torch.float64)
    mine = Bucketing(size=2).prepare(context(), mail_of({"delta": x}))["delta"]
    theirs = torch.from_numpy(byzfl[1].Bucketing(s=2)(x.numpy().copy()))
    for found in (mine, theirs):
        assert (found > 0).sum(0).eq(1).all()
    assert sorted((mine > 0).sum(1).tolist()) == sorted((theirs > 0).sum(1).tolist())


def test_nothing_but_its_aggregators_is_loaded(byzfl: tuple[Any, Any]) -> None:
    assert isinstance(sys.modules["byzfl"], ModuleType) and "byzfl.benchmark" not in sys.modules
