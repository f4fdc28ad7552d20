"""The medians of the messages, as aggregators of any run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from descant import FederatedData, Task, simulate
from descant.aggregators import AGGREGATORS, Aggregator, CoordinateMedian, GeometricMedian, Mean
from descant.coupling import L2Norm, Penalty, Stop
from descant.errors import SettingError
from descant.methods import Ditto, FedAvg, Method, PFedMe
from tests.held import shared

senders = st.integers(1, 12)
seeds = st.integers(0, 10_000)
MEDIANS = pytest.mark.parametrize("median", [CoordinateMedian(), GeometricMedian()], ids=lambda m: m.name)


def messages(s: int, seed: int) -> tuple[dict[str, Tensor], Tensor]:
    g = torch.Generator().manual_seed(seed)
    leaves = {
        "delta": torch.randn(s, 5, generator=g, dtype=torch.float64),
        "matrix": torch.randn(s, 2, 3, generator=g, dtype=torch.float64),
        "loss": torch.randn(s, generator=g, dtype=torch.float64),
    }
    return leaves, torch.randint(1, 9, (s,), generator=g, dtype=torch.int32)


@given(senders, seeds)
def test_the_coordinate_wise_median_is_numpys(s: int, seed: int) -> None:
    leaves, _ = messages(s, seed)
    for name, median in CoordinateMedian()(leaves).items():
        np.testing.assert_allclose(median, np.median(leaves[name].numpy(), axis=0), rtol=1e-12, atol=1e-14)


def distances(leaf: Tensor, w: Tensor) -> Tensor:
    return (leaf - w).reshape(len(leaf), -1).norm(dim=1)


@given(senders, seeds, st.booleans())
def test_no_point_nearby_has_a_lesser_sum_of_distances_than_the_geometric_median(
    s: int, seed: int, weighted: bool
) -> None:
    leaves, n = messages(s, seed)
    p = n.double() if weighted else torch.ones(s).double()
    found = GeometricMedian()(leaves, n if weighted else None)
    for name, leaf in leaves.items():
        least = float(p @ distances(leaf, found[name]))
        assert found[name].shape == leaf.shape[1:]
        for k, size in enumerate((1e-4, 1e-2, 1.0)):
            g = torch.Generator().manual_seed(seed + k)
            nearby = found[name] + size * torch.randn(leaf.shape[1:], generator=g, dtype=torch.float64)
            assert least <= float(p @ distances(leaf, nearby)) + 1e-12


@given(senders, seeds)
def test_a_weight_counts_as_so_many_messages(s: int, seed: int) -> None:
    leaves, n = messages(s, seed)
    repeated = {name: leaf.repeat_interleave(n, 0) for name, leaf in leaves.items()}
    for name, median in CoordinateMedian()(leaves, n).items():
        assert torch.equal(median, CoordinateMedian()(repeated)[name])
    one, other = GeometricMedian()(leaves, n), GeometricMedian()(repeated)
    for name, leaf in leaves.items():  # of which there may be several
        sums = [float(n.double() @ distances(leaf, found[name])) for found in (one, other)]
        assert sums[0] == pytest.approx(sums[1], rel=1e-9)


@MEDIANS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [True, False])
def test_the_dtype_of_a_leaf_is_kept(median: Aggregator, dtype: torch.dtype, weighted: bool) -> None:
    n = torch.tensor([1, 2, 3], dtype=torch.int32) if weighted else None
    found = median({"x": torch.ones(3, 4, dtype=dtype)}, n)["x"]
    assert found.dtype == dtype and torch.equal(found, torch.ones(4, dtype=dtype))


@MEDIANS
@pytest.mark.parametrize("size", [1e4, 1e30])
def test_a_minority_of_outliers_does_not_take_it_away(median: Aggregator, size: float) -> None:
    leaves, _ = messages(11, 3)
    leaf = leaves["delta"]
    leaf[:4] = size
    figures: dict[str, float] = {}
    found = median({"x": leaf}, record=figures.__setitem__)["x"]
    assert float(found.abs().max()) < 3
    assert figures["aggregation_residual"] <= 1e-10 and figures["aggregation_iterations"] <= 50


def test_with_delta_it_is_a_smoothed_median_and_in_the_end_the_mean() -> None:
    leaf = torch.tensor([[0.0], [1.0], [5.0]], dtype=torch.float64)
    assert float(CoordinateMedian()({"x": leaf})["x"]) == 1.0
    for kind in (CoordinateMedian, GeometricMedian):
        # Within 1.5: sum of (w, w - 1, -1.5) is 0 at 1.25, where 0 and 1 are near and 5 is far.
        assert float(kind(delta=1.5)({"x": leaf})["x"]) == pytest.approx(1.25, abs=1e-12)
        assert float(kind(delta=100.0)({"x": leaf})["x"]) == pytest.approx(2.0, abs=1e-12)


def test_they_are_known_by_their_names() -> None:
    assert AGGREGATORS["coordinate-median"] is CoordinateMedian
    assert AGGREGATORS["geometric-median"] is GeometricMedian


@pytest.mark.parametrize("kind", [CoordinateMedian, GeometricMedian])
@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("delta", -0.1, "zero or more"),
        ("delta", float("nan"), "zero or more"),
        ("tol", 0.0, "a positive number"),
        ("cap", 0, "a positive number"),
    ],
)
def test_a_bad_setting_is_named(kind: Any, field: str, value: Any, allowed: str) -> None:
    with pytest.raises(SettingError) as caught:
        kind(**{field: value})
    assert str(caught.value) == f"{kind.__name__}.{field} = {value!r}: it must be {allowed}"


@pytest.fixture(scope="module")
def data() -> FederatedData:
    g = torch.Generator().manual_seed(0)
    rows = [torch.randn(n, 4, generator=g, dtype=torch.float64) for n in (6, 1, 9, 4, 13, 2, 7)]
    return FederatedData.from_arrays([{"train": (X, (X.sum(1) > 0).long())} for X in rows], classes=2)


@MEDIANS
@pytest.mark.parametrize("method", [FedAvg(steps=2), PFedMe(steps=2), Ditto(steps=2)], ids=lambda m: m.name)
def test_any_method_runs_with_them_and_the_round_says_what_was_left(
    data: FederatedData, median: Aggregator, method: Method
) -> None:
    torch.manual_seed(0)
    task = Task(nn.Linear(4, 2).double())
    run = simulate(task, data, method, rounds=3, aggregator=median, mode="vmap", evaluate=3)
    assert run.collapse is None
    for row in run.history.rounds:
        assert 0 <= row["aggregation_residual"] <= 1e-10
        assert (row["aggregation_iterations"] == 0) == isinstance(median, CoordinateMedian)


def test_a_median_withstands_a_message_that_ruins_the_mean(data: FederatedData) -> None:
    """One client's examples are enormous, and so is its update."""
    clients = [data.train.client(k) for k in range(len(data))]
    spoilt = [{"train": (X * 1e12 if k == 2 else X, y)} for k, (X, y) in enumerate(clients)]
    poisoned = FederatedData.from_arrays(spoilt, classes=2)
    torch.manual_seed(0)
    task = Task(nn.Linear(4, 2).double())
    method = FedAvg(steps=2, batch=None, weighted=False)
    norms = {}
    for aggregator in (Mean(), CoordinateMedian(), GeometricMedian()):
        run = simulate(task, poisoned, method, rounds=2, aggregator=aggregator, mode="vmap", evaluate=2)
        norms[aggregator.name] = float(shared(run).norm())
    assert norms["mean"] > 1e6 > 100 > max(norms["coordinate-median"], norms["geometric-median"])


