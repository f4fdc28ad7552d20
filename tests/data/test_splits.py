"""The split rule of the lp-proj authors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from descant.data.splits import split_sizes
from descant.errors import SettingError


def sizes(n: int, test: float = 0.2, valid: float = 0.2) -> tuple[int, int, int]:
    train, valid_size, test_size = split_sizes(np.array([n]), test=test, valid=valid)
    return int(train[0]), int(valid_size[0]), int(test_size[0])


def test_202_examples_are_129_32_and_41() -> None:
    assert sizes(202) == (129, 32, 41)


def test_316_examples_are_202_50_and_64() -> None:
    assert sizes(316) == (202, 50, 64)


@settings(deadline=None)
@given(st.integers(1, 100_000))
def test_the_defaults_are_the_authors_own_arithmetic(n: int) -> None:
    train_len = int(0.8 * n)
    valid_len = int(0.2 * train_len)
    assert sizes(n) == (train_len - valid_len, valid_len, n - train_len)


@settings(deadline=None)
@given(st.integers(1, 1000), st.integers(0, 99), st.integers(0, 99))
def test_shares_are_taken_as_written(n: int, test: int, valid: int) -> None:
    kept = n * (100 - test) // 100
    assert sizes(n, test / 100, valid / 100) == (kept - kept * valid // 100, kept * valid // 100, n - kept)


def test_no_share_gives_everything_to_train() -> None:
    assert sizes(7, 0, 0) == (7, 0, 0)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_outside_zero_to_one_is_refused(share: float) -> None:
    with pytest.raises(SettingError, match=r"test = .*\[0, 1\)"):
        sizes(10, test=share)
    with pytest.raises(SettingError, match=r"valid = .*\[0, 1\)"):
        sizes(10, valid=share)
