"""Figures across clients, against numpy by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from descant.metrics import across_clients

figures = st.lists(
    st.tuples(st.floats(-100, 100, allow_subnormal=False), st.integers(0, 50)), min_size=1, max_size=40
)


def arrays(rows: list[tuple[float, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([value for value, _ in rows]), np.array([size for _, size in rows], dtype=np.int64)


def test_six_numbers_by_hand() -> None:
    values, sizes = np.array([0.5, 1.0, 0.0, 0.5]), np.array([1, 1, 2, 4])
    across = across_clients(values, sizes, higher_is_better=True)
    assert across == {
        "mean": 0.5,
        "weighted_mean": (0.5 + 1.0 + 0.0 + 2.0) / 8,
        "variance": 0.5 / 4,  # of the population: 0, 1/4, 1/4, 0
        "std": pytest.approx(np.sqrt(0.125)),
        "worst_10": 0.0,
        "best_10": 1.0,
    }


@given(figures)
def test_clients_without_examples_are_left_out(rows: list[tuple[float, int]]) -> None:
    held = [row for row in rows if row[1] > 0]
    nan_where_empty = [(value if size else float("nan"), size) for value, size in rows]
    across = across_clients(*arrays(nan_where_empty), higher_is_better=True)
    if held:
        assert across == across_clients(*arrays(held), higher_is_better=True)
        assert not any(np.isnan(value) for value in across.values())
    else:
        assert all(np.isnan(value) for value in across.values())


@given(figures)
def test_a_figure_that_is_undefined_for_a_client_leaves_it_out(rows: list[tuple[float, int]]) -> None:
    values, sizes = arrays(rows)
    undefined = np.where(np.arange(len(values)) % 3 == 1, np.nan, values)
    kept = ~np.isnan(undefined)
    together = across_clients(np.stack([undefined, values]), sizes, higher_is_better=True, undefined=True)
    for t, here in enumerate((kept, np.ones_like(kept))):
        expected = across_clients(values[here], sizes[here], higher_is_better=True)
        for name, number in expected.items():
            np.testing.assert_allclose(together[name][t], number, rtol=1e-12)
    elsewhere = across_clients(undefined, sizes, higher_is_better=True)
    assert np.isnan(elsewhere["mean"]) == bool((~kept & (sizes > 0)).any() or not (sizes > 0).any())


@pytest.mark.parametrize(("N", "tenth"), [(1, 1), (9, 1), (10, 1), (11, 2), (20, 2), (25, 3), (100, 10)])
@pytest.mark.parametrize("higher_is_better", [True, False])
def test_the_worst_tenth_is_rounded_up_and_never_empty(N: int, tenth: int, higher_is_better: bool) -> None:
    values = np.random.default_rng(N).permutation(N).astype(float)
    lowest, highest = np.arange(tenth), np.arange(N - tenth, N)
    worst, best = (lowest, highest) if higher_is_better else (highest, lowest)
    across = across_clients(values, np.ones(N, dtype=np.int64), higher_is_better)
    assert across["worst_10"] == worst.mean() and across["best_10"] == best.mean()


@given(figures)
def test_the_worst_off_are_never_better_than_the_mean(rows: list[tuple[float, int]]) -> None:
    values, sizes = arrays([(value, size + 1) for value, size in rows])
    up, down = (across_clients(values, sizes, higher_is_better=better) for better in (True, False))
    assert up["worst_10"] <= up["mean"] + 1e-9
    assert down["worst_10"] >= down["mean"] - 1e-9
    for name in ("mean", "weighted_mean", "variance", "std"):
        assert up[name] == down[name]


@given(figures)
def test_a_weight_is_a_number_of_equal_examples(rows: list[tuple[float, int]]) -> None:
    values, sizes = arrays([(value, size + 1) for value, size in rows])
    across = across_clients(values, sizes, higher_is_better=True)
    assert across["weighted_mean"] == pytest.approx(np.repeat(values, sizes).mean(), rel=1e-9, abs=1e-9)
    assert across["variance"] == pytest.approx(((values - values.mean()) ** 2).mean(), rel=1e-9, abs=1e-9)


def test_many_rounds_at_once_are_each_round_alone() -> None:
    rounds, sizes = np.random.default_rng(0).normal(size=(7, 23)), np.arange(23) % 5
    together = across_clients(rounds, sizes, higher_is_better=False)
    for t, values in enumerate(rounds):
        alone = across_clients(values, sizes, higher_is_better=False)
        assert {name: numbers[t] for name, numbers in together.items()} == pytest.approx(alone, rel=1e-12)
