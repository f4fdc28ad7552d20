"""Closed forms of the papers' linear problems: what a simulation, and an implementation, is held to."""

from descant.theory import fairness, fedplus, flame, quadratics
from descant.theory.ditto import DittoProblem
from descant.theory.flame import OneRound
from descant.theory.montecarlo import Estimate
from descant.theory.rates import Theorem14
from descant.theory.regression import FederatedRegression

__all__ = [
    "DittoProblem",
    "Estimate",
    "FederatedRegression",
    "OneRound",
    "Theorem14",
    "fairness",
    "fedplus",
    "flame",
    "quadratics",
]
