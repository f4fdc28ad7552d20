"""Hush and its rivals: what each is tried with, what in Hush is changed one by one, and what attacks them."""

from __future__ import annotations

from typing import Any

from federations import BATCH

Spec = dict[str, Any]
FOUR, SIX = (1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
TWELVE = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
FEWER = {0: SIX, 2: (1.0, 2.0, 4.0), 3: (2.0, 4.0)}  # rates, by how many values are tried of another field
# Shares of the parameters where a client misses more rounds than in 40, so that all bytes are a hundredth as well.
ON_CIFAR = {0.037: 0.0355, 0.0036: 0.0034, 0.111: 0.1065, 0.0108: 0.0102, 0.0952: 0.0913, 0.00926: 0.00875}
TOPK: Spec = {"name": "top-k", "share": 0.005}  # with its indices about as many bytes as a hundredth of the model
# Both ways, or up with stc down, all that travels is about a 105th of what Ditto sends.
STC: Spec = {"name": "stc", "share": 0.0127}
FEW: Spec = {"name": "top-k", "share": 0.00265}
DGC: Spec = {"name": "dgc", "share": 0.00265, "warmup": 0, "beta": 0.6}  # its momentum is with the clients
SKETCH: Spec = {"name": "sketch", "rows": 3, "columns": 0.0006, "share": 0.0017}
# What a method is given, and the two values of the field that it is known by. Shares of m are of the parameters.
MOMENTUM = ("beta", 0.0, 0.6)
DENSE = {"name": "dense", "fresh": True}  # subspaces
NEAREST = {"rotate": False}  # rounding to the nearest, without a rotation before it
RANDOM = {"bits": 8, "nearest": False, "rotate": False}  # rounding at random
THREE = {"m": 0.037, "bits": 3, **NEAREST}
APART = ("times", 1.0, 2.0, 4.0)  # the shared model's rate, of the personal models'
METHODS: dict[str, tuple[Spec, tuple[Any, ...] | None]] = {
    "Local": ({"name": "local"}, None),
    "one model": ({"name": "fedavgm"}, MOMENTUM),
    "FedAvgM, stc both ways": ({"name": "fedavgm", "run": {"codec": STC, "downlink": STC}}, MOMENTUM),
    "Ditto": ({"name": "ditto"}, MOMENTUM),
    "Hush 1/25": ({"name": "hush", "m": 0.04, **RANDOM}, MOMENTUM),
    "Hush 1/75": ({"name": "hush", "m": 0.0133, **RANDOM}, MOMENTUM),
    "Hush 1/100": ({"name": "hush", "m": 0.01, **RANDOM}, MOMENTUM),
    "Hush 1/400": ({"name": "hush", "m": 0.0025, **RANDOM}, MOMENTUM),
    "Hush 1/1000": ({"name": "hush", "m": 0.001, **RANDOM}, MOMENTUM),
    "Hush 1/9, 3 bits": ({"name": "hush", "m": 0.107, "bits": 3, **NEAREST}, MOMENTUM),
    "Hush 1/18, 2 bits": ({"name": "hush", "m": 0.055, "bits": 2, **NEAREST}, MOMENTUM),
    "Hush 1/27, 3 bits": ({"name": "hush", "m": 0.037, "bits": 3, **NEAREST}, MOMENTUM),
    "Hush 1/36, 4 bits": ({"name": "hush", "m": 0.0272, "bits": 4, **NEAREST}, MOMENTUM),
    "Hush 1/270, 3 bits": ({"name": "hush", "m": 0.0036, "bits": 3, **NEAREST}, MOMENTUM),
    "Ditto, two rates": ({"name": "ditto"}, APART),
    "Hush 1/27, two rates": ({"name": "hush", **THREE}, APART),
    "Hush 1/270, two rates": ({"name": "hush", **THREE, "m": 0.0036}, APART),
    "Hush 1/9, a bit, two rates": ({"name": "hush", "m": 0.111, "bits": 1}, APART),
    "Hush 1/90, a bit, two rates": ({"name": "hush", "m": 0.0108, "bits": 1}, APART),
    "Hush 1/10, two rates": ({"name": "hush", "m": 0.0952}, APART),
    "Hush 1/108, two rates": ({"name": "hush", "m": 0.00926}, APART),
    "fixed subspace 1/25": ({"name": "hush", "m": 0.04, **RANDOM, "projection": {"name": "fold"}}, MOMENTUM),
    "fixed subspace 1/10, two rates": ({"name": "hush", "m": 0.0952, "projection": {"name": "fold"}}, APART),
    "MAPA 1/400": ({"name": "hush", "m": 0.0025, **RANDOM, "projection": DENSE}, MOMENTUM),
    "Ditto, top-k": ({"name": "ditto", "run": {"codec": TOPK}}, MOMENTUM),
    "Ditto, sign": ({"name": "ditto", "run": {"codec": "sign"}}, MOMENTUM),
    "Ditto, qsgd": ({"name": "ditto", "run": {"codec": {"name": "qsgd", "levels": 1}}}, MOMENTUM),
    "Ditto, dgc": ({"name": "ditto", "run": {"codec": {"name": "dgc", "share": 0.005, "warmup": 0}}}, MOMENTUM),
    "Ditto, sketch": (
        {"name": "ditto", "run": {"codec": {"name": "sketch", "rows": 3, "columns": 0.0017, "share": 0.005}}},
        MOMENTUM,
    ),
    "Ditto, lbgm": ({"name": "ditto", "run": {"codec": {"name": "lbgm", "delta": 0.5}}}, MOMENTUM),
    "lp-proj-2": ({"name": "lp-proj", "p": 2, "dim": 50}, ("lam", 0.1, 1.0)),
    "pFed1BS": ({"name": "pfed1bs", "m": 0.32}, ("lam", 0.0005, 0.5)),
    "pFedLMS": ({"name": "pfedlms", "m": 0.107}, ("lam", 0.005, 0.15)),
    "Ditto, stc both ways, two rates": ({"name": "ditto", "run": {"codec": STC, "downlink": STC}}, APART),
    "Ditto, stc without momentum": ({"name": "ditto", "beta": 0.0, "run": {"codec": STC, "downlink": STC}}, APART),
    "Ditto, top-k both ways": ({"name": "ditto", "run": {"codec": FEW, "downlink": FEW}}, APART),
    "Ditto, dgc up, stc down": ({"name": "ditto", "beta": 0.0, "run": {"codec": DGC, "downlink": STC}}, APART),
    "Ditto, sketch up, stc down": ({"name": "ditto", "run": {"codec": SKETCH, "downlink": STC}}, APART),
}
AGGREGATORS = {"mean": "mean", "median": "coordinate-median", "geometric": "geometric-median"}
AGGREGATORS |= {"trimmed": "trimmed-mean", "clipped": "norm-clipping", "Krum": "multi-krum"}
ATTACKS: Spec = {"sign flip": {"name": "sign-flip", "tau": 10}, "ALIE": "alie"}
ATTACKS |= {"inner product": "ipm", "min-max": "min-max"}
# One part of Hush changed at a time, in its way of 3 bits without a rotation.
PARTS: dict[str, Spec] = {
    "as it is": {},
    "hash": {"projection": {"name": "hash", "fresh": True}},
    "hadamard": {"projection": {"name": "hadamard", "fresh": True}},
    "per layer": {"projection": {"name": "per-layer", "fresh": True, "kind": "fold"}},
    "fixed": {"projection": {"name": "fold"}},
    **{f"pool of {pool}": {"pool": pool} for pool in (5, 25, 100)},
    "whole numbers": {"bits": None},
    "a ninth, whole numbers": {"m": 0.107, "bits": None},
    "a ninth": {"m": 0.107},
    "a third": {"m": 0.333},
    "nearly all dimensions": {"m": 0.999},
    "rounded at random": {"nearest": False},
    "8 bits at random, the same bytes": {"m": 0.0139, **RANDOM},
    "4 bits, the same bytes": {"bits": 4, "m": 0.0278},
    "2 bits, the same bytes": {"bits": 2, "m": 0.0555},
    "1 bit, the same bytes": {"bits": 1, "m": 0.111},
    "1 bit, rotated, the same bytes": {"bits": 1, "m": 0.111, "rotate": True},
    "2 bits up and 1 down, rotated, the same bytes": {"bits": [2, 1], "m": 0.0952, "rotate": True},
    "rotated": {"rotate": True},
    "32 bits, the same bytes": {"bits": None, "m": 0.0035},
    **{f"beta {beta}": {"beta": beta} for beta in (0.0, 0.3, 0.9)},
    **{f"lam {lam}": {"lam": lam} for lam in (0.1, 0.3, 3.0)},
    **{f"gain {gain}": {"gain": gain} for gain in (1.0, 5.0, 10.0, 25.0, 50.0)},
    "one projection": {"name": "one-projection"},  # of a full update, in the place of steps in the subspace
    "one projection, no feedback": {"name": "one-projection", "feedback": False},
}


def spec(name: str, given: Spec, lr: float, **known: Any) -> Spec:
    """A method as a settings file has it."""
    both = given["name"] in ("ditto", "hush", "one-projection")
    work = {"lr": lr, "batch": BATCH.get(name, 10), "steps": 20 if both else 40}
    made = dict(given) | work
    if name == "cifar" and given.get("m") in ON_CIFAR:
        made["m"] = ON_CIFAR[given["m"]]
    times = known.pop("times", None)
    shared = lr if times is None else float(f"{times * lr:.3g}")
    if given["name"] == "ditto":  # its solver has the momentum
        beta = known.pop("beta", made.pop("beta", 0.0 if times is None else 0.6))
        made["solver"] = ({"name": "fedavgm", "beta": beta} if beta else {"name": "fedavg"}) | work | {"lr": shared}
    elif times is not None:
        made["shared_lr"] = shared
    return made | known
