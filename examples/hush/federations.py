"""The data that Hush is compared on, with the model, rounds, cohort and trials of each."""

from __future__ import annotations

from typing import Any

SEEDS = {"cifar": [100], "shakespeare": [100]}  # of the trials
SHORT = {"cifar": 40, "shakespeare": 15}  # rounds of short trials, where runs take long
LAST = {"shakespeare": 2}  # seeds of what was chosen; 5 elsewhere
MLP = {"model": {"name": "mlp", "hidden": [100]}, "rounds": 40, "cohort": 0.2}
FASHION = {"name": "fashion-mnist", "seed": "run"}
WRITERS = {"name": "mnist-by-writer", "writers": 100, "mean": 0.1307, "std": 0.3081, "seed": "run"}
DATA: dict[str, dict[str, Any]] = {
    "digits": {"data": {"name": "digits", "clients": 60, "labels": 5, "seed": "run"}} | MLP,
    "mnist-20": {"data": WRITERS | {"most": 20}} | MLP,
    "mnist-60": {"data": WRITERS | {"most": 60}} | MLP,
    "fashion-iid": {"data": FASHION | {"partition": {"name": "iid", "clients": 100}, "most": 20}} | MLP,
    "fashion-dirichlet": {
        "data": FASHION | {"partition": {"name": "dirichlet", "clients": 100, "alpha": 0.5}, "most": 60},
    }
    | MLP,
    "fashion-shards": {
        "data": FASHION | {"partition": {"name": "labels", "clients": 100, "labels": 2}, "most": 60},
    }
    | MLP,
    "cifar": {
        "data": {
            "name": "cifar10",
            "partition": {"name": "dirichlet", "clients": 100, "alpha": 0.5},
            "seed": "run",
        },
        "model": "lp-proj-cifar",
        "rounds": 200,
        "cohort": 0.2,
    },
    "chars": {"data": {"name": "chars74k", "seed": "run"}} | MLP,
    "hapt": {"data": {"name": "hapt", "seed": "run"}} | MLP,
    "shakespeare": {
        "data": {
            "name": "shakespeare-tff",
            "partition": {"name": "natural", "least": 100},  # 100 roles
            "seed": "run",
        },
        "model": "shakespeare-lstm",
        "rounds": 40,
        "cohort": 0.2,
    },
}
BASE = {"cifar": 0.01, "shakespeare": 0.2}  # a rate is a multiple of it; 0.02 elsewhere
BATCH = {"cifar": 50, "shakespeare": 20}  # 10 elsewhere