def test_what_is_infinitely_far_pulls_by_its_direction_alone() -> None:
    points = torch.randn(9, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    far, infinite = points.clone(), points.clone()
    far[0], infinite[0] = 1e300, torch.inf
    found = [GeometricMedian()({"u": leaf})["u"] for leaf in (far, infinite)]
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-9)
    infinite[:5] = torch.inf
    assert not GeometricMedian()({"u": infinite})["u"].isfinite().all(), "a majority is not hidden"


@dataclass(frozen=True)
class Own(Penalty):
    """The l2 norm by its value and its prox alone, as a user would write it."""

    name: ClassVar[str] = "own"

    def value(self, x: Tensor) -> Tensor:
        return x.norm(dim=-1)

    def prox(self, x: Tensor, t: float) -> Tensor:
        return L2Norm().prox(x, t)


@pytest.mark.parametrize("size", [1e4, 1e18, 1e30])
def test_a_penalty_of_ones_own_never_claims_more_than_its_digits_hold(size: float) -> None:
    points = torch.randn(10, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    points[0] = size
    weights = torch.ones(10)
    found, exact = (psi.center(points, weights, 0.1, Stop(1e-10, 200)) for psi in (Own(), L2Norm()))
    slope = L2Norm().gradient(points - found.w, 0.1).mean(0).norm()
    assert float(slope) <= found.residual + 1e-9, "what is left is said"
    assert size > 1e10 or torch.allclose(found.w, exact.w, atol=1e-6)
