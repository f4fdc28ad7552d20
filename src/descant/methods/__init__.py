"""The methods, each a frozen dataclass of hyper-parameters whose file reads like its paper's algorithm."""

from descant.context import Context
from descant.mail import LAST, Mail, Sent, difference, position
from descant.methods.base import (
    Aggregate,
    Gradient,
    LocalView,
    Messages,
    Method,
    PerClient,
    ServerView,
    Taken,
    Tree,
    Until,
    Work,
)
from descant.methods.descent import Descent
from descant.methods.ditto import Ditto
from descant.methods.fedadmm import FedADMM
from descant.methods.fedavg import FedAvg, FedProx
from descant.methods.fedplus import FedAvgPlus, FedCoMedPlus, FedGeoMedPlus, FedPlus
from descant.methods.flame import FLAME
from descant.methods.local import Local
from descant.methods.lpproj import LpProj
from descant.methods.lpproj_admm import LpProjADMM
from descant.methods.optimizers import OPTIMIZERS, SGD, Adam, Down, Momentum, Optimizer
from descant.methods.pfedme import PFedMe
from descant.methods.rsa import RSA
from descant.methods.schedules import SCHEDULES, ByRound, PowerLaw, Stages
from descant.task import Layout

METHODS: dict[str, type[Method]] = {
    m.name: m
    for m in (
        *(FedAvg, FedProx, FedADMM, Local),
        *(Ditto, PFedMe, RSA, LpProj, FedPlus, FedAvgPlus, FedGeoMedPlus, FedCoMedPlus, FLAME, LpProjADMM),
    )
}

__all__ = [
    "FLAME",
    "LAST",
    "METHODS",
    "OPTIMIZERS",
    "RSA",
    "SCHEDULES",
    "SGD",
    "Adam",
    "Aggregate",
    "ByRound",
    "Context",
    "Descent",
    "Ditto",
    "Down",
    "FedADMM",
    "FedAvg",
    "FedAvgPlus",
    "FedCoMedPlus",
    "FedGeoMedPlus",
    "FedPlus",
    "FedProx",
    "Gradient",
    "Layout",
    "Local",
    "LocalView",
    "LpProj",
    "LpProjADMM",
    "Mail",
    "Messages",
    "Method",
    "Momentum",
    "Optimizer",
    "PFedMe",
    "PerClient",
    "PowerLaw",
    "Sent",
    "ServerView",
    "Stages",
    "Taken",
    "Tree",
    "Until",
    "Work",
    "difference",
    "position",
]
