"""Every check of the papers' theory, by name: what they find is computed, and nothing of it is written down."""

from __future__ import annotations

from collections.abc import Callable

from descant.theory.checks import ditto, fairness, fedplus, flame, lpproj
from descant.theory.checks.findings import Agreement, Claim, Finding

CHECKS: dict[str, Callable[[int, int], list[Finding]]] = {
    "Ditto: errors": ditto.losses,
    "Ditto: statements": ditto.statements,
    "lp-proj: losses": lpproj.losses,
    "lp-proj: statements": lpproj.statements,
    "lp-proj: Theorem 14": lpproj.theorem_14,
    "lp-proj: fairness": fairness.variances,
    "lp-proj: fairness, statements": fairness.statements,
    "FLAME: losses": flame.losses,
    "FLAME: statements": flame.statements,
    "Fed+: fixed points": fedplus.fixed_points,
    "Fed+: statements": fedplus.statements,
}


__all__ = ["CHECKS", "Agreement", "Claim", "Finding"]
