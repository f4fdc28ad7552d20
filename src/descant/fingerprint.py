"""Fingerprints: whether two sets of tensors are the same, to the bit."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import torch
from torch import Tensor

_BLOCK = 2**22  # numbers hashed in one go, so that a mapped tensor never lies in memory as a whole


def fingerprint(tensors: Iterable[tuple[str, Tensor]], about: str = "") -> str:
    """A hash of named tensors, their shapes and types, and a text.

    >>> fingerprint([("x", torch.zeros(2))]) == fingerprint([("x", torch.zeros(2))])
    True
    >>> fingerprint([("x", torch.zeros(2))]) == fingerprint([("x", torch.zeros(2, 1))])
    False
    """
    digest = blake2b(about.encode(), digest_size=16)
    for name, tensor in tensors:
        digest.update(f"\n{name} {tensor.dtype} {[*tensor.shape]}\n".encode())
        for block in torch.split(tensor.detach().reshape(-1), _BLOCK):
            if len(block):
                digest.update(block.cpu().contiguous().view(torch.uint8).numpy().data)
    return digest.hexdigest()
