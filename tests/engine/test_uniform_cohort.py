"""Uniform cohorts of large federations: drawn in time that depends on the cohort alone."""

from __future__ import annotations

import pytest
import torch

from descant.engine.cohort import sample, sample_uniform


@pytest.mark.parametrize(("size", "clients"), [(1, 8), (5, 40), (100, 800), (100, 10_000_000)])
def test_so_many_different_clients_in_order(size: int, clients: int) -> None:
    for round in range(20):
        drawn = sample_uniform(0, round, size, clients).tolist()
        assert len(set(drawn)) == size and drawn == sorted(drawn) and drawn[0] >= 0 and drawn[-1] < clients


@pytest.mark.parametrize("rounds", [1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_every_client_is_as_likely_as_any(rounds: int) -> None:
    """5 of 40: chi-square (over 1 - S/N, for want of replacement), 39 degrees; 72.1 is 99.9 %."""
    drawn, expected = torch.cat([sample_uniform(3, t, 5, 40) for t in range(rounds)]), rounds * 5 / 40
    counts = drawn.bincount(minlength=40).double()
    assert float(((counts - expected).square() / expected).sum() / (1 - 5 / 40) * (1 - 1 / 40)) < 72.1


def test_a_large_cohort_is_drawn_by_keys() -> None:
    assert sample_uniform(1, 2, 6, 40).equal(sample(1, 2, 6, torch.ones(40)))
    assert sample_uniform(1, 2, 40, 40).tolist() == list(range(40))
