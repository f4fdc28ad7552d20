"""The methods, each a frozen dataclass of hyper-parameters whose file reads like its paper's algorithm."""

from descant.context import Context
from descant.mail import LAST, Mail, Sent, difference, position
from descant.methods.afl import AFL
from descant.methods.apfl import APFL
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
from descant.methods.fedala import FedALA
from descant.methods.fedamp import FedAMP
from descant.methods.fedavg import FedAvg, FedProx
from descant.methods.fedmgda import FedMGDA
from descant.methods.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from descant.methods.fedplus import FedAvgPlus, FedCoMedPlus, FedGeoMedPlus, FedPlus
from descant.methods.finetune import EWC, SKL, FineTune
from descant.methods.flame import FLAME
from descant.methods.hush import Hush
from descant.methods.l2sgd import L2SGD, MRMTL
from descant.methods.layerwise import FedBN, FedPer, FedRep, LGFedAvg
from descant.methods.local import Local
from descant.methods.lpproj import LpProj
from descant.methods.lpproj_admm import LpProjADMM
from descant.methods.mapper import MAPPER
from descant.methods.mocha import MOCHA
from descant.methods.onemodel import OneModel
from descant.methods.oneprojection import OneProjection
from descant.methods.optimizers import OPTIMIZERS, SGD, Adam, Down, Momentum, Optimizer
from descant.methods.perfedavg import PerFedAvg
from descant.methods.pfedme import PFedMe
from descant.methods.qffl import QFFL
from descant.methods.rsa import RSA
from descant.methods.scaffold import Scaffold
from descant.methods.schedules import SCHEDULES, ByRound, PowerLaw, Stages
from descant.methods.sketched import PFed1BS, PFedLMS
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
        *(Hush, OneProjection, PFed1BS, PFedLMS),
        *(LGFedAvg, FedPer, FedRep, FedBN),
        *(FineTune, EWC, SKL),
        *(PerFedAvg, APFL, MAPPER, L2SGD, MRMTL, MOCHA, FedAMP, FedALA),
    )
}

__all__ = [
    "AFL",
    "APFL",
    "EWC",
    "FLAME",
    "L2SGD",
    "LAST",
    "MAPPER",
    "METHODS",
    "MOCHA",
    "MRMTL",
    "OPTIMIZERS",
    "QFFL",
    "RSA",
    "SCHEDULES",
    "SGD",
    "SKL",
    "TERM",
    "Adam",
    "Aggregate",
    "ByRound",
    "Context",
    "Descent",
    "Ditto",
    "Down",
    "FedADMM",
    "FedALA",
    "FedAMP",
    "FedAdagrad",
    "FedAdam",
    "FedAvg",
    "FedAvgM",
    "FedAvgPlus",
    "FedBN",
    "FedCoMedPlus",
    "FedGeoMedPlus",
    "FedMGDA",
    "FedPer",
    "FedPlus",
    "FedProx",
    "FedRep",
    "FedYogi",
    "FineTune",
    "Gradient",
    "Hush",
    "LGFedAvg",
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
    "OneProjection",
    "Optimizer",
    "PFed1BS",
    "PFedLMS",
    "PFedMe",
    "PerClient",
    "PerFedAvg",
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
