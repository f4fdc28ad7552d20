"""The methods, each a frozen dataclass of hyper-parameters whose file reads like its paper's algorithm."""

from descant.context import Context
from descant.mail import LAST, Mail, Sent, difference, position
from descant.methods.afl import AFL
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
from descant.methods.fedmgda import FedMGDA
from descant.methods.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from descant.methods.fedplus import FedAvgPlus, FedCoMedPlus, FedGeoMedPlus, FedPlus
from descant.methods.flame import FLAME
from descant.methods.local import Local
from descant.methods.lpproj import LpProj
from descant.methods.lpproj_admm import LpProjADMM
from descant.methods.onemodel import OneModel
from descant.methods.optimizers import OPTIMIZERS, SGD, Adam, Down, Momentum, Optimizer
from descant.methods.pfedme import PFedMe
from descant.methods.qffl import QFFL
from descant.methods.rsa import RSA
from descant.methods.scaffold import Scaffold
from descant.methods.schedules import SCHEDULES, ByRound, PowerLaw, Stages
from descant.methods.term import TERM
from descant.task import Layout

METHODS: dict[str, type[Method]] = {
    m.name: m
    for m in (
        *(FedAvg, FedProx, FedADMM, Local),
        Scaffold,
        FedAvgM,
        FedAdagrad,
        FedYogi,
        FedAdam,
        QFFL,
        AFL,
        TERM,
        FedMGDA,
        *(Ditto, PFedMe, RSA, LpProj, FedPlus, FedAvgPlus, FedGeoMedPlus, FedCoMedPlus, FLAME, LpProjADMM),
    )
}

__all__ = [
    "AFL",
    "FLAME",
    "LAST",
    "METHODS",
    "OPTIMIZERS",
    "QFFL",
    "RSA",
    "SCHEDULES",
    "SGD",
    "TERM",
    "Adam",
    "Aggregate",
    "ByRound",
    "Context",
    "Descent",
    "Ditto",
    "Down",
    "FedADMM",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedAvgPlus",
    "FedCoMedPlus",
    "FedGeoMedPlus",
    "FedMGDA",
    "FedPlus",
    "FedProx",
    "FedYogi",
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
    "OneModel",
    "Optimizer",
    "PFedMe",
    "PerClient",
    "PowerLaw",
    "Scaffold",
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
