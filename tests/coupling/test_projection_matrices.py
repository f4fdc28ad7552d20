"""Each kind of projection against the matrix that its definition says, built another way."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.linalg import block_diag, hadamard

from descant import rotation
from descant.coupling import (
    BlockDiagonal,
    Dense,
    Fold,
    Hadamard,
    Hash,
    LayerDim,
    Orthogonal,
    PerLayer,
    SeedOnly,
    SparseSign,
)
from descant.coupling.projections.gaussian import Generated
from descant.coupling.projections.hadamard import Transform, chunk
from descant.coupling.projections.perlayer import shares
from descant.coupling.projections.sums import DirectSum
from descant.draws import bits
from descant.rotation import signs, transformed, walsh
from tests.coupling.projecting import built, draw, layout, matrix

Matrix = NDArray[np.float64]
MASK = 2**64 - 1
seeds = st.integers(0, 2**63 - 1)


def splitmix64(key: int, counter: int) -> int:
    """Steele, Lea and Flood (2014), in Python's whole numbers."""
    z = (key + counter * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def key(seed: int, name: str) -> int:
    return int(bits(seed, "projection", name)) & MASK


def gaussian_row(state: int, row: int, d: int) -> Matrix:
    """A row from its definition: 16 bits each of a stream of words, as normal quantiles, scaled to unit norm."""
    words = -(-d // 4)
    quantiles = stats.norm.ppf((np.arange(2**16) + 0.5) / 2**16)
    numbers = [splitmix64(state, row * words + j // 4) >> 16 * (j % 4) & 0xFFFF for j in range(d)]
    found: Matrix = (quantiles / np.sqrt((quantiles**2).mean()))[numbers].astype(np.float32).astype(np.float64)
    return found / np.sqrt(found @ found)


def close(P: torch.Tensor, A: Matrix) -> None:
    torch.testing.assert_close(P, torch.from_numpy(np.ascontiguousarray(A)), rtol=1e-6, atol=1e-12)


@given(seed=seeds, m=st.integers(1, 5), d=st.integers(1, 30))
def test_seed_only_is_the_matrix_of_its_definition(seed: int, m: int, d: int) -> None:
    state = key(seed, "seed-only")
    close(matrix(built(SeedOnly(), seed, m, d)), np.stack([gaussian_row(state, row, d) for row in range(m)]))


def test_seed_only_in_pieces_is_seed_only_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    x = draw(2, 1000)
    whole = built(SeedOnly(), 3, 9, 1000).project(x)
    from descant.coupling.projections import gaussian

    monkeypatch.setattr(gaussian, "_ROWS", 4)
    monkeypatch.setattr(gaussian, "_COLUMNS", 64)
    torch.testing.assert_close(SeedOnly().build(3, 9, x).project(x), whole, rtol=1e-12, atol=1e-12)


def test_generated_entries_look_like_draws_from_a_normal() -> None:
    P = built(SeedOnly(), 0, 40, 2500)
    assert isinstance(P, Generated)
    found = (matrix(P) / P.scale[:, None]).numpy().ravel()
    assert abs(found.mean()) < 5 / np.sqrt(found.size) and abs(stats.kurtosis(found)) < 5 * np.sqrt(24 / found.size)
    assert stats.kstest(found, "norm").pvalue > 1e-3
    neighbours = np.corrcoef(found[:-1], found[1:])[0, 1]
    assert abs(neighbours) < 5 / np.sqrt(found.size)


@given(
    seed=seeds,
    blocks=st.integers(1, 7),
    m=st.integers(7, 20),
    d=st.integers(20, 60),
    shared=st.booleans(),
)
def test_block_diagonal_is_the_dense_matrix_of_its_blocks(
    seed: int, blocks: int, m: int, d: int, shared: bool
) -> None:
    """Uneven divisions included: the first blocks are larger by one, as numpy.array_split has it."""
    state, row, found = key(seed, "block-diagonal"), 0, []
    rows, columns = np.array_split(np.arange(m), blocks), np.array_split(np.arange(d), blocks)
    for across, along in zip(rows, columns, strict=True):
        if shared:
            one = np.stack([gaussian_row(state, i, len(columns[0])) for i in range(len(across))])[:, : len(along)]
            found.append(one / np.linalg.norm(one, axis=1, keepdims=True))
        else:
            found.append(np.stack([gaussian_row(state, row + i, len(along)) for i in range(len(across))]))
        row += len(across)
    projector = built(BlockDiagonal(blocks=blocks, shared=shared), seed, m, d)
    close(matrix(projector), block_diag(*found))


@pytest.mark.parametrize(("m", "d", "k"), [(12, 60, 3), (13, 60, 3), (13, 61, 3)])
def test_block_diagonal_stores_what_the_paper_says(m: int, d: int, k: int) -> None:
    """dim d / k numbers; with one block for all, dim d / k^2, rounded up, and the norms of its rows."""
    sizes = zip(np.array_split(range(m), k), np.array_split(range(d), k), strict=True)
    assert built(BlockDiagonal(blocks=k), 0, m, d).stored == 8 * sum(len(a) * len(b) for a, b in sizes)
    one = built(BlockDiagonal(blocks=k, shared=True), 0, m, d)
    assert isinstance(one, DirectSum)
    assert one.stored == 8 * (-(-m // k) * -(-d // k) + sum(part.dim // part.blocks for part in one.parts))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "projection", [SeedOnly(), Hash(), SparseSign(nonzeros=2), Hadamard()], ids=lambda p: p.name
)
def test_what_a_seed_stands_for_is_not_stored(projection: SeedOnly | Hash | SparseSign | Hadamard) -> None:
    assert built(projection, 0, 5, 9000).stored <= 8 + 2 * 8 * 5
    assert built(Dense(), 0, 5, 9000).stored == 8 * 5 * 9000


@pytest.mark.parametrize("groups", [1, 2, 3])
@given(seed=seeds, m=st.integers(3, 12), d=st.integers(12, 60))
def test_a_hash_is_the_matrix_of_its_buckets(groups: int, seed: int, m: int, d: int) -> None:
    """Half a word, scaled to twice as many numbers as buckets, is a bucket and a sign; in each group of rows."""
    state, found, first = key(seed, "hash"), np.zeros((m, d)), 0
    for group, rows in enumerate(np.array_split(np.arange(m), groups)):
        for j in range(d):
            half = splitmix64(state, j * -(-groups // 2) + group // 2) >> 32 * (group % 2) & 0xFFFFFFFF
            slot = half * 2 * len(rows) >> 32
            found[first + slot // 2, j] = -1 if slot % 2 else 1
        first += len(rows)
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    projection = Hash() if groups == 1 else SparseSign(nonzeros=groups)
    P = matrix(built(projection, seed, m, d))
    close(P, found / np.where(norms == 0, 1, norms))
    assert ((P != 0).sum(0) == groups).all()
    assert torch.equal(P, matrix(built(SparseSign(nonzeros=groups), seed, m, d)))


@given(seed=seeds, m=st.integers(1, 12), d=st.integers(12, 200))
def test_the_rows_of_a_hash_are_orthonormal_and_those_of_empty_buckets_zero(seed: int, m: int, d: int) -> None:
    P = matrix(built(Hash(), seed, m, d))
    filled = (P != 0).any(1).double()
    torch.testing.assert_close(P @ P.T, filled.diag(), rtol=0, atol=1e-12)


@given(seed=seeds, m=st.integers(1, 12), d=st.integers(12, 200))
def test_a_fold_adds_up_pieces_with_signs_of_their_own(seed: int, m: int, d: int) -> None:
    """A bit of a word is the sign of a coordinate. Rows are orthonormal: every bucket holds somebody."""
    found = np.zeros((m, d))
    for i in range(d):
        found[i % m, i] = 1 - 2 * (splitmix64(key(seed, "fold"), i // 64) >> i % 64 & 1)
    P = matrix(built(Fold(), seed, m, d))
    close(P, found / np.linalg.norm(found, axis=1, keepdims=True))
    torch.testing.assert_close(P @ P.T, torch.eye(m).double(), rtol=0, atol=1e-12)


def test_a_fold_of_all_dimensions_is_a_change_of_signs() -> None:
    P = matrix(built(Fold(), 3, 50, 50))
    assert torch.equal(P.abs(), torch.eye(50).double()) and 0 < int((P < 0).sum()) < 50


def test_a_hash_with_empty_buckets_is_still_a_projection() -> None:
    P = built(Hash(), 0, 20, 20)
    A = matrix(P)
    assert (A == 0).all(1).any(), "of 20 coordinates in 20 buckets"
    assert A.isfinite().all() and P.project(draw(2, 20)).isfinite().all()


def test_buckets_and_signs_are_uniform() -> None:
    """By chi-square tests, each of which a right hash fails with probability 1e-4."""
    A = matrix(built(Hash(), 5, 23, 20_000)).numpy()
    bucket, negative = np.abs(A).argmax(0), (A < 0).any(0)
    assert stats.chisquare(np.bincount(bucket, minlength=23)).pvalue > 1e-4
    assert stats.chisquare(np.bincount(negative, minlength=2)).pvalue > 1e-4
    together = stats.contingency.crosstab(bucket, negative).count
    assert stats.chi2_contingency(together).pvalue > 1e-4


@pytest.mark.parametrize("chunk", [4, 64, 2**12])  # of shorter ones more are put together
@given(e=st.integers(0, 9), K=st.integers(0, 3))
def test_the_transform_is_scipys_hadamard_matrix(chunk: int, e: int, K: int) -> None:
    x, H = draw(K, 2**e), torch.from_numpy(hadamard(2**e)).double()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation, "CHUNK", chunk)
        torch.testing.assert_close(transformed(x), x @ H, rtol=1e-11, atol=1e-11)
    number = torch.arange(2**e)
    assert torch.equal(walsh(number[:, None], number).double(), H)


@pytest.mark.parametrize("length", [64, 2**12])
@pytest.mark.parametrize("d", [1, 3, 64, 200, 256])
def test_hadamard_is_some_rows_of_scipys_matrix_with_signs(
    d: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P = R H D / sqrt(d) with chunks of any length, d a power of two or not, and up to d rows, all different."""
    from descant.coupling.projections import base
    from descant.coupling.projections import hadamard as module

    monkeypatch.setattr(module, "CHUNK", length)
    base._built.cache_clear()
    n = 1 << (d - 1).bit_length()
    for m in {1, min(3, d), d}:
        P = built(Hadamard(), 4, m, d)
        assert isinstance(P, Transform)
        row = (P.among * chunk(d) + P.within).numpy()
        assert len(set(row)) == m and row.max() < n
        D = np.array([1 - 2 * (splitmix64(key(4, "hadamard signs"), j // 64) >> j % 64 & 1) for j in range(d)])
        assert (signs(P.key, 0, d).numpy() == D).all()
        close(matrix(P), hadamard(n)[row, :d] * D / np.sqrt(d))
    base._built.cache_clear()


def test_the_rows_of_hadamard_are_orthonormal_where_d_is_a_power_of_two() -> None:
    P = matrix(built(Hadamard(), 2, 30, 128))
    torch.testing.assert_close(P @ P.T, torch.eye(30, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("m", [20, 5000])  # few rows, and more than a chunk has
def test_a_long_vector_in_pieces_is_its_transform(m: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several chunks of 4,096, the last one short, a few at a time, or one client after the other."""
    from descant.coupling.projections import hadamard as module

    d, x = 3 * 4096 + 100, draw(2, 3 * 4096 + 100)
    P = built(Hadamard(), 1, m, d)
    whole, lifted = P.project(x), P.lift(draw(2, m))
    monkeypatch.setattr(module, "_AT_ONCE", 2**12)
    torch.testing.assert_close(P.project(x), whole, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(P.lift(draw(2, m)), lifted, rtol=1e-11, atol=1e-11)
    assert isinstance(P, Transform)
    some = torch.arange(0, m, m // 20)  # of which all entries fit into memory
    row = (P.among * 4096 + P.within)[some, None]
    by_entry = walsh(row, torch.arange(d)).double() * signs(P.key, 0, d) / d**0.5
    torch.testing.assert_close(whole[:, some], x @ by_entry.T, rtol=1e-10, atol=1e-10)
    alone = torch.zeros(2, m, dtype=torch.float64).index_copy(1, some, draw(2, len(some)))
    torch.testing.assert_close(P.lift(alone), draw(2, len(some)) @ by_entry, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", [Dense(), Hash(), Orthogonal(), BlockDiagonal(blocks=2)], ids=lambda p: p.name)
def test_per_layer_is_a_projection_for_each_layer(kind: Dense | Hash | Orthogonal | BlockDiagonal) -> None:
    """Layers a, b (weight and bias), c and d of 50 parameters have 10, 20, 10 and 10; b was given 5 of 11."""
    projection = PerLayer(kind=kind, layers=(LayerDim("b", 5),))
    whole, dims = matrix(built(projection, 3, 11, 50)), {"a": 2, "b": 5, "c": 2, "d": 2}
    assert {part.layer: part.dim for part in projection.parts(11, layout(50))} == dims
    alone = [
        matrix(kind.build(projection.layer_seed(3, layer), m, torch.empty(0, 20 if layer == "b" else 10).double()))
        for layer, m in dims.items()
    ]
    close(whole, block_diag(*(A.numpy() for A in alone)))


def test_a_layer_whose_parameters_lie_apart_is_one_layer() -> None:
    """Parameters of one layer belong together wherever they lie."""
    from descant.task import Layout

    apart = Layout(("b.weight", "a.weight", "b.bias"), (torch.Size([4]), torch.Size([3]), torch.Size([2])))
    P = PerLayer(layers=(LayerDim("b", 3),)).build(1, 4, torch.empty(0, 9).double(), apart)
    alone = {
        layer: matrix(Dense().build(PerLayer().layer_seed(1, layer), m, torch.empty(0, d).double()))
        for layer, m, d in (("b", 3, 6), ("a", 1, 3))
    }
    expected = torch.zeros(4, 9).double()
    expected[:3, [0, 1, 2, 3, 7, 8]] = alone["b"]
    expected[3:, 4:7] = alone["a"]
    torch.testing.assert_close(matrix(P), expected)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.data())
def test_dimensions_are_shared_in_proportion(sizes: list[int], data: st.DataObject) -> None:
    m = data.draw(st.integers(0, sum(sizes)))
    found = shares(m, sizes)
    assert sum(found) == m
    assert all(abs(one - m * size / sum(sizes)) < 1 and one <= size for one, size in zip(found, sizes, strict=True))
