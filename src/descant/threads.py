"""How many threads torch computes with.

By default torch takes the physical cores, or OMP_NUM_THREADS where it is set. On a machine that is busy otherwise,
several threads wait for each other and are many times slower than one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def using_threads(number: int | None) -> Iterator[None]:
    """Compute with a number of threads, and go back to as many as before; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
