"""Shares: whole numbers in proportion, none too small."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from descant.data.partitions.base import hands_of, shares

WEIGHTS = st.lists(st.floats(0, 1e3), min_size=1, max_size=20).filter(lambda weights: max(weights) > 1e-6)


@given(WEIGHTS, st.integers(0, 5), st.integers(0, 10_000))
def test_shares_add_up_and_none_is_below_the_least(weights: list[float], least: int, rest: int) -> None:
    total = least * len(weights) + rest
    sizes = shares(np.array(weights), total, least)
    assert sizes.sum() == total and sizes.min() >= least


@given(WEIGHTS, st.integers(0, 5), st.integers(0, 10_000))
def test_those_above_the_least_are_proportional_to_within_one(weights: list[float], least: int, rest: int) -> None:
    w, total = np.array(weights), least * len(weights) + rest
    sizes = shares(w, total, least)
    low, high = 0.0, total / max(w.max(), 1e-6) + 1  # n_k = max(least, c w_k): find c by halving
    for _ in range(200):
        c = (low + high) / 2
        low, high = (c, high) if np.maximum(least, c * w).sum() < total else (low, c)
    assert np.abs(sizes - np.maximum(least, high * w)).max() < 1 + 1e-6


def test_shares_by_hand() -> None:
    assert shares(np.array([0.5, 0.3, 0.2]), 10).tolist() == [5, 3, 2]
    assert shares(np.array([1.0, 1.0, 1.0]), 10).tolist() == [4, 3, 3]
    assert shares(np.array([0.7, 2.1, 2.2]), 5).tolist() == [1, 2, 2]  # the rest goes to the largest remainder
    # 97, 2 and 1: two are raised to five, and the first pays
    assert shares(np.array([0.97, 0.02, 0.01]), 100, 5).tolist() == [90, 5, 5]
    # raising the last takes the second below five as well
    assert shares(np.array([0.94, 0.05, 0.01]), 100, 5).tolist() == [90, 5, 5]


def test_hands_of_owners() -> None:
    hands = hands_of(np.array([2, 0, -1, 2, 0]), 4)
    assert [hand.tolist() for hand in hands] == [[1, 4], [], [0, 3], []]
