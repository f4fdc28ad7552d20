"""How a client's examples are divided into train, valid and test."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from numbers import Integral, Real

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from descant.data.errors import DataError
from descant.data.part import Part
from descant.draws import bits
from descant.errors import SettingError, shown

IntArray = npt.NDArray[np.int64]


def split(whole: Part, clients: Sequence[str], *, test: float, valid: float, seed: int) -> tuple[Part, Part, Part]:
    """Shuffle every client's examples and cut them into train, valid and test (sizes: `split_sizes`).

    A client's shuffle is addressed by (seed, client's name): it does not depend on the other clients.
    """
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= seed < 2**64:
        raise SettingError(f"seed = {shown(seed)}: it must be a whole number, from 0 to {2**64 - 1}")
    sizes = whole.sizes.numpy()
    train_sizes, valid_sizes, test_sizes = split_sizes(sizes, test=test, valid=valid)
    if not train_sizes.all():
        k = int(np.flatnonzero(train_sizes == 0)[0])
        # Of n examples some are left from test = 1 - 1/n down, whatever `valid` is; of one, with test = 0 alone.
        most = int(100 * (1 - 1 / sizes[k])) / 100
        raise DataError(
            f"{sizes[k]} example(s), of which test={test} and valid={valid} leave none to train on: "
            f"give it more examples, lower test to {most:g}{' or less' if most else ', for all clients'}, "
            f"or leave it out (tiny='drop', least={sizes[k] + 1})",
            client=clients[k],
        )
    starts = np.cumsum(sizes) - sizes
    place = np.arange(sizes.sum()) - np.repeat(starts, sizes)  # of each row among its client's, [M]
    order = _shuffled(whole.owners, torch.from_numpy(place), clients, seed)
    in_train = place < np.repeat(train_sizes, sizes)
    in_test = place >= np.repeat(train_sizes + valid_sizes, sizes)
    return (
        _take(whole, order[in_train], train_sizes),
        _take(whole, order[~in_train & ~in_test], valid_sizes),
        _take(whole, order[in_test], test_sizes),
    )


def split_sizes(sizes: IntArray, *, test: float, valid: float) -> tuple[IntArray, IntArray, IntArray]:
    """The train, valid and test sizes of clients with `sizes` examples, by the rule of lp-proj's authors.

    Of n examples, floor((1 - test) n) are kept for training and the rest are tested on; floor(valid * kept)
    of those kept become the validation part.  The defaults of 0.2 and 0.2 divide 202 into 129, 32 and 41.
    """
    for field, share in (("test", test), ("valid", valid)):
        if not isinstance(share, Real) or isinstance(share, bool) or not 0 <= share < 1:
            raise SettingError(f"{field} = {shown(share)}: it must be a share in [0, 1)")
    kept = _floor_share(sizes, 1 - _exact(test))
    valid_sizes = _floor_share(kept, _exact(valid))
    return kept - valid_sizes, valid_sizes, sizes - kept


def _exact(share: float) -> Fraction:
    # The decimal that was written, so that a tenth of ten is one and not floor(0.999...).
    return Fraction(share).limit_denominator(1_000_000)


def _floor_share(sizes: IntArray, share: Fraction) -> IntArray:
    return sizes * share.numerator // share.denominator


def _shuffled(owners: Tensor, place: Tensor, clients: Sequence[str], seed: int) -> IntArray:
    keys = torch.tensor([int(bits(seed, "split", name)) for name in clients])
    return np.lexsort((bits(keys[owners], place).numpy(), owners.numpy()))


def _take(whole: Part, rows: IntArray, sizes: IntArray) -> Part:
    index = torch.from_numpy(rows)
    return Part(whole.inputs[index], whole.targets[index], offsets_of(sizes))


def offsets_of(sizes: IntArray) -> Tensor:
    """Where each client's rows start, and where the last one's end, [N + 1]."""
    return torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64))
