"""Natural clients, and groups of them."""

import numpy as np
import pytest

from descant.data import DataError
from descant.data.partitions import Natural

OWNERS = np.array([3, 0, 1, 0, 4, 1, 1, 4, 3, 0])  # owner 2 has nothing
TARGETS = np.zeros(10, dtype=np.int64)


def test_every_owner_is_a_client() -> None:
    hands = Natural().assign(TARGETS, 0, OWNERS)
    assert [hand.tolist() for hand in hands] == [[1, 3, 9], [2, 5, 6], [0, 8], [4, 7]]


def test_owners_are_grouped_in_their_order() -> None:
    hands = Natural(clients=2).assign(TARGETS, 0, OWNERS)
    assert [hand.tolist() for hand in hands] == [[1, 3, 9, 2, 5, 6], [0, 8, 4, 7]]
    sizes = [
        len(np.unique(np.arange(539)[hand])) for hand in Natural(clients=10).assign(TARGETS, 0, np.arange(539))
    ]
    assert sizes == [54] * 9 + [53]


def test_small_owners_are_left_out() -> None:
    assert [hand.tolist() for hand in Natural(least=3).assign(TARGETS, 0, OWNERS)] == [[1, 3, 9], [2, 5, 6]]


def test_data_without_owners_is_refused() -> None:
    with pytest.raises(DataError, match="does not say whose its examples are"):
        Natural().assign(TARGETS, 0)
