"""Random draws by address.

Every draw of a run has an address, such as (seed, role, round, client, step), and depends on nothing else:
not on the order of the work, the number of processes, the device, or who else took part. `bits` hashes an
address to 64 bits with the finaliser of splitmix64 (Steele, Lea and Flood, 2014), in int64 tensor operations,
so that one call serves a whole cohort; the other functions turn those bits into what is wanted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from hashlib import blake2b
from operator import index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from descant.errors import SlowWarning

Word = int | str | Tensor

_MASK = (1 << 64) - 1
_LAST = torch.iinfo(torch.int64).max
_GOLDEN = 0x9E3779B97F4A7C15
_FEW_THREADS = 2  # with so few, NumPy, which sorts by vector instructions and in one thread, is faster than torch
_LONGEST = 300  # letters of what a compiler says
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def _signed(word: int) -> int:
    """The same 64 bits as the int64 that torch understands."""
    word &= _MASK
    return word - (1 << 64) if word >> 63 else word


def _mix_int(z: int) -> int:
    for shift, factor in _FACTORS:
        z = ((z ^ (z >> shift)) * factor) & _MASK
    return z ^ (z >> 31)


def _shift(z: Tensor, by: int) -> Tensor:
    return (z >> by).bitwise_and_((1 << (64 - by)) - 1)  # >> on int64 is arithmetic: clear the copies of the sign


def _mix(z: Tensor) -> Tensor:
    for shift, factor in _FACTORS:
        z = (z ^ _shift(z, shift)) * _signed(factor)
    return z ^ _shift(z, 31)


def _absorb(state: int | Tensor, word: Tensor) -> Tensor:
    return _mix(_mix(word.long() + _signed(_GOLDEN)) ^ state)


def _number(word: int | str) -> int:
    if isinstance(word, str):
        return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
    return index(word) & _MASK  # of an int of any kind, numpy's too


def bits(*address: Word) -> Tensor:
    """64 random bits (int64) for an address of integers, names and int64 tensors, which broadcast.

    >>> bits(0, "batch", torch.arange(3)).shape
    torch.Size([3])
    >>> bool(bits(0, "batch", torch.arange(3))[2] == bits(0, "batch", 2))
    True
    """
    state: int | Tensor = 0
    for word in address:
        if isinstance(word, Tensor):
            state = _absorb(_signed(state) if isinstance(state, int) else state, word)
        else:
            number = _mix_int((_number(word) + _GOLDEN) & _MASK)
            state = _mix(state ^ _signed(number)) if isinstance(state, Tensor) else _mix_int(state ^ number)
    return state if isinstance(state, Tensor) else torch.tensor(_signed(state))


def argsort(bits: Tensor) -> Tensor:
    """The order of the bits along the last axis. That of equal ones, if any, is not told."""
    if bits.device.type == "cpu" and torch.get_num_threads() <= _FEW_THREADS:
        return torch.from_numpy(np.argsort(bits.numpy(), axis=-1))
    return bits.argsort(-1)


def orders(key: Tensor, clients: Tensor, epochs: int, examples: int, sizes: Tensor) -> Tensor:
    """The orders [K, epochs, examples] in which K clients go through their examples: the argsort of
    `bits(*address, clients[:, None, None], epoch, example)`, where `key` is `bits(*address)`.

    What lies behind a client's `sizes` [K] examples comes last.
    """
    if clients.device.type == "cpu":
        return argsort(_hashed(key, clients, torch.arange(epochs), torch.arange(examples), sizes))
    # Sizes of one would be compiled apart.
    k, most = len(clients), (max(2, epochs), max(2, examples))
    twice = (clients.repeat(2), sizes.repeat(2)) if k == 1 else (clients, sizes)
    there = key.to(clients.device, non_blocking=True)  # nobody waits until the GPU has done what it does now
    # Numbers made in the program itself may be of 32 bits there, which the hash's constants do not fit.
    counted = [torch.arange(each, device=clients.device) for each in most]
    hashed = _on_gpu(there.view(1, 1, 1), twice[0], *counted, twice[1])
    return hashed[:k, :epochs, :examples].argsort(-1)


def _hashed(key: Tensor, clients: Tensor, epoch: Tensor, example: Tensor, sizes: Tensor) -> Tensor:
    state = key
    for word in (clients[:, None, None], epoch[:, None], example):
        state = _absorb(state, word)
    return state.masked_fill_(example >= sizes[:, None, None], _LAST)


def _program() -> Callable[..., Tensor]:
    """The hash of all addresses as one kernel, where it would be some eighty."""
    return torch.compile(_hashed, dynamic=True, fullgraph=True)


class _Hasher:
    """The hash on a GPU: compiled at the first call or, where that fails, kernel by kernel from then on."""

    def __init__(self) -> None:
        self._compiled: Callable[..., Tensor] | None = None
        self._fails = False  # to try it again would take longer than the kernels do

    def __call__(self, *arguments: Any) -> Tensor:
        if not self._fails:
            self._compiled = self._compiled or _program()
            try:
                return self._compiled(*arguments)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # of many kinds: there is no compiler, say
                self._fails = True
                why = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]
                said = f"the order of examples is drawn kernel by kernel, since it cannot be compiled ({why})"
                warnings.warn(SlowWarning(said), stacklevel=2)
        return _hashed(*arguments)


_on_gpu = _Hasher()


def uniform(*address: Word) -> Tensor:
    """Float64 draws from the open interval (0, 1)."""
    return (_shift(bits(*address), 11).double() + 0.5) * 2.0**-53


def normal(*address: Word) -> Tensor:
    """Float64 draws from N(0, 1). Rounded to float32, they agree on every device."""
    z: Tensor = torch.special.ndtri(uniform(*address))
    return z


def stream(key: Tensor, counter: Tensor) -> Tensor:
    """64 random bits (int64) for each `counter`: that number of splitmix64's own sequence from the state `key`.

    It is for millions of draws at one address: it hashes once, where `bits` does so for each word of an address.
    """
    z = counter * _signed(_GOLDEN)
    z += key
    for shift, factor in _FACTORS:
        z ^= _shift(z, shift)
        z *= _signed(factor)
    z ^= _shift(z, 31)
    return z


def seed_of(*address: Word) -> int:
    """A seed for somebody else's generator, such as the one that a module's own initialisation draws from."""
    return int(bits(*address)) & _MASK
