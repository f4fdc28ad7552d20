"""Matrices in blocks of columns: what comes out is what the whole matrix gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.coupling import L1Norm, L2Norm, Stop, medians
from descant.coupling.columns import by_columns, columns, lower_median, mixture, ordered
from descant.coupling.distances import finite_rows, norms

KINDS = [torch.float32, torch.float64, torch.bfloat16]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("descant.coupling.columns.BLOCK", 20)


def drawn(k: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(k, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize(("k", "d"), [(1, 1), (5, 13), (8, 4), (30, 3), (3, 0)])
def test_columns_are_ordered_and_halved_as_torch_does(dtype: torch.dtype, k: int, d: int) -> None:
    x = drawn(k, d, dtype=dtype)
    before = x.clone()
    assert torch.equal(by_columns(x, ordered), x.sort(0).values)
    assert torch.equal(by_columns(x, lower_median), x.median(0).values)
    assert torch.equal(torch.cat([block for _, block in columns(x)] or [x], 1), x) and torch.equal(x, before)


def test_what_is_no_number_is_last() -> None:
    x = torch.tensor([[float("nan")], [1.0], [float("inf")], [-float("inf")]])
    assert ordered(x)[:, 0].tolist()[:3] == [-float("inf"), 1.0, float("inf")] and ordered(x)[3].isnan()


@given(st.integers(1, 9), st.integers(1, 25), st.integers(0, 1000))
def test_norms_and_mixtures_are_those_of_the_whole(k: int, d: int, seed: int) -> None:
    x, center, weights = drawn(k, d, seed).float(), drawn(1, d, seed + 1)[0], drawn(1, k, seed + 2)[0]
    before = x.clone()
    torch.testing.assert_close(norms(x, center), (x.double() - center).norm(dim=1))
    torch.testing.assert_close(norms(x), x.double().norm(dim=1))
    torch.testing.assert_close(mixture(x, weights), weights @ x.double())
    torch.testing.assert_close(mixture(x, weights, center), weights @ (x.double() - center))
    assert torch.equal(x, before), "nothing is done in place"


def test_a_row_that_is_not_finite_is_found_in_any_block() -> None:
    x = drawn(4, 50)
    x[1, 47], x[2, 0] = torch.inf, torch.nan
    assert finite_rows(x).tolist() == [True, False, False, True]
    assert norms(x).isinf().tolist() == [False, True, True, False]


@pytest.mark.parametrize("t", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_geometric_median_in_the_span_of_its_points_is_the_same(
    monkeypatch: pytest.MonkeyPatch, t: float, weighted: bool, size: float, dtype: torch.dtype
) -> None:
    x = (drawn(9, 200, 5) + 3).to(dtype)
    x[:3] *= size
    p = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 9]) if weighted else torch.ones(9)
    whole = L2Norm().center(x, p, t, Stop())
    calls = []
    spanned = medians._in_their_span
    monkeypatch.setattr(medians, "_MANY", 0)
    monkeypatch.setattr(medians, "_in_their_span", lambda *a: calls.append(spanned(*a)) or calls[-1])
    found = L2Norm().center(x, p, t, Stop())
    assert calls and calls[0] is not None, "it did not need the other way"
    assert found.residual <= 1e-10 and whole.residual <= 1e-10
    torch.testing.assert_close(found.w, whole.w, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("case", ["equal", "at a point", "one", "infinite"])
def test_what_the_span_cannot_tell_is_found_the_other_way(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    x = drawn(7, 60, 2)
    if case == "equal":  # a majority of equal points is the median
        x[:4] = x[0]
    if case == "at a point":
        x[3] = x[[0, 1, 2, 4, 5, 6]].mean(0)
    if case == "one":
        x = x[:1]
    if case == "infinite":
        x[0] = torch.inf
    whole = L2Norm().center(x, torch.ones(len(x)), 0.0, Stop())
    monkeypatch.setattr(medians, "_MANY", 0)
    found = L2Norm().center(x, torch.ones(len(x)), 0.0, Stop())
    assert found.residual <= 1e-10
    torch.testing.assert_close(found.w, whole.w, rtol=1e-8, atol=1e-8)
    if case in ("equal", "one"):
        assert torch.equal(found.w, x[0])


@pytest.mark.parametrize("t", [0.0, 0.5])
def test_the_coordinate_median_in_blocks_is_that_of_the_whole(monkeypatch: pytest.MonkeyPatch, t: float) -> None:
    x, p = drawn(6, 40, 3), torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0, 1.0])
    for weights in (p, torch.ones(6)):
        found = L1Norm().center(x, weights, t, Stop())
        monkeypatch.setattr("descant.coupling.columns.BLOCK", 10**6)
        whole = L1Norm().center(x, weights, t, Stop())
        monkeypatch.setattr("descant.coupling.columns.BLOCK", 20)
        torch.testing.assert_close(found.w, whole.w, rtol=1e-14, atol=1e-14)  # sums may be in another order
        assert found.iterations == whole.iterations
        assert found.residual == pytest.approx(whole.residual, abs=1e-12)
