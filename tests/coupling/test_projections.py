"""Random projections: P is its seed, and its lift is its transpose."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from descant.coupling import Dense, Identity, Orthogonal, Projector
from descant.errors import SettingError

dims = st.integers(1, 12)
seeds = st.integers(0, 2**63 - 1)


def matrix(P: Projector, m: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """P [m, d] itself: its rows are the lifts of the unit vectors."""
    return P.lift(torch.eye(m, dtype=dtype))


def normal_vector(n: int, seed: int) -> Tensor:
    return torch.randn(1, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dense(seed: int, m: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return matrix(Dense().build(seed, m, torch.empty(0, d, dtype=dtype)), m, dtype)


@given(seeds, dims, dims)
def test_the_lift_is_the_transpose_of_the_projection(seed: int, m: int, d: int) -> None:
    x, c = normal_vector(d, 1), normal_vector(m, 2)
    P = Dense().build(seed, m, x)
    torch.testing.assert_close((P.project(x) * c).sum(), (x * P.lift(c)).sum(), rtol=1e-12, atol=1e-12)


@given(seeds, dims, dims)
def test_rows_have_unit_norm(seed: int, m: int, d: int) -> None:
    norms = torch.linalg.vector_norm(dense(seed, m, d), dim=1)
    torch.testing.assert_close(norms, torch.ones(m, dtype=torch.float64), rtol=1e-12, atol=0)


@given(st.integers(1, 5), dims, dims)
def test_it_acts_on_every_row_as_the_matrix_does(K: int, m: int, d: int) -> None:
    x, c = torch.randn(K, d, dtype=torch.float64), torch.randn(K, m, dtype=torch.float64)
    P, A = Dense().build(4, m, x), dense(4, m, d).numpy()
    np.testing.assert_allclose(P.project(x), x.numpy() @ A.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(P.lift(c), c.numpy() @ A, rtol=1e-10, atol=1e-12)


def test_entries_look_like_draws_from_a_normal_of_variance_one_over_d() -> None:
    m, d = 40, 2500
    P = dense(0, m, d).numpy()
    entries = P.ravel() * np.sqrt(d)
    assert abs(entries.mean()) < 5 / np.sqrt(m * d)
    assert abs(stats.kurtosis(entries)) < 5 * np.sqrt(24 / (m * d))
    assert stats.kstest(entries, "norm").pvalue > 1e-3
    # Different rows are as good as orthogonal: inner products N(0, 1/d).
    products = (P @ P.T)[np.triu_indices(m, 1)] * np.sqrt(d)
    assert stats.kstest(products, "norm").pvalue > 1e-3


@pytest.mark.slow
def test_a_projection_follows_from_its_seed_and_from_nothing_else() -> None:
    P = dense(7, 3, 20)
    torch.manual_seed(123)
    np.random.seed(5)
    elsewhere = (
        "import torch; from descant.coupling import Dense; torch.manual_seed(9);"
        "x = torch.full((4, 20), 3.0, dtype=torch.float64);"
        "print(Dense().build(7, 3, x).lift(torch.eye(3, dtype=torch.float64)).tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", elsewhere], capture_output=True, text=True, check=True).stdout
    assert torch.equal(torch.tensor(json.loads(printed), dtype=torch.float64), P)


@pytest.mark.parametrize("other", [8, -7, 7 + 2**32])
def test_another_seed_is_another_projection(other: int) -> None:
    assert not torch.isclose(dense(7, 3, 20), dense(other, 3, 20)).any()


def test_it_does_not_depend_on_the_models_that_it_was_built_for() -> None:
    one, other = torch.zeros(1, 6), torch.full((9, 6), 1e9)
    c = torch.randn(2, 4)
    assert torch.equal(Dense().build(1, 4, one).lift(c), Dense().build(1, 4, other).lift(c))


def test_in_float32_it_is_the_float64_matrix_rounded() -> None:
    assert torch.equal(dense(3, 5, 50, torch.float32), dense(3, 5, 50).float())


def test_the_whole_space_is_the_identity() -> None:
    x = torch.randn(3, 5)
    P = Identity().build(0, 5, x)
    assert torch.equal(P.project(x), x)
    assert torch.equal(P.lift(x), x)
    assert Identity().dim(2, 5) == 5
    assert Dense().dim(2, 5) == 2


def test_a_subspace_of_no_dimension_projects_to_nothing_and_lifts_to_zero() -> None:
    x = torch.randn(3, 5)
    P = Dense().build(0, 0, x)
    assert P.project(x).shape == (3, 0)
    assert torch.equal(P.lift(torch.empty(3, 0)), torch.zeros(3, 5))


def orthogonal(seed: int, m: int, d: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return matrix(Orthogonal().build(seed, m, torch.empty(0, d, dtype=dtype)), m, dtype)


@given(seeds, st.integers(1, 12).flatmap(lambda d: st.tuples(st.integers(0, d), st.just(d))))
def test_the_rows_of_an_orthogonal_projection_are_orthonormal(seed: int, dims: tuple[int, int]) -> None:
    P = orthogonal(seed, *dims)
    torch.testing.assert_close(P @ P.T, torch.eye(dims[0], dtype=torch.float64), rtol=0, atol=1e-12)


def test_they_are_the_dense_rows_made_orthonormal_one_after_the_other() -> None:
    """Each lies in the span of the dense rows up to its own, on the same side as that one."""
    dense_rows, P = dense(5, 6, 30), orthogonal(5, 6, 30)
    coefficients = dense_rows @ P.T  # of the dense rows in terms of the orthonormal ones
    torch.testing.assert_close(coefficients @ P, dense_rows, rtol=0, atol=1e-12)
    assert coefficients.triu(1).abs().max() < 1e-12 and (coefficients.diagonal() > 0).all()


def test_an_orthogonal_projection_follows_from_its_seed() -> None:
    assert torch.equal(orthogonal(7, 3, 20, torch.float32), orthogonal(7, 3, 20).float())
    assert not torch.isclose(orthogonal(7, 3, 20), orthogonal(8, 3, 20)).any()
    one, other = torch.zeros(1, 20), torch.full((9, 20), 1e9)
    c = torch.randn(2, 3)
    assert torch.equal(Orthogonal().build(1, 3, one).lift(c), Orthogonal().build(1, 3, other).lift(c))


def test_more_orthogonal_rows_than_parameters_are_refused() -> None:
    with pytest.raises(SettingError, match="dim = 6: it must be at most 5, the number of the model's parameters"):
        Orthogonal().dim(6, 5)
    with pytest.raises(SettingError, match="dim = 6"):
        Orthogonal().build(0, 6, torch.zeros(1, 5))
    assert Orthogonal().dim(5, 5) == 5
