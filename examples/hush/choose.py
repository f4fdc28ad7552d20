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

    python examples/hush/choose.py trials cifar stc --short > short.yaml      over fewer rounds, where runs are long
    python examples/hush/choose.py narrow cifar runs/short > long.yaml        the three best of each, in all rounds
    python examples/hush/choose.py best cifar runs/long --partial > best.yaml               the best of these three
    python examples/hush/choose.py best shakespeare runs/short --short > best.yaml          the best of short trials

Each method is tried with six rates and two values of what it is known by, or with twelve rates, on three seeds that
are not among the five: 36 runs a method. Those with two rates have four for the personal models and once, twice and
four times that for the shared one. The setting with the best mean validation accuracy over these seeds is kept. A
run that is called like a trial, and had other settings, is refused. The larger data have fewer: CIFAR-10 one seed,
and Shakespeare one seed, six settings a method and two seeds at the end. Ditto and Hush take 20 gradients a round
for the shared model and 20 for the personal one; those that train one model take 40. Bytes are real, up and down.
Short trials have 40 rounds on CIFAR-10, and 15 on Shakespeare.

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
from federations import BASE, DATA, LAST, SEEDS, SHORT
from rivals import AGGREGATORS, ATTACKS, FEWER, FOUR, METHODS, PARTS, SIX, THREE, TWELVE, Spec, spec
from trialled import accuracies, of_all_seeds

from descant.errors import unknown

COMMANDS = ("trials", "narrow", "best", "attacks", "parts")
OPTIONS = ("--partial", "--short")
NARROWED = 3  # settings of a method that are tried in all rounds, after short trials


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


def tried(name: str, methods: dict[str, Spec], seeds: Any, short: bool) -> Spec:
    """Settings of trials. `short` ones have fewer rounds, and are evaluated on validation data alone."""
    made = settings(name, methods, seeds)
    return made | {"rounds": SHORT[name], "evaluate": {"every": 5, "parts": ["valid"]}} if short else made


def all_trials(name: str, wanted: list[str], short: bool = False) -> Spec:
    """The trials of all methods, or of those whose label has one of the words that are wanted in it."""
    for word in wanted:
        if not any(word in label for label in METHODS):
            raise SystemExit(f"no method has {word} in its label. There are: {'; '.join(METHODS)}")
    labels = [label for label in METHODS if not wanted or any(word in label for word in wanted)]
    made = {k: spec for label in labels for k, spec in trials(name, label).items()}
    return tried(name, made, SEEDS.get(name, [100, 101, 102]), short)


def alone(name: str, trial: str, short: bool = False) -> Spec | None:
    """The settings of a trial by itself, if there is one of that name."""
    label = trial.split(" | ")[0]
    made = trials(name, label).get(trial) if label in METHODS else None
    return None if made is None else tried(name, {trial: made}, 1, short)


def ranked(name: str, folders: list[Path], partial: bool, short: bool = False) -> dict[str, dict[str, Spec]]:
    """The trials of every method, the one with the best mean accuracy on validation data first.

    The mean is over the seeds that they were tried on. Those that collapsed are left out.
    """
    figures: dict[str, dict[str, dict[int, float]]] = {}  # by method, trial and seed
    for trial, by_seed in accuracies(name, folders, lambda trial: alone(name, trial, short)).items():
        figures.setdefault(trial.split(" | ")[0], {})[trial] = by_seed
    at = ", ".join(map(str, folders))
    if not figures:
        raise SystemExit(f"no trial to take from {at}: none was run to its end")
    found: dict[str, dict[str, Spec]] = {}
    fewer, collapsed = [], []
    for label in [label for label in METHODS if label in figures]:
        seeds, whole = of_all_seeds(figures[label])
        asked = trials(name, label)
        tried = f"{label}: {len(whole)} of {len(asked)} settings"
        print(f"# {tried} have all seeds ({seeds})", file=sys.stderr)
        fewer += [tried] if len(whole) < len(asked) else []
        means = {trial: sum(by_seed.values()) / len(by_seed) for trial, by_seed in whole.items()}
        ended = [trial for trial in means if means[trial] > float("-inf")]
        if ended:
            found[label] = {trial: asked[trial] for trial in sorted(ended, key=lambda trial: -means[trial])}
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


def chosen(name: str, folders: list[Path], partial: bool, short: bool = False) -> dict[str, Spec]:
    """The best trial of every method."""
    return {label: next(iter(by_rank.values())) for label, by_rank in ranked(name, folders, partial, short).items()}


def best(name: str, folders: list[Path], partial: bool, short: bool = False) -> Spec:
    return settings(name, chosen(name, folders, partial, short), LAST.get(name, 5))


def narrow(name: str, folders: list[Path], partial: bool) -> Spec:
    """The best of short trials, in all rounds."""
    short = ranked(name, folders, partial, short=True)
    kept = {trial: made for by_rank in short.values() for trial, made in list(by_rank.items())[:NARROWED]}
    return settings(name, kept, SEEDS.get(name, [100, 101, 102]))


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
    told = [each for each in sys.argv[1:] if each not in OPTIONS]
    partial, short = (option in sys.argv for option in OPTIONS)
    what, name, *given = [*told, "", ""][: max(2, len(told))]
    if what in ("", "-h", "--help"):
        raise SystemExit(f"{__doc__}\nData: {', '.join(DATA)}")
    if what not in COMMANDS:
        raise SystemExit(f"{unknown('command', what, COMMANDS)}. As in: choose.py trials mnist-20")
    if not name:
        raise SystemExit(f"name the data, as in: choose.py {what} mnist-20. There are {', '.join(DATA)}")
    if name not in DATA:
        raise SystemExit(str(unknown("data", name, DATA)))
    if (short or what == "narrow") and name not in SHORT:
        raise SystemExit(f"{name} has no short trials: its runs are short. There are some of {', '.join(SHORT)}")
    if short and what not in ("trials", "best"):
        raise SystemExit(f"--short goes with trials and best: leave it out of {what}")
    if partial and what in ("trials", "parts"):
        raise SystemExit(f"--partial goes with what chooses from trials: leave it out of {what}")
    if what == "trials":
        made = all_trials(name, given, short)
    elif what == "parts":
        made = parts(name, rate(" ".join(given), name))
    elif given and what == "best":
        made = best(name, folders(given), partial, short)
    elif given:
        made = (narrow if what == "narrow" else attacks)(name, folders(given), partial)
    else:
        raise SystemExit(
            f"choose.py {what} takes the folder of the trials, as in: choose.py {what} {name} runs/trials"
        )
    print(yaml.safe_dump(made, sort_keys=False, default_flow_style=None, width=150), end="")


if __name__ == "__main__":
    main()
