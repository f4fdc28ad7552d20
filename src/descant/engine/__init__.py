"""The round loop: cohorts, local work, messages, evaluation."""

from descant.engine.clients import Clients
from descant.engine.cohort import cohort_size
from descant.engine.evaluation import Evaluation
from descant.engine.health import Health
from descant.engine.plan import Plan
from descant.engine.records import Account, Collapse, Evaluated, HealthRecord, RoundRecord, Snapshot
from descant.engine.server import Server
from descant.engine.simulation import Record, Simulation

__all__ = [
    "Account",
    "Clients",
    "Collapse",
    "Evaluated",
    "Evaluation",
    "Health",
    "HealthRecord",
    "Plan",
    "Record",
    "RoundRecord",
    "Server",
    "Simulation",
    "Snapshot",
    "cohort_size",
]
