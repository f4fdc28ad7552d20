"""How far to go: the factor that does most harm, found by trying."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan

_COARSE = range(-4, 6)  # powers of two
_FINE = (0.5, 0.25, 0.125)  # of a power


def most_harmful(harm: Callable[[float], float], first: float) -> float:
    """The factor with the greatest `harm`, of those that are tried; of equals, the earliest.

    They are the `first`, powers of two from 1/16 to 32 and then, three times over, the two beside the best so far,
    half as far away each time. Harm need not rise and fall once: a defence may let an attack through up to some
    factor, and not beyond. Harm that is no number is endless.
    """
    best, most = first, -inf

    def attempt(factor: float) -> None:
        nonlocal best, most
        found = harm(factor)
        found = inf if isnan(found) else found
        if found > most:
            best, most = factor, found

    for factor in (first, *(2.0**power for power in _COARSE)):
        attempt(factor)
    for step in _FINE:
        middle = best
        attempt(middle * 2.0**-step)
        attempt(middle * 2.0**step)
    return best
