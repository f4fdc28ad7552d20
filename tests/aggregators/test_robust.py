"""Robust aggregators, against plain loops written from the papers."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.aggregators import (
    AGGREGATORS,
    AdaptiveClipping,
    Aggregator,
    Bucketing,
    Bulyan,
    Chain,
    CoordinateMedian,
    KNorm,
    Krum,
    Mean,
    MultiKrum,
    NearestNeighborMixing,
    NormClipping,
    TrimmedMean,
)
from descant.coupling.distances import squared_distances
from descant.errors import SettingError
from tests.aggregators.messages import combined, context, drawn, mail_of

senders = st.integers(1, 14)
attackers = st.integers(0, 6)
seeds = st.integers(0, 10_000)


def krum_scores(x: np.ndarray, f: int, squared: bool = True) -> list[float]:
    found = []
    for i in range(len(x)):
        off = sorted(float(((x[i] - x[j]) ** 2).sum()) ** (1 if squared else 0.5) for j in range(len(x)) if j != i)
        found.append(sum(off[: max(1, len(x) - f - 2)]))
    return found


def krum(x: np.ndarray, f: int) -> list[int]:
    return [int(np.argmin(krum_scores(x, f)))]


def krum_of_lp_proj(x: np.ndarray, f: int) -> list[int]:
    scores = []
    for i in range(len(x)):
        off = sorted(float(np.linalg.norm(x[i] - x[j])) for j in range(len(x)))  # with the zero to itself
        scores.append(sum(off[: len(x) - f - 1]))
    return [int(np.argmin(scores))]


def multi_krum(x: np.ndarray, f: int) -> list[int]:
    return np.argsort(krum_scores(x, f), kind="stable")[: len(x) - f].tolist()


def bulyan(x: np.ndarray, f: int) -> list[int]:
    left, chosen = list(range(len(x))), []
    while len(chosen) < len(x) - 2 * f:
        scores = krum_scores(x[left], f) if len(left) > 1 else [0.0]
        chosen.append(left.pop(int(np.argmin(scores))))
    return chosen


def near_median(rows: np.ndarray, f: int) -> np.ndarray:
    found = np.empty(rows.shape[1:])
    for place in np.ndindex(found.shape):
        values = rows[(slice(None), *place)]
        order = np.argsort(abs(values - np.median(values)), kind="stable")
        found[place] = values[order[: len(values) - 2 * f]].mean()
    return found


@given(senders, attackers, seeds)
def test_what_selects_messages_does_so_by_the_first_leaf(s: int, f: int, seed: int) -> None:
    leaves = drawn(s, seed)
    x, matrix = leaves["delta"].numpy(), leaves["matrix"].numpy()
    f3, f4 = min(f, max(0, (s - 3) // 2)), min(f, max(0, (s - 3) // 4))
    cases: list[tuple[Aggregator, list[int]]] = [
        (Krum(f=f), krum(x, f3)),
        (Krum(f=f, convention="lp-proj"), krum_of_lp_proj(x, min(f, s - 1))),
        (MultiKrum(f=f), multi_krum(x, f3)),
        (KNorm(f=f), np.argsort(np.linalg.norm(x, axis=1))[: s - min(f, s - 1)].tolist()),
    ]
    if s > 1:
        for aggregator, chosen in cases:
            found = combined(aggregator, leaves)
            np.testing.assert_allclose(found["delta"], x[chosen].mean(0), rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(found["matrix"], matrix[chosen].mean(0), rtol=1e-12, atol=1e-14)
        found, chosen = combined(Bulyan(f=f), leaves), bulyan(x, f4)
        np.testing.assert_allclose(found["delta"], near_median(x[chosen], f4), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(found["matrix"], near_median(matrix[chosen], f4), rtol=1e-12, atol=1e-14)


@given(senders, attackers, seeds)
def test_the_trimmed_mean_leaves_out_the_extremes_of_every_coordinate(s: int, f: int, seed: int) -> None:
    leaves, cut = drawn(s, seed), min(f, (s - 1) // 2)
    for name, value in TrimmedMean(f=f)(leaves).items():
        ordered = np.sort(leaves[name].numpy(), axis=0)
        np.testing.assert_allclose(value, ordered[cut : s - cut].mean(0), rtol=1e-12, atol=1e-14)


@given(senders, attackers, seeds)
def test_clipping_scales_down_what_is_longer(s: int, f: int, seed: int) -> None:
    leaves, cut = drawn(s, seed), min(f, (s - 1) // 2)
    for name, leaf in leaves.items():
        rows = leaf.numpy().reshape(s, -1)
        lengths = np.linalg.norm(rows, axis=1)
        k = floor(2 * cut / s * (s - cut))
        bounds = {
            NormClipping(norm=0.7): 0.7,
            NormClipping(): np.sort(lengths)[(s - 1) // 2],
            AdaptiveClipping(f=f): np.sort(lengths)[::-1][min(k, s - 1)],
        }
        for aggregator, bound in bounds.items():
            expected = np.mean([row * min(1, bound / length) for row, length in zip(rows, lengths, strict=True)], 0)
            np.testing.assert_allclose(combined(aggregator, leaves)[name].ravel(), expected, rtol=1e-11, atol=1e-13)


@given(senders, seeds, st.booleans(), st.booleans(), st.booleans())
def test_alone_clipping_is_the_mean_of_what_it_prepares(
    s: int, seed: int, each: bool, weighted: bool, broken: bool
) -> None:
    """With references of all or of each, with weights, and with a message that is not finite."""
    leaves = drawn(s, seed)
    leaves["delta"][0] = torch.inf if broken else 3.0
    references = {"delta": drawn(s if each else 1, seed + 1)["delta"]}  # the other leaf does not say what it is
    mail = mail_of(leaves, references=False)
    object.__setattr__(mail, "references", references)
    object.__setattr__(mail, "weights", torch.arange(1, s + 1) if weighted else None)
    for aggregator in (NormClipping(), NormClipping(norm=0.5), AdaptiveClipping(f=2)):
        prepared = aggregator.prepare(context(), mail)
        expected, found = Mean()(prepared.leaves, mail.weights), aggregator.combine(context(), {}, mail)[1]
        assert list(found) == list(expected)
        for name, value in found.items():
            torch.testing.assert_close(value, expected[name], rtol=1e-11, atol=1e-12)


@given(st.integers(2, 14), attackers, seeds)
def test_mixing_is_with_the_nearest(s: int, f: int, seed: int) -> None:
    leaves, cut = drawn(s, seed), min(f, (s - 1) // 2)
    x = leaves["delta"].numpy()
    prepared = NearestNeighborMixing(f=f).prepare(context(), mail_of(leaves))
    for i in range(s):
        near = np.argsort(((x - x[i]) ** 2).sum(1), kind="stable")[: s - cut]
        for name, leaf in leaves.items():
            np.testing.assert_allclose(prepared[name][i], leaf.numpy()[near].mean(0), rtol=1e-11, atol=1e-13)


@given(senders, st.integers(1, 5), seeds)
def test_buckets_hold_every_message_once(s: int, size: int, seed: int) -> None:
    leaves = {"delta": torch.eye(s, dtype=torch.float64)}
    prepared = Bucketing(size=size).prepare(context(seed), mail_of(leaves))["delta"]
    assert len(prepared) == ceil(s / size)
    held = (prepared > 0).sum(1)
    assert (prepared > 0).sum(0).eq(1).all() and sorted(held.tolist())[1:] == [size] * (len(held) - 1)
    torch.testing.assert_close(prepared.sum(1), torch.ones(len(prepared), dtype=torch.float64))


def test_buckets_are_drawn_anew_in_every_round() -> None:
    mail = mail_of({"delta": torch.eye(12, dtype=torch.float64)})
    first, again, later = (Bucketing().prepare(context().at(t), mail)["delta"] for t in (1, 1, 2))
    assert first.equal(again) and not first.equal(later)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_distances_keep_their_digits_where_models_are_close_and_attackers_far(dtype: torch.dtype) -> None:
    """By products of matrices without a centre, float32 gives distances that are off by hundreds of percent."""
    g = torch.Generator().manual_seed(1)
    centre = 10 * torch.randn(1, 20_000, generator=g, dtype=torch.float64)
    x = (centre + 1e-4 * torch.randn(9, 20_000, generator=g, dtype=torch.float64)).to(dtype)
    x[7], x[8] = 1e30, float("nan")
    found, exact = squared_distances(x), x.double()
    for i in range(7):
        for j in range(7):
            assert float(found[i, j]) == pytest.approx(float((exact[i] - exact[j]).square().sum()), rel=1e-9)
    assert found[:7, 7].min() > 1e59 and found[7, :7].isfinite().all()
    assert found[8, :8].isinf().all() and found[:8, 8].isinf().all() and not found.isnan().any()


def test_distances_in_blocks_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    x = drawn(6, seed=3, d=50)["delta"]
    whole = squared_distances(x)
    monkeypatch.setattr("descant.coupling.columns.BLOCK", 6 * 7)
    torch.testing.assert_close(squared_distances(x), whole, rtol=1e-12, atol=1e-13)


@given(st.integers(1, 50), st.one_of(st.none(), st.integers(0, 60), st.floats(0, 0.99)))
def test_no_more_attackers_are_assumed_than_can_be_survived(s: int, f: Any) -> None:
    for kind in (TrimmedMean, Krum, Bulyan, AdaptiveClipping, KNorm, NearestNeighborMixing):
        if isinstance(f, float) and f >= 1 / kind.per_attacker:  # too many in a round of any size
            with pytest.raises(SettingError, match=rf"f = .*a share of messages below {1 / kind.per_attacker:g}"):
                kind(f=f)
            continue
        found = kind(f=f).attackers(s)
        most = max(0, (s - kind.beside) // kind.per_attacker)
        wanted = most if f is None else ceil(round(f * s, 9)) if isinstance(f, float) else f
        assert found == min(most, wanted)


@pytest.mark.parametrize("name", ["krum", "trimmed-mean", "nnm", "k-norm", "adaptive-clipping", "bulyan"])
@pytest.mark.parametrize("f", [-1, 1.0, float("nan"), -0.5])
def test_impossible_numbers_of_attackers_are_refused(name: str, f: float) -> None:
    with pytest.raises(SettingError, match="f"):
        AGGREGATORS[name](f=f)  # type: ignore[call-arg]


def test_only_the_last_of_a_row_combines() -> None:
    with pytest.raises(SettingError, match="not 'krum'"):
        Chain(steps=(Krum(), Mean()))
    with pytest.raises(SettingError, match="at least one"):
        Chain(steps=())


def test_krum_of_lp_proj_does_not_cut_f_and_rounds_shares_down() -> None:
    told = {f: Krum(f=f, convention="lp-proj").attackers(10) for f in (0.2, 0.5, 0.8, 0.29, 3, 99)}
    assert told == {0.2: 2, 0.5: 5, 0.8: 8, 0.29: 2, 3: 3, 99: 9}
    assert Krum(f=8).attackers(10) == Bulyan(f=3, convention="lp-proj").attackers(15) == 3
    leaves = drawn(10, seed=1)
    found = combined(Krum(f=0.8, convention="lp-proj"), leaves)
    np.testing.assert_array_equal(found["delta"], leaves["delta"][0].numpy())  # all scores are zero


@given(senders, seeds)
def test_the_median_of_lp_proj_is_the_lower_of_the_two(s: int, seed: int) -> None:
    leaves = drawn(s, seed)
    for name, value in CoordinateMedian(convention="lp-proj")(leaves, weights=torch.arange(s) + 1.0).items():
        np.testing.assert_array_equal(value.numpy(), np.sort(leaves[name].numpy(), axis=0)[(s - 1) // 2])
    with pytest.raises(SettingError, match="where delta smooths it"):
        CoordinateMedian(convention="lp-proj", delta=0.1)


@pytest.mark.parametrize("aggregator", [NormClipping(norm=0.5), AdaptiveClipping(f=1)], ids=lambda a: a.name)
def test_whole_numbers_are_not_clipped(aggregator: NormClipping | AdaptiveClipping) -> None:
    leaves = drawn(5, 0) | {"counts": torch.arange(1, 6)[:, None] * torch.tensor([1, 10])}
    mail = mail_of(leaves)
    prepared = aggregator.prepare(mail.ctx, mail)
    assert torch.equal(prepared["counts"], leaves["counts"])
    assert not torch.equal(prepared["delta"], leaves["delta"])
