"""Draws by address: the hash, what is made of it, and that nothing but the address matters."""

import doctest
from hashlib import blake2b

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from descant import draws
from descant.draws import bits, normal, seed_of, stream, uniform

M = 2**64
words = st.integers(-(2**63), 2**63 - 1)
addresses = st.lists(words, min_size=1, max_size=5)


def splitmix64(z: int) -> int:
    """The finaliser of splitmix64 in plain integers (Steele, Lea and Flood, 2014)."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % M
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % M
    return z ^ (z >> 31)


def reference(*address: int | str) -> int:
    """An address chained through the finaliser, one word after the other, as the int64 with these bits."""
    state = 0
    for word in address:
        if isinstance(word, str):
            word = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
        state = splitmix64(state ^ splitmix64((word + 0x9E3779B97F4A7C15) % M))
    return state - M if state >= M // 2 else state


def test_the_reference_is_splitmix64_as_published() -> None:
    # The first outputs of the published generator seeded with 0: its k-th is the finaliser of k golden gammas.
    first = [splitmix64(k * 0x9E3779B97F4A7C15 % M) for k in (1, 2, 3)]
    assert first == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(addresses)
def test_bits_are_those_of_the_plain_integer_reference(address: list[int]) -> None:
    assert int(bits(*address)) == reference(*address)
    assert int(bits(*[torch.tensor(word) for word in address])) == reference(*address)


@given(st.text(max_size=20), words, st.text(max_size=20))
def test_names_are_words_too(role: str, word: int, other: str) -> None:
    assert int(bits(role, word, other)) == reference(role, word, other)
    assert int(bits(role, torch.tensor(word), other)) == reference(role, word, other)


@given(addresses, st.data())
def test_scalar_and_tensor_words_agree_wherever_they_stand(address: list[int], data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.booleans(), min_size=len(address), max_size=len(address)))
    mixed = [torch.tensor(w) if kind else w for w, kind in zip(address, kinds, strict=True)]
    assert torch.equal(bits(*mixed), bits(*address))


def test_bits_never_change_between_versions() -> None:
    # What the reference gives for two addresses, written out: runs of the past stay reproducible.
    assert int(bits(0)) == reference(0) == 5197578548964807871
    address = (7, "batch", "shared", 3, 11)
    assert int(bits(*address)) == reference(*address) == 333791785203432298


def test_words_broadcast_and_each_entry_is_the_draw_of_its_own_address() -> None:
    client, step = torch.tensor([3, 5, 8])[:, None], torch.arange(4)
    table = bits(1, "batch", client, step, "end")
    assert table.shape == (3, 4)
    for i, k in enumerate((3, 5, 8)):
        for s in range(4):
            assert int(table[i, s]) == reference(1, "batch", k, s, "end")


def test_numpy_integers_are_integers() -> None:
    assert torch.equal(bits(np.int64(-3), np.uint8(7)), bits(-3, 7))
    with pytest.raises(TypeError):
        bits(0.5)  # type: ignore[arg-type]


@given(words, words)
def test_the_order_of_words_matters(a: int, b: int) -> None:
    assert torch.equal(bits(a, b), bits(b, a)) == (a == b)


@given(addresses)
def test_a_longer_address_is_another_address(address: list[int]) -> None:
    assert int(bits(*address, 0)) != int(bits(*address))
    assert int(bits(0, *address)) != int(bits(*address))


def test_neighbouring_addresses_share_no_bits_beyond_chance() -> None:
    k = torch.arange(4096)
    for other in (bits(0, "role", k + 1), bits(1, "role", k), bits(0, "roles", k), bits(0, "role", k, 0)):
        flipped = (bits(0, "role", k) ^ other).numpy().view(np.uint64)
        ones = np.bitwise_count(flipped).astype(float)
        # A fair 64-bit word has 32 ones with variance 16: the mean of 4096 is within 5 standard errors.
        assert abs(ones.mean() - 32) < 5 * 4 / 64
        # and so is every single bit of the word, in 4096 tosses
        each = (flipped[:, None] >> np.arange(64, dtype=np.uint64) & np.uint64(1)).mean(0)
        assert np.all(np.abs(each - 0.5) < 5 * 0.5 / 64)


@pytest.mark.parametrize("bit", [0, 1, 31, 32, 62, 63])
def test_flipping_one_bit_of_a_word_flips_half_of_the_draw(bit: int) -> None:
    k = torch.arange(4096)
    flip = torch.tensor(-(2**63) if bit == 63 else 1 << bit)
    ones = np.bitwise_count((bits(5, k) ^ bits(5, k ^ flip)).numpy().view(np.uint64)).astype(float)
    assert abs(ones.mean() - 32) < 5 * 4 / 64


def test_uniform_draws_are_uniform_on_the_open_interval() -> None:
    u = uniform(3, "test", torch.arange(200_000)).numpy()
    assert u.dtype == np.float64
    assert u.min() > 0 and u.max() < 1
    assert abs(u.mean() - 1 / 2) < 5 * np.sqrt(1 / 12 / len(u))
    assert abs(u.var() - 1 / 12) < 5 * np.sqrt(1 / 180 / len(u))
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_uniform_is_the_upper_53_bits_in_the_middle_of_their_cell() -> None:
    for word in range(50):
        assert float(uniform(word)) == ((reference(word) % M >> 11) + 0.5) / 2**53


def test_normal_draws_are_standard_normal() -> None:
    z = normal(3, "test", torch.arange(200_000)).numpy()
    assert z.dtype == np.float64
    assert abs(z.mean()) < 5 / np.sqrt(len(z))
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / len(z))
    assert abs(stats.kurtosis(z)) < 5 * np.sqrt(24 / len(z))
    assert stats.kstest(z, "norm").pvalue > 1e-3


def test_normal_is_the_normal_quantile_of_uniform() -> None:
    k = torch.arange(1000)
    np.testing.assert_allclose(normal(0, k), stats.norm.ppf(uniform(0, k)), rtol=1e-12)


def test_draws_at_neighbouring_addresses_do_not_correlate() -> None:
    k = torch.arange(100_000)
    here = normal(0, "role", k)
    for there in (normal(0, "role", k + 1), normal(1, "role", k), normal(0, "other", k)):
        assert abs(float((here * there).mean())) < 5 / np.sqrt(len(k))


def test_draws_work_under_vmap() -> None:
    keys, place = torch.arange(6), torch.arange(9)
    mapped = torch.func.vmap(lambda key: bits(key, "dropout", place))(keys)
    assert torch.equal(mapped, bits(keys[:, None], "dropout", place))
    assert torch.equal(torch.func.vmap(normal)(keys), normal(keys))


def test_a_seed_for_somebody_elses_generator_is_an_unsigned_64_bit_number() -> None:
    seeds = [seed_of(0, "start", k) for k in range(100)]
    assert seeds == [reference(0, "start", k) % M for k in range(100)]
    assert any(seed >= M // 2 for seed in seeds)


def test_the_examples_in_the_docstrings_hold() -> None:
    result = doctest.testmod(draws)
    assert result.attempted > 0 and result.failed == 0


@given(words, st.lists(words, min_size=1, max_size=5))
def test_a_stream_is_the_published_generator_from_any_state(key: int, counters: list[int]) -> None:
    counter = torch.tensor(counters)
    found = stream(torch.tensor(key), counter)
    assert [int(word) % M for word in found] == [splitmix64((key + k * 0x9E3779B97F4A7C15) % M) for k in counters]
    assert counter.tolist() == counters, "which it leaves alone"
