"""The round loop: cohorts, local work, messages, evaluation."""

from descant.engine.cohort import cohort_size
from descant.engine.evaluation import Evaluation
from descant.engine.records import Account, Collapse, Evaluated, RoundRecord, Snapshot
from descant.engine.simulation import Plan, Record, Simulation

__all__ = [
    "Account",
    "Collapse",
    "Evaluated",
    "Evaluation",
    "Plan",
    "Record",
    "RoundRecord",
    "Simulation",
    "Snapshot",
    "cohort_size",
]
