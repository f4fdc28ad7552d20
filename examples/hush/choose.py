"""Hush and its rivals with the same number of trials: settings files for `descant compare`.

    python examples/hush/choose.py trials mnist-20 > trials.yaml                        twelve settings a method
    descant compare trials.yaml --out runs/trials --set device=cuda
    python examples/hush/choose.py best mnist-20 runs/trials > best.yaml                the best of each, five seeds
    descant compare best.yaml --out runs/mnist-20 --set device=cuda
    python examples/hush/table.py runs/mnist-20                                         beside Ditto, seed by seed

    python examples/hush/choose.py trials mnist-20 Local "two rates" > some.yaml        of some methods alone
    python examples/hush/choose.py parts mnist-20 0.1 > parts.yaml      Hush with one part changed at a time, lr 0.1
    python examples/hush/choose.py attacks mnist-60 runs/trials-60 > attacks.yaml    what its trials chose, attacked
    python examples/hush/choose.py trials digits Local "Ditto, two" > few.yaml      to try these programs in minutes

Each method is tried with six rates and two values of what it is known by, or with twelve rates, on three seeds that
are not among the five: 36 runs a method. Those with two rates have four for the personal models and once, twice and
four times that for the shared one. The setting with the best mean validation accuracy over these seeds is kept. A
run that is called like a trial, and had other settings, is refused. The larger data have fewer: CIFAR-10 one seed,
and Shakespeare one seed, six settings a method and two seeds at the end. Ditto and Hush take 20 gradients a round
for the shared model and 20 for the personal one; those that train one model take 40. Bytes are real, up and down.

Where a method has finished fewer settings than its trials have, as after an interruption, `best` and `attacks`
refuse to choose: methods would not have been tried equally. With `--partial` they choose from what there is. A
setting that collapsed was tried. `digits` is there to try these programs: its data come with descant, and one or
two methods, of about 36 runs each, take minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from federations import BASE, BATCH, DATA, LAST, SEEDS
from trialled import accuracies, of_all_seeds

from descant.errors import unknown

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
COMMANDS = ("trials", "best", "attacks", "parts")
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


def trials(name: str, label: str) -> dict[str, Spec]:
    given, known_by = METHODS[label]
    base = BASE.get(name, 0.02)
    field, *values = known_by or (None,)
    multiples = FEWER if name == "shakespeare" else {0: TWELVE, 2: SIX, 3: FOUR}
    rates = [float(f"{base * times:.3g}") for times in multiples[len(values)]]
    if field is None:
        return {f"{label} | lr {lr}": spec(name, given, lr) for lr in rates}
    return {f"{label} | lr {lr}, {field} {v}": spec(name, given, lr, **{field: v}) for lr in rates for v in values}


def settings(name: str, methods: dict[str, Spec], seeds: Any) -> Spec:
    how = {"evaluate": {"every": 5, "parts": ["valid", "test"]}, "seeds": seeds, "keep_models": "none"}
    return DATA[name] | how | {"methods": methods}


def all_trials(name: str, wanted: list[str]) -> Spec:
    """The trials of all methods, or of those whose label has one of the words that are wanted in it."""
    for word in wanted:
        if not any(word in label for label in METHODS):
            raise SystemExit(f"no method has {word} in its label. There are: {'; '.join(METHODS)}")
    labels = [label for label in METHODS if not wanted or any(word in label for word in wanted)]
    made = {k: spec for label in labels for k, spec in trials(name, label).items()}
    return settings(name, made, SEEDS.get(name, [100, 101, 102]))


def alone(name: str, trial: str) -> Spec | None:
    """The settings of a trial by itself, if there is one of that name."""
    label = trial.split(" | ")[0]
    made = trials(name, label).get(trial) if label in METHODS else None
    return None if made is None else settings(name, {trial: made}, 1)


def chosen(name: str, folders: list[Path], partial: bool) -> dict[str, Spec]:
    """The trial of every method with the best mean accuracy on validation data, over the seeds it was tried on."""
    figures: dict[str, dict[str, dict[int, float]]] = {}  # by method, trial and seed
    for trial, by_seed in accuracies(name, folders, lambda trial: alone(name, trial)).items():
        figures.setdefault(trial.split(" | ")[0], {})[trial] = by_seed
    at = ", ".join(map(str, folders))
    if not figures:
        raise SystemExit(f"no trial to take from {at}: none was run to its end")
    found: dict[str, Spec] = {}
    fewer, collapsed = [], []
    for label in [label for label in METHODS if label in figures]:
        seeds, whole = of_all_seeds(figures[label])
        asked = trials(name, label)
        tried = f"{label}: {len(whole)} of {len(asked)} settings"
        print(f"# {tried} have all seeds ({seeds})", file=sys.stderr)
        fewer += [tried] if len(whole) < len(asked) else []
        means = {trial: sum(by_seed.values()) / len(by_seed) for trial, by_seed in whole.items()}
        first = max(means, key=lambda trial: means[trial])
        if means[first] > float("-inf"):
            found[label] = asked[first]
        else:
            collapsed.append(label)
    if fewer and not partial:
        raise SystemExit(
            f"trials are missing in {at}: of {'; '.join(fewer)} have all seeds. Run descant compare again, which "
            "runs what is missing, or choose from what there is with --partial"
        )
    if collapsed:
        print(f"# every setting collapsed, with a seed or more: {'; '.join(collapsed)}", file=sys.stderr)
    if not found:
        raise SystemExit(f"no trial to take from {at}: all collapsed")
    return found


def best(name: str, folders: list[Path], partial: bool) -> Spec:
    return settings(name, chosen(name, folders, partial), LAST.get(name, 5))


def attacks(name: str, folders: list[Path], partial: bool) -> Spec:
    """Ditto and Hush as the trials of a data set chose them, without attackers, each with every aggregator."""
    kept = chosen(name, folders, partial)
    two = {"Ditto": "Ditto, two rates", "Hush": "Hush 1/10, two rates"}
    if absent := [label for label in ("Local", *two.values()) if label not in kept]:
        raise SystemExit(f"no trial to take from {', '.join(map(str, folders))}: {'; '.join(absent)}")
    methods: dict[str, Spec] = {"Local": kept["Local"]}
    for method, label in two.items():
        for called, aggregator in AGGREGATORS.items():
            made = dict(kept[label]) | {"run": {"aggregator": aggregator}}
            if "solver" in made:  # means are plain: attackers could claim any weight
                made["solver"] = made["solver"] | {"weighted": False}
            else:
                made["weighted"] = False
            methods[f"{method}, {called}"] = made
    return settings(name, methods, LAST.get(name, 5)) | {"fractions": [0, 0.2], "attacks": ATTACKS}


def parts(name: str, lr: float) -> Spec:
    made = {label: spec(name, {"name": "hush"} | THREE | change, lr) for label, change in PARTS.items()}
    return settings(name, made, 5)


def rate(text: str, name: str) -> float:
    how = f"give a positive number, as in: choose.py parts {name} 0.1"
    if not text:
        raise SystemExit(f"the rate of Hush is missing: {how}")
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise SystemExit(f"'{text}' is no rate: {how}")
    return found


def folders(given: list[str]) -> list[Path]:
    for folder in given:
        if not Path(folder).is_dir():
            raise SystemExit(f"there is no folder {folder}: give the one that descant compare wrote the trials to")
    return [Path(folder) for folder in given]


def main() -> None:
    told = sys.argv[1:]
    what, name, *given = [*told, "", ""][: max(2, len(told))]
    if what in ("", "-h", "--help"):
        raise SystemExit(f"{__doc__}\nData: {', '.join(DATA)}")
    if what not in COMMANDS:
        raise SystemExit(f"{unknown('command', what, COMMANDS)}. As in: choose.py trials mnist-20")
    if not name:
        raise SystemExit(f"name the data, as in: choose.py {what} mnist-20. There are {', '.join(DATA)}")
    if name not in DATA:
        raise SystemExit(str(unknown("data", name, DATA)))
    if what == "trials":
        made = all_trials(name, given)
    elif what == "parts":
        made = parts(name, rate(" ".join(given), name))
    elif there := [each for each in given if each != "--partial"]:
        made = (best if what == "best" else attacks)(name, folders(there), "--partial" in given)
    else:
        raise SystemExit(
            f"choose.py {what} takes the folder of the trials, as in: choose.py {what} {name} runs/trials"
        )
    print(yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=150), end="")


if __name__ == "__main__":
    main()
