"""Who is malicious: so many, such a share, or these; the same ones in every method that is compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant.attacks import malicious_clients
from descant.errors import SettingError


@given(st.integers(1, 60), st.data(), st.integers(0, 2**40))
def test_a_number_of_them_is_drawn_and_more_contain_fewer(clients: int, data: Any, seed: int) -> None:
    few = data.draw(st.integers(0, clients))
    more = data.draw(st.integers(few, clients))
    some, others = (malicious_clients(number, clients, seed).tolist() for number in (few, more))
    assert len(some) == few and len(others) == more
    assert some == sorted(set(some)) and set(some) <= set(others) <= set(range(clients))
    assert malicious_clients(few, clients, seed).tolist() == some


@given(st.integers(1, 60), st.floats(0, 1))
def test_a_share_is_that_number_rounded(clients: int, share: float) -> None:
    assert torch.equal(malicious_clients(share, clients, 3), malicious_clients(round(share * clients), clients, 3))


@given(st.lists(st.integers(0, 9), unique=True))
def test_those_that_are_named_are_they(named: list[int]) -> None:
    assert malicious_clients(tuple(named), 10, 0).tolist() == sorted(named)


def test_another_seed_draws_others_and_everyone_is_as_likely() -> None:
    drawn = torch.stack([torch.isin(torch.arange(10), malicious_clients(3, 10, seed)) for seed in range(2000)])
    assert drawn.sum(1).tolist() == [3] * 2000
    assert float((drawn.double().mean(0) - 0.3).abs().max()) <= 4 * (0.3 * 0.7 / 2000) ** 0.5


def test_one_is_a_client_and_one_point_is_all_of_them() -> None:
    assert len(malicious_clients(1, 10, 0)) == 1
    assert malicious_clients(1.0, 10, 0).tolist() == list(range(10))


@pytest.mark.parametrize("wrong", [-1, 11, -0.1, 1.1, float("nan"), True, (0, 0), (10,), (-1,)], ids=str)
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(SettingError, match="malicious ="):
        malicious_clients(wrong, 10, 0)
