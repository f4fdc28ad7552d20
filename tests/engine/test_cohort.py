"""Who takes part: so many, without replacement, uniformly or in proportion to a weight."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.engine import cohort_size
from descant.engine.cohort import sample
from descant.errors import SettingError
from descant.methods import Local


@pytest.mark.parametrize(
    ("asked", "clients", "size"),
    [(None, 7, 7), (1, 7, 1), (7, 7, 7), (1.0, 7, 7), (0.1, 100, 10), (0.5, 7, 4), (0.001, 7, 1), (0.1, 248, 25)],
)
def test_a_number_a_fraction_or_everyone(asked: Any, clients: int, size: int) -> None:
    assert cohort_size(asked, clients) == size


@pytest.mark.parametrize("asked", [0, -1, 8, 0.0, -0.1, 1.5, float("nan"), float("inf"), True, False])
def test_a_cohort_that_cannot_be_is_refused_by_name(asked: Any) -> None:
    with pytest.raises(SettingError, match=rf"cohort = {asked}: it must be a number of clients from 1 to 7"):
        cohort_size(asked, 7)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("rounds", 0, "a whole number, 1 or more"),
        ("sampling", "biggest", "'uniform' or 'size'"),
        ("trainers", "nobody", "'cohort' or 'everyone'"),
        ("stragglers", 1.1, "a share from 0 to 1"),
        ("stragglers", -0.1, "a share from 0 to 1"),
        ("nonfinite", "ignore", "'drop' or 'keep'"),
        ("chunk", -1, "a whole number, 1 or more, or nothing"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(run: Any, field: str, value: Any, allowed: str) -> None:
    with pytest.raises(SettingError, match=rf"{field} = {value!r}: it must be {allowed}"):
        run(Local(), **{field: value})


@given(seed=st.integers(0, 2**40), round=st.integers(1, 10_000), clients=st.integers(1, 50), data=st.data())
def test_a_cohort_is_so_many_different_clients_in_order(
    seed: int, round: int, clients: int, data: st.DataObject
) -> None:
    size = data.draw(st.integers(1, clients))
    drawn = sample(seed, round, size, torch.ones(clients)).tolist()
    assert len(set(drawn)) == size and drawn == sorted(drawn)
    assert set(drawn) <= set(range(clients))


def counts(size: int, weights: torch.Tensor, rounds: int) -> torch.Tensor:
    """How often each client was drawn."""
    drawn = torch.cat([sample(3, t, size, weights) for t in range(1, rounds + 1)])
    return drawn.bincount(minlength=len(weights)).double()


@pytest.mark.slow
def test_a_uniform_cohort_draws_every_client_alike() -> None:
    """3 of 10 in 3,000 rounds: chi-square (over 1 - S/N, for want of replacement), 9 degrees; 27.9 is 99.9 %."""
    drawn = counts(3, torch.ones(10), 3000)
    assert float(((drawn - 900).square() / 900).sum() / (1 - 3 / 10) * (1 - 1 / 10)) < 27.9


@pytest.mark.parametrize("rounds", [1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_cohort_of_one_is_drawn_in_proportion_to_the_weights(rounds: int) -> None:
    """Chi-square with 3 degrees of freedom: 16.3 is its 99.9 % point."""
    weights = torch.tensor([1.0, 2, 3, 4])
    drawn, expected = counts(1, weights, rounds), rounds * weights / 10
    assert float(((drawn - expected).square() / expected).sum()) < 16.3


@pytest.mark.parametrize("rounds", [1000, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_weighted_cohort_without_replacement_is_successive_draws(rounds: int) -> None:
    """Two of three with weights 1, 2, 3. P(not k) = sum over orders of the other two, worked out by hand."""
    w = [1.0, 2.0, 3.0]
    left_out = [
        sum(w[i] / 6 * w[j] / (6 - w[i]) for i in range(3) for j in range(3) if len({i, j, k}) == 3)
        for k in range(3)
    ]
    drawn = counts(2, torch.tensor(w), rounds)
    for k in range(3):
        spread = (left_out[k] * (1 - left_out[k]) / rounds) ** 0.5
        assert abs(1 - float(drawn[k]) / rounds - left_out[k]) <= 4 * spread


def test_rounds_and_seeds_draw_independently() -> None:
    first = [tuple(sample(0, t, 5, torch.ones(40)).tolist()) for t in range(50)]
    other = [tuple(sample(1, t, 5, torch.ones(40)).tolist()) for t in range(50)]
    assert len({*first, *other}) == 100


@pytest.mark.parametrize("bad", [0.0, float("nan")])
def test_clients_without_weight_are_never_drawn(bad: float) -> None:
    weights = torch.tensor([1.0, bad, 1e-30, bad, 1.0])
    assert all(sample(0, t, 3, weights).tolist() == [0, 2, 4] for t in range(20))
    assert sample(0, 1, 4, weights).tolist() == [0, 2, 4]  # a smaller cohort
    assert sample(0, 1, 4, torch.tensor([bad, bad])).tolist() == []


@pytest.mark.slow
def test_sampling_by_size_draws_large_clients_more_often(run: Any, federation: Any) -> None:
    """Sizes 1 and 3: in 400 rounds of one client each, the large one is drawn 300 times, give or take 35."""
    done = run(Local(steps=1), data=federation((1, 3)), rounds=400, cohort=1, sampling="size")
    small, large = done.history.spent[400]["gradients"].tolist()
    assert small + large == 400
    assert abs(large - 300) <= 35
