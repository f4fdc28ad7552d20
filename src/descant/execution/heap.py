"""Memory that a compiled step frees, kept for the next step.

glibc hands large freed blocks back to the system, which clears every page of them when they are asked for again.
The steps of small models ask for the same few megabytes thousands of times a second, and would wait for the system
up to a quarter of their time.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

_TRIM, _MMAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
_KEPT = 2**26  # bytes that the process may keep for itself
_LARGE = 2**25  # bytes: a block that is handed back all the same


@cache
def keep_freed() -> None:
    """Have this process keep some memory that it frees, where its C library is glibc and nobody chose otherwise."""
    if os.environ.keys() & {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"}:
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or another system
        return
    mallopt(_MMAP, _LARGE)
    mallopt(_TRIM, _KEPT)
