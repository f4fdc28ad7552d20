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

import torch
from torch import Tensor

from descant.errors import SlowWarning

Word = int | str | Tensor
Program = Callable[..., Tensor]

_MASK = (1 << 64) - 1
_LAST = torch.iinfo(torch.int64).max
_GOLDEN = 0x9E3779B97F4A7C15
# Examples are sorted by the upper bits of their hashes; the lower ones make room for their numbers. How many these
# are is fixed: it must not depend on the sizes of clients that happen to be sorted together.
_LOW = 16
_UPPER = -1 << _LOW
# NumPy sorts by vector instructions, in one thread. Torch needs more threads than these to be faster, in rows up to
# SHORT and in longer ones.
_SHORT, _THREADS_OF_SHORT, _THREADS_OF_LONG = 320, 4, 2
_SHORT_ON_GPU = 1024  # examples that one kernel sorts: with more it takes long to compile
_HELD_EPOCHS = 8  # of a client, in which a kernel is held against the processor
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


def orders(key: Tensor, clients: Tensor, epochs: int, examples: int, sizes: Tensor) -> Tensor:
    """The orders [K, epochs, examples] in which K clients go through their examples.

    Examples are sorted by the upper 48 of `bits(*address, client, epoch, example)`, where these are equal by their
    numbers; what lies behind a client's `sizes` [K] examples comes last. The `key` is `bits(*address)`, in the
    processor's memory.
    """
    if clients.device.type == "cpu":
        return _sorted(_hashed(key, clients, torch.arange(epochs), torch.arange(examples), sizes))
    if clients.device.type == "cuda" and examples <= _SHORT_ON_GPU:
        return _by_kernel(key, clients, epochs, examples, sizes)
    return _in_steps(key, clients, epochs, examples, sizes)


def _hashed(key: Tensor, clients: Tensor, epoch: Tensor, example: Tensor, sizes: Tensor) -> Tensor:
    """What orders are sorted by [K, epochs, examples]: the upper bits of hashes. All below them is zero."""
    state = key
    for word in (clients[:, None, None], epoch[:, None], example):
        state = _absorb(state, word)
    return state.bitwise_and_(_UPPER).masked_fill_(example >= sizes[:, None, None], _LAST & _UPPER)


def _sorted(hashed: Tensor) -> Tensor:
    """The orders of hashes in the processor's memory, which are overwritten.

    With the example's number in its lower bits each is a key of its own, and the order can be read off the sorted
    keys: to sort numbers alone is two to three times as fast as to find where each came from.
    """
    length = hashed.shape[-1]
    if length > 1 << _LOW:
        return hashed.argsort(dim=-1, stable=True)
    hashed |= torch.arange(length)
    if torch.get_num_threads() <= (_THREADS_OF_SHORT if length <= _SHORT else _THREADS_OF_LONG):
        hashed.numpy().sort(-1)
    else:
        hashed = hashed.sort(-1).values
    return hashed.bitwise_and_(~_UPPER)


def _in_steps(key: Tensor, clients: Tensor, epochs: int, examples: int, sizes: Tensor) -> Tensor:
    """The orders on a GPU where hashes are written, and then sorted."""
    # Sizes of one would be compiled apart.
    k, most = len(clients), (max(2, epochs), max(2, examples))
    twice = (clients.repeat(2), sizes.repeat(2)) if k == 1 else (clients, sizes)
    there = key.to(clients.device, non_blocking=True)  # nobody waits until the GPU has done what it does now
    # Numbers made in the program itself may be of 32 bits there, which the hash's constants do not fit.
    counted = [torch.arange(each, device=clients.device) for each in most]
    hashed = _hash_on_gpu(there.view(1, 1, 1), twice[0], *counted, twice[1])
    return hashed[:k, :epochs, :examples].argsort(dim=-1, stable=True)


def _program() -> Program:
    """The hash of all addresses as one kernel, where it would be some eighty."""
    return torch.compile(_hashed, dynamic=True, fullgraph=True)


def _kernel() -> Program:
    """The orders by one kernel that hashes and sorts.

    It is compiled anew for every kind of GPU and version of Triton. So where it is new, the order that it gives the
    first client is held against the processor's.
    """
    from descant import sorting  # which needs Triton

    held = set[int]()

    def drawn(key: Tensor, clients: Tensor, epochs: int, examples: int, sizes: Tensor) -> Tensor:
        found = sorting.orders(key, clients, epochs, examples, sizes, _LOW)
        if (length := sorting.padded(examples)) not in held:
            few = min(epochs, _HELD_EPOCHS)
            if not found[:1, :few].cpu().equal(orders(key, clients[:1].cpu(), few, examples, sizes[:1].cpu())):
                raise RuntimeError("on this GPU its order is not that of the processor")
            held.add(length)
        return found

    return drawn


class _Tried:
    """A program for a GPU: made at the first call or, where that fails, replaced by another from then on."""

    def __init__(self, make: Callable[[], Program], otherwise: Program, said: str) -> None:
        self._make, self._otherwise, self._said = make, otherwise, said
        self._made: Program | None = None
        self._fails = False  # to try it again would take longer than what stands in for it

    def __call__(self, *arguments: Any) -> Tensor:
        if not self._fails:
            try:
                self._made = self._made or self._make()
                return self._made(*arguments)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # of many kinds: there is no compiler, say
                self._fails = True
                warnings.warn(SlowWarning.since(error, self._said), stacklevel=2)
        return self._otherwise(*arguments)


_DRAWN = "the order of examples is drawn"
_hash_on_gpu = _Tried(_program, _hashed, f"{_DRAWN} kernel by kernel, since it cannot be compiled")
_by_kernel = _Tried(_kernel, _in_steps, f"{_DRAWN} and then sorted, since one kernel cannot do both")


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
