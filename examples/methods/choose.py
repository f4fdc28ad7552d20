"""Every method with the same number of trials: write settings files for `descant compare`.

    python examples/methods/choose.py trials digits > trials.yaml     six settings a method, one seed
    descant compare trials.yaml --out runs/trials                     in several processes at once, if you like
    python examples/methods/choose.py best digits runs/trials > digits.yaml

Labels after `trials digits` stand for these methods alone. A method is tried with three rates and two values of
what it is known by (its tie, its fairness, its server's rate). One that has no such number is tried with six rates,
and MOCHA, which has no rate, with the six lam of its authors. The setting with the best validation accuracy is
kept. All take 20 gradients on 10 examples a client and round, as near as their steps allow. MOCHA looks at about as
many examples one by one, and has a linear model on synthetic data alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

import descant as dc

ROUNDS, GRADIENTS, SEED = 40, 20, 100
SIX, THREE = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5), (0.03, 0.1, 0.3)
LAMS = (0.00001, 0.0001, 0.001, 0.01, 0.1, 10.0)  # of MOCHA
DATA: dict[str, dict[str, Any]] = {
    "synthetic": {
        "data": {"name": "synthetic", "alpha": 1.0, "beta": 1.0, "clients": 100, "samples": 60, "seed": "run"},
        "model": "linear",
        "cohort": 20,
    },
    "digits": {
        "data": {"name": "digits", "clients": 60, "labels": 3, "seed": "run"},
        "model": {"name": "mlp", "hidden": [50]},
        "cohort": 20,
    },
    "mnist-by-writer": {
        "data": {"name": "mnist-by-writer", "most": 20, "mean": 0.1307, "std": 0.3081, "seed": "run"},
        "model": {"name": "mlp", "hidden": [100]},
        "cohort": 27,
    },
}
# What a method is given, and the two values of the field that it is known by.
METHODS: dict[str, tuple[dict[str, Any], tuple[str, Any, Any] | None]] = {
    "Local": ({"name": "local"}, None),
    "FedAvg": ({"name": "fedavg"}, None),
    "FedProx": ({"name": "fedprox"}, ("mu", 0.01, 1.0)),
    "FedADMM": ({"name": "fedadmm"}, ("rho", 0.01, 0.1)),
    "SCAFFOLD": ({"name": "scaffold"}, ("server_lr", 0.5, 1.0)),
    "FedAvgM": ({"name": "fedavgm"}, ("beta", 0.5, 0.9)),
    "FedAdagrad": ({"name": "fedadagrad"}, ("server_lr", 0.01, 0.1)),
    "FedYogi": ({"name": "fedyogi"}, ("server_lr", 0.01, 0.1)),
    "FedAdam": ({"name": "fedadam"}, ("server_lr", 0.01, 0.1)),
    "q-FFL": ({"name": "q-ffl"}, ("q", 0.1, 1.0)),
    "AFL": ({"name": "afl"}, ("gamma", 0.01, 0.1)),
    "TERM": ({"name": "term"}, ("t", 1.0, 2.0)),
    "FedMGDA+": ({"name": "fedmgda+"}, ("epsilon", 0.1, 1.0)),
    "Ditto": ({"name": "ditto"}, ("lam", 0.1, 1.0)),
    "pFedMe": ({"name": "pfedme", "eta": 0.05}, ("lam", 1.0, 15.0)),
    "RSA": ({"name": "rsa"}, ("lam", 0.01, 0.1)),
    "lp-proj-1": ({"name": "lp-proj", "p": 1, "dim": 50}, ("lam", 0.1, 1.0)),
    "lp-proj-2": ({"name": "lp-proj", "p": 2, "dim": 50}, ("lam", 0.1, 1.0)),
    "Fed+ (mean)": ({"name": "fedavg+"}, ("sigma", 0.1, 1.0)),
    "FLAME": ({"name": "flame"}, ("lam", 0.1, 1.0)),
    "LG-FedAvg": ({"name": "lg-fedavg"}, None),
    "FedPer": ({"name": "fedper"}, None),
    "FedRep": ({"name": "fedrep", "head_steps": GRADIENTS // 2}, None),
    "FineTune": ({"name": "finetune", "after": 30}, ("lam", 0.0, 1.0)),
    "EWC": ({"name": "ewc", "after": 30}, ("lam", 1.0, 100.0)),
    "SKL": ({"name": "skl", "after": 30}, ("lam", 0.1, 1.0)),
    "Per-FedAvg (HF)": ({"name": "per-fedavg", "hessian": "free"}, ("alpha", 0.01, 0.1)),
    "Per-FedAvg (FO)": ({"name": "per-fedavg", "hessian": "none"}, ("alpha", 0.01, 0.1)),
    "APFL": ({"name": "apfl"}, ("alpha", 0.25, 0.5)),
    "MAPPER": ({"name": "mapper"}, None),
    "L2SGD": ({"name": "l2sgd"}, ("lam", 0.1, 0.5)),
    "MR-MTL": ({"name": "mr-mtl"}, ("lam", 0.1, 1.0)),
    "MOCHA": ({"name": "mocha", "epochs": 5}, None),
    "FedAMP": ({"name": "fedamp"}, ("lam", 0.1, 1.0)),
    "FedALA": ({"name": "fedala"}, ("eta", 0.1, 1.0)),
}
SOLVED = ("ditto", "finetune", "ewc", "skl")  # these have a solver, which takes its share of the gradients
# Minibatch gradients a step, or how many steps make up the gradients of a round.
STEPS = {"ditto": 10, "fedrep": 10, "apfl": 10, "ewc": 10, "skl": 10, "mapper": 5, "fedala": 18, "l2sgd": 33}
PER_FEDAVG = {"free": 5, "none": 10}


def spec(label: str, lr: float, value: Any = None) -> dict[str, Any]:
    """A method as a settings file has it."""
    given, known_by = METHODS[label]
    made = dict(given) | {"lr": lr, "batch": 10}
    steps = PER_FEDAVG[given["hessian"]] if "hessian" in given else STEPS.get(given["name"], GRADIENTS)
    made["steps"] = steps
    if known_by is not None:
        made[known_by[0]] = value
    if given["name"] in SOLVED:
        joint = given["name"] == "ditto"  # in the rounds of the others, either the solver works or they do
        made["solver"] = {"name": "fedavg", "lr": lr, "batch": 10, "steps": steps if joint else GRADIENTS}
    return made


def suited(name: str) -> list[str]:
    """The methods that can train the model of a data set."""
    return [label for label in METHODS if label != "MOCHA" or DATA[name]["model"] == "linear"]


def trials(label: str) -> dict[str, dict[str, Any]]:
    given, known_by = METHODS[label]
    if label == "MOCHA":
        return {f"{label} | lam {lam}": given | {"lam": lam} for lam in LAMS}
    if known_by is None:
        return {f"{label} | lr {lr}": spec(label, lr) for lr in SIX}
    field, *values = known_by
    return {f"{label} | lr {lr}, {field} {v}": spec(label, lr, v) for lr in THREE for v in values}


def settings(name: str, methods: dict[str, Any], seeds: Any) -> dict[str, Any]:
    how = {"rounds": ROUNDS, "evaluate": {"every": 5, "parts": ["valid", "test"]}, "seeds": seeds}
    return DATA[name] | how | {"threads": 1, "keep_models": "none", "methods": methods}


def best(name: str, folder: Path) -> dict[str, Any]:
    """The trial of every method with the best mean accuracy on validation data."""
    found: dict[str, tuple[float, dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/run.json")):
        run = dc.load(path.parent)
        label = run.config["label"].split(" | ")[0]
        figure = run.summary().get("personal.valid_accuracy.mean@chosen_on_valid", float("-inf"))
        if run.collapse is None and figure > found.get(label, (float("-inf"),))[0]:
            found[label] = figure, trials(label)[run.config["label"]]
    missing = [label for label in suited(name) if label not in found]
    if missing:
        print(f"# every trial collapsed, or none was run: {', '.join(missing)}", file=sys.stderr)
    return settings(name, {label: found[label][1] for label in METHODS if label in found}, 5)


def main() -> None:
    what, name = sys.argv[1:3]
    if what == "trials":
        chosen = sys.argv[3:] or suited(name)
        methods = {label: made for method in chosen for label, made in trials(method).items()}
        made = settings(name, methods, [SEED])
    else:
        made = best(name, Path(sys.argv[3]))
    print(yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=150), end="")


if __name__ == "__main__":
    main()
