"""What holds for every kind of projection: its lift is its transpose, its rows have unit norm, it keeps norms."""

from __future__ import annotations

import json
import subprocess
import sys
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from descant.catalog import build, describe
from descant.coupling import (
    PROJECTIONS,
    BlockDiagonal,
    Hash,
    Identity,
    LayerDim,
    PerLayer,
    Projection,
    SparseSign,
)
from descant.errors import SettingError
from tests.coupling.projecting import KINDS, built, draw, layout, matrix

EVERY_KIND = pytest.mark.parametrize("projection", KINDS.values(), ids=KINDS)
seeds = st.integers(0, 2**63 - 1)
sizes = st.integers(3, 150).flatmap(lambda d: st.tuples(st.integers(3, min(d, 40)), st.just(d)))  # dim, d
Sizes = tuple[int, int]


@pytest.mark.few(1)
@EVERY_KIND
@given(seed=seeds, size=sizes, K=st.integers(1, 4))
def test_the_lift_is_the_transpose(projection: Projection, seed: int, size: Sizes, K: int) -> None:
    """<P x, u> = <x, P'u>, and P' is that of the matrix."""
    P = built(projection, seed, *size)
    x, u = draw(K, size[1], seed=1), draw(K, P.dim, seed=2)
    torch.testing.assert_close((P.project(x) * u).sum(1), (x * P.lift(u)).sum(1), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(P.project(x), x @ matrix(P).T, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(P.lift(u), u @ matrix(P), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(P.onto(x, u), x + u @ matrix(P), rtol=1e-11, atol=1e-11)


@EVERY_KIND
@given(seed=seeds, size=sizes)
def test_rows_have_unit_norm_but_for_those_of_empty_buckets(projection: Projection, seed: int, size: Sizes) -> None:
    norms = torch.linalg.vector_norm(matrix(built(projection, seed, *size)), dim=1)
    hashed = isinstance(projection, Hash | SparseSign) or projection == KINDS["per-layer hash"]
    kept = norms[norms > 0] if hashed else norms
    torch.testing.assert_close(kept, torch.ones_like(kept), rtol=1e-12, atol=0)


@EVERY_KIND
def test_sizes_are_as_they_say(projection: Projection) -> None:
    P = built(projection, 1, 7, 50)
    assert (P.dim, P.d) == (50 if projection == Identity() else 7, 50)
    assert P.project(draw(3, 50)).shape == (3, P.dim) and P.lift(draw(3, P.dim)).shape == (3, 50)
    assert P.project(draw(0, 50)).shape == (0, P.dim) and P.lift(draw(0, P.dim)).shape == (0, 50)


@EVERY_KIND
def test_a_subspace_of_no_dimension_projects_to_nothing_and_lifts_to_zero(projection: Projection) -> None:
    if projection != Identity():
        P = built(projection, 0, 0, 20)
        assert P.project(draw(3, 20)).shape == (3, 0)
        assert torch.equal(P.lift(draw(3, 0)), torch.zeros(3, 20, dtype=torch.float64))


@EVERY_KIND
def test_in_float32_it_is_the_float64_matrix_rounded(projection: Projection) -> None:
    whole = matrix(built(projection, 3, 6, 70))
    rounded = matrix(built(projection, 3, 6, 70, torch.float32), torch.float32)
    torch.testing.assert_close(rounded, whole.float(), rtol=1e-6, atol=0)


@EVERY_KIND
def test_another_seed_is_another_projection(projection: Projection) -> None:
    if projection != Identity():
        one, other = (matrix(built(projection, seed, 6, 70)) for seed in (7, 8))
        assert (one != other).any(1).all(), "in every row"


@EVERY_KIND
def test_it_does_not_depend_on_the_models_that_it_is_built_for(projection: Projection) -> None:
    one, other = torch.zeros(1, 30), torch.full((9, 30), 1e9)
    c = torch.ones(2, 30 if projection == Identity() else 4)
    first = projection.build(1, 4, one, layout(30)).lift(c)
    Hash().build(5, 4, one), Hash().build(6, 4, one)  # so that it is made again
    assert torch.equal(projection.build(1, 4, other, layout(30)).lift(c), first)


def elsewhere() -> str:
    """A program that prints every kind of P, after it has drawn other numbers."""
    specs = json.dumps([describe(projection) for projection in KINDS.values()])
    return f"""
import json, random, torch
from descant.catalog import build
from descant.task import Layout
torch.manual_seed(99), random.seed(4), torch.rand(17)
layout = Layout({layout(50).names!r}, tuple(map(torch.Size, {[list(s) for s in layout(50).shapes]!r})))
for spec in json.loads({specs!r}):
    P = build("projections", spec).build(7, 6, torch.full((4, 50), 3.0, dtype=torch.float64), layout)
    print(json.dumps(P.lift(torch.eye(P.dim, dtype=torch.float64)).tolist()))
"""


@pytest.mark.slow
def test_every_kind_follows_from_its_seed_in_another_process() -> None:
    printed = subprocess.run([sys.executable, "-c", elsewhere()], capture_output=True, text=True, check=True).stdout
    for projection, line in zip(KINDS.values(), printed.splitlines(), strict=True):
        assert torch.equal(torch.tensor(json.loads(line), dtype=torch.float64), matrix(built(projection, 7, 6, 50)))


def inputs(d: int) -> dict[str, Tensor]:
    """Vectors of several kinds: all entries alike, a few large ones, most of them zero."""
    x = draw(3, d, seed=5)
    return {"normal": x[0], "heavy": x[1] ** 5, "sparse": x[2] * (draw(d, seed=6) > 1.6)}


OBLIVIOUS = [name for name in KINDS if name not in ("identity", "block-diagonal", "shared block")]
M, D, DRAWS, SURE = 40, 1000, 300, 1e-6


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [name for name in OBLIVIOUS if not name.startswith("per-layer")])
@pytest.mark.parametrize("kind", ["normal", "heavy", "sparse"])
def test_norms_are_kept_on_average_and_seldom_changed_by_much(name: str, kind: str) -> None:
    """For any x and a random P with unit rows, d/m |Px|^2 / |x|^2 has mean 1, and seldom is far from it.

    The mean of 300 P is compared with 1 by a t-test, which a right P fails with probability 1e-6. With normal rows,
    the share of P that change |x|^2 by a factor beyond 1 -+ eps is at most 2 exp(-m (eps^2 / 4 - eps^3 / 6))
    (Dasgupta and Gupta, 2003). 300 P exceed it beyond chance, by a binomial test, with probability 1e-6. For a hash
    that bound is a theorem for vectors without large entries alone, so it is tested for normal x.
    """
    x = inputs(D)[kind]
    projectors = [built(KINDS[name], seed, M, D) for seed in range(DRAWS)]
    ratio = np.array([float(P.project(x[None]).square().sum() / x.square().sum()) * D / M for P in projectors])
    assert stats.ttest_1samp(ratio, 1).pvalue > SURE
    assert ratio.std() > 0.01, "it is random"
    if kind == "normal":
        eps = 0.75
        bound = 2 * np.exp(-M * (eps**2 / 4 - eps**3 / 6))
        assert bound < 0.2
        beyond = int((np.abs(ratio - 1) > eps).sum())
        assert stats.binomtest(beyond, DRAWS, bound, alternative="greater").pvalue > SURE


@pytest.mark.parametrize("name", [name for name in KINDS if name != "identity"])
def test_norms_of_random_directions_are_kept_by_every_kind(name: str) -> None:
    """For one P with m unit rows and x of normal entries, |Px|^2 has mean m and variance 2 |P P'|_F^2.

    The mean over 2,000 x is normal to good accuracy; it is 5 standard errors off with probability 6e-7.
    """
    P, count = built(KINDS[name], 11, M, D), 2000
    squares = P.project(draw(count, D, seed=9)).square().sum(1)
    gram = matrix(P) @ matrix(P).T
    rows = int((gram.diagonal() > 0).sum())
    spread = sqrt(2 * float(gram.square().sum()) / count)
    assert abs(float(squares.mean()) - rows) < 5 * spread
    assert float(gram.square().sum()) < 1.5 * M, "rows are nearly orthogonal"


def test_projections_are_known_by_their_names_and_survive_a_file() -> None:
    assert list(PROJECTIONS) == [
        *("dense", "orthogonal", "block-diagonal", "per-layer", "seed-only", "sparse-sign", "hash", "fold"),
        *("hadamard", "identity"),
    ]
    for projection in (*KINDS.values(), Hash(fresh=True), PerLayer(kind=Hash(), layers=(LayerDim("b", 2),))):
        assert build("projections", json.loads(json.dumps(describe(projection)))) == projection


@pytest.mark.parametrize(
    ("projection", "m", "message"),
    [
        *[(KINDS[name], 51, "^dim = 51: it must be at most 50") for name in KINDS if name not in
          ("dense", "seed-only", "identity")],
        (BlockDiagonal(blocks=8), 7, "^method.projection.blocks = 8: it must be at most 7, the dim of"),
        (SparseSign(nonzeros=8), 7, "^method.projection.nonzeros = 8: it must be at most 7"),
        (PerLayer(layers=(LayerDim("b", 8),)), 7, "^method.projection.layers: 8 of dim = 7 are given to layers"),
        (PerLayer(layers=(LayerDim("b", 21),)), 30, "^method.projection.layers: dim = 21 for 'b': .* at most 20"),
        (PerLayer(layers=(LayerDim("x", 2),)), 7, "^method.projection.layers: there is no layer called 'x'"),
        (PerLayer(kind=SparseSign()), 7, "^method.projection.kind: for the layer 'a', .*nonzeros = 8"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(projection: Projection, m: int, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        projection.check(m, layout(50))
    with pytest.raises(SettingError, match=message):
        built(projection, 0, m, 50)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BlockDiagonal(blocks=0), "BlockDiagonal.blocks = 0: it must be a positive number"),
        (lambda: SparseSign(nonzeros=0), "SparseSign.nonzeros = 0: it must be a positive number"),
        (lambda: LayerDim("b", -1), "LayerDim.dim = -1: it must be zero or more"),
        (lambda: PerLayer(kind=PerLayer()), "PerLayer.kind = .*another projection than per-layer"),
        (lambda: PerLayer(kind=Hash(fresh=True)), "PerLayer.kind = .*without fresh"),
        (lambda: PerLayer(layers=(LayerDim("b", 1),) * 2), "PerLayer.layers = .*names no layer twice"),
        (lambda: PerLayer().build(0, 3, torch.zeros(1, 9)), "per-layer: it needs the layout of the model"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()
