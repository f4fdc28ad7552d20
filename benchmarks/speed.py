"""How fast descant trains many small clients, beside a plain PyTorch loop and Apple's pfl, on this machine.

python benchmarks/speed.py                   all shapes, descant in mode="auto"
python benchmarks/speed.py --modes           the explicit modes as well
python benchmarks/speed.py --quick --only a,d
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from peers import pfl_env
from speed_contest import Contender, Effort, contest
from speed_shapes import CASES, Shape, write_data
from speed_table import PFL, PLAIN, Outcome, as_json, show

_RESULTS = Path(__file__).parent / "results.json"
_MODES = ("loop", "vmap", "compile")
_PEAK = "matmul"
_FULL, _QUICK = Effort(seconds=3.0, rounds=3), Effort(seconds=0.3, rounds=1)


def main() -> None:
    arguments = _arguments()
    began, load = datetime.now(UTC).isoformat(timespec="seconds"), os.getloadavg()[0]
    descant = [
        Contender(f"descant {mode}", "speed_descant", arguments=(mode,))
        for mode in ("auto", *(_MODES if arguments.modes else ()))
    ]
    peers = [Contender(PLAIN, "peers.plain_loop"), *([] if arguments.no_pfl else [_pfl()])]
    outcomes = []
    for key in arguments.only:
        print(f"{key}. {CASES[key].title}", file=sys.stderr, flush=True)
        outcomes.append(_time(key, descant, peers, arguments.threads, _QUICK if arguments.quick else _FULL))
    machine = {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": arguments.threads,
        "load_before": load,
        "system": platform.platform(),
        "versions": _versions(outcomes),
        "began": began,
        "quick": arguments.quick,
    }
    threads = f"{arguments.threads} thread{'s' if arguments.threads > 1 else ''}"
    busy = f"; the machine was busy, load {load:.1f}: not for quoting" if load > 0.5 else ""
    show(outcomes, f"{machine['cpu']}, {threads}, torch {version('torch')}{busy}")
    results = {"machine": machine, "cases": {outcome.case.key: as_json(outcome) for outcome in outcomes}}
    arguments.results.write_text(json.dumps(results, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_keys, default=list(CASES), help=f"some of {','.join(CASES)}")
    parser.add_argument("--modes", action="store_true", help=f"time the modes {', '.join(_MODES)} as well as auto")
    parser.add_argument("--threads", type=int, default=1, help="of every contender (default: 1)")
    parser.add_argument("--quick", action="store_true", help="few rounds: to see that it runs, not to quote")
    parser.add_argument("--no-pfl", action="store_true", help="leave pfl out, and its environment unmade")
    parser.add_argument("--results", type=Path, default=_RESULTS, help="the file to write")
    arguments = parser.parse_args()
    if arguments.threads < 1:
        parser.error(f"--threads {arguments.threads}: it must be a positive number")
    return arguments


def _keys(text: str) -> list[str]:
    keys = text.split(",")
    if unknown := set(keys) - set(CASES):
        raise argparse.ArgumentTypeError(f"no shape is called {min(unknown)!r}: use some of {','.join(CASES)}")
    return keys


def _pfl() -> Contender:
    try:
        return Contender(PFL, "peers.pfl_fedavg", python=str(pfl_env.python()))
    except pfl_env.UnavailableError as error:
        return Contender(PFL, "peers.pfl_fedavg", unavailable=str(error))


def _time(key: str, descant: list[Contender], peers: list[Contender], threads: int, effort: Effort) -> Outcome:
    case = CASES[key]
    with tempfile.TemporaryDirectory(prefix="speed-data-") as name:
        folder = Path(name)
        if not isinstance(case, Shape):
            return Outcome(case, contest(descant, key, folder, threads, effort))
        write_data(case, folder)
        machine = [Contender(_PEAK, "peers.matmul")] if case.of_peak else []
        figures = contest([*descant, *peers, *machine], key, folder, threads, effort)
    if machine:
        *figures, product = figures
        if found := product.quartiles():
            return Outcome(case, figures, product.about["flops"] / found[1], product.about["parameters"])
    return Outcome(case, figures)


def _versions(outcomes: list[Outcome]) -> dict[str, str]:
    """Of what the contenders ran on; the environments are made with the same torch."""
    told = [figures.about for outcome in outcomes for figures in outcome.figures]
    names = ("descant", "pfl", "torch", "python")
    return {name: about[name] for about in told for name in names if name in about}


def _cpu() -> str:
    """The processor's name, where the system tells it."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
