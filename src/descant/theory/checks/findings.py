"""What a check finds: a closed form beside a simulation, or whether a statement of a paper holds."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from descant.theory.montecarlo import Array, Estimate

TOLERATED = 4.0  # standard errors; one right formula in 16,000 is further off
Kind = Literal["result", "formula", "question"]
EXACT = 1e-9  # what rounding may do where nothing is drawn


@dataclass(frozen=True)
class Agreement:
    """A closed form, and what a simulation (or another way to compute the same, without error) found."""

    paper: str
    where: str
    what: str
    theory: float
    found: float
    se: float = 0.0

    @property
    def off(self) -> float | None:
        """How many standard errors the simulation lies above the closed form."""
        return (self.found - self.theory) / self.se if self.se else None

    @property
    def agrees(self) -> bool:
        if not isfinite(self.found) or not isfinite(self.theory):
            return False
        if self.off is not None:
            return abs(self.off) <= TOLERATED
        return abs(self.found - self.theory) <= EXACT * max(1.0, abs(self.theory))


@dataclass(frozen=True)
class Claim:
    """A statement, whether the computation bears it out, and with which numbers.

    `kind` says what is at stake: a `result` is what a paper concludes; a `formula` is how it is printed, where a
    slip leaves the conclusion as it is; a `question` is asked here, of something that the paper does not state.
    Where a claim is the same finding as another, in another setting or place of a proof, `repeats` names it.
    """

    paper: str
    where: str
    statement: str
    holds: bool
    numbers: str
    kind: Kind = "result"
    repeats: str | None = None


Finding = Agreement | Claim


def simulated(paper: str, where: str, what: str, theory: float, values: Array) -> Agreement:
    """A closed form beside the trials [trials] of a simulation."""
    estimate = Estimate.of(values)
    return Agreement(paper, where, what, theory, estimate.mean, estimate.se)


def against(statement: str, printed: float, values: Array, right: float) -> tuple[bool, str]:
    """Whether a printed formula agrees with the trials, and the numbers."""
    estimate = Estimate.of(values)
    row = Agreement("", "", statement, printed, estimate.mean, estimate.se)
    numbers = f"printed {printed:.5g}, simulated {estimate.mean:.5g} ± {estimate.se:.2g} ({row.off:+.0f} s.e.)"
    return row.agrees, f"{numbers}; closed form {right:.5g}"
