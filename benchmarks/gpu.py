"""How fast descant trains on a GPU, beside a bare loop of compiled steps, a plain PyTorch loop, and the hardware.

python benchmarks/gpu.py                     all rows, in about four minutes on an H200
python benchmarks/gpu.py --only mlp-248,lenet --precision tf32
python benchmarks/gpu.py --any-order         sums in any order, as those that plain PyTorch takes
python benchmarks/gpu.py --seconds 200       rows that have not begun by then are left out
python benchmarks/gpu.py --profile           where the time of a round goes, in place of the rates
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from gpu_clock import EVERY, Clock, Spent
from gpu_loops import bare_loop, hardware, plain_loop
from gpu_profile import profiled
from gpu_rows import ROWS, SETUPS, Row, Setup, operations
from gpu_store import copy_seconds, in_host_memory, share_shown
from torch import nn

import descant as dc
from descant.execution import Mode

KEYS = [*(row.key for row in ROWS), *(setup.key for setup in SETUPS)]
_LONG = 10**5  # rounds: a run that is worth compiling
_SECONDS = 3.0  # of rounds that are timed, if these are enough of them


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KEYS), help=f"some of {','.join(KEYS)}")
    parser.add_argument("--precision", choices=("full", "tf32", "bf16"), default="full")
    parser.add_argument("--mode", choices=("auto", "compile", "vmap", "loop"), help="auto unless a row has its own")
    parser.add_argument("--any-order", action="store_true", help="sums in any order, as plain PyTorch takes them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no row after so many seconds")
    parser.add_argument("--profile", action="store_true", help="look at single rounds of the rows")
    parser.add_argument("--results", type=Path, help="a file for the figures, written after every row")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU that torch can use")
    wanted, precision = arguments.only.split(","), arguments.precision
    how = {"precision": precision, "deterministic": not arguments.any_order}
    if arguments.profile:
        for row in ROWS:
            if row.key in wanted:
                profiled(row, arguments.mode or "auto", precision)
        return
    began = time.perf_counter()
    bandwidth, rate = hardware()
    # What stands beside our runs is as exact as they are: torch would take TF32 for convolutions.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "full"
    order = ", sums in any order" if arguments.any_order else ""
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {precision}{order}: ", end="")
    print(f"{bandwidth / 1e12:.2f} TB/s copied, {rate / 1e12:.1f} TFLOP/s in a large product", flush=True)
    found: dict[str, Any] = {"bandwidth": bandwidth, "rate": rate}
    everything: list[Row | Setup] = [*ROWS, *SETUPS]
    for each in everything:
        if each.key not in wanted:
            continue
        if time.perf_counter() - began > arguments.seconds:
            print(f"\n{each.key}: left out after {arguments.seconds:.0f} s", flush=True)
            continue
        spent, mode = Spent(), arguments.mode or each.mode
        if isinstance(each, Row):
            found[each.key] = show(each, mode, how, bandwidth, rate, spent)
        else:
            found[each.key] = whole(each, mode, how, spent)
        found[each.key]["spent"] = spent.stages
        print(f"  {spent}; {time.perf_counter() - began:.0f} s up to here", flush=True)
        if arguments.results is not None:
            arguments.results.write_text(json.dumps(found, indent=2) + "\n")
    print(f"\n{time.perf_counter() - began:.0f} s in all")


def show(row: Row, mode: Mode, how: dict[str, Any], bandwidth: float, rate: float, spent: Spent) -> dict[str, Any]:
    """Time a row and print it: client-steps a second, and what part of them the hardware would allow."""
    data = row.data()
    torch.manual_seed(0)
    model = row.model(data)
    moved, counted = row.least(dc.Task(model), operations(model, data.train.inputs[: row.batch]))
    least = max(moved / bandwidth, counted / rate)  # seconds a step of all clients
    spent.on("data")
    clock, about = simulated(row, model, data, mode, how)
    spent.on_run(clock.marks)
    rates = {
        "simulate": row.working * row.steps / clock.round_seconds,
        "with evaluation": row.working * row.steps / clock.with_evaluation,
        "floor": row.clients / least,
    }
    beside: dict[str, float] = {}
    if row.beside:
        beside = state_beside(row, model, data, mode, how, clock.round_seconds)
        rates["state in host memory"] = row.working * row.steps / beside["seconds"]
        spent.on("again with the state in host memory")
    rates["plain loop"] = row.clients / plain_loop(row, model, data)
    spent.on("plain loop")
    if row.bare:
        rates["bare loop"] = row.clients / bare_loop(row, model, data)
        spent.on("bare loop")
    binds = "bytes" if moved / bandwidth > counted / rate else "operations"
    print(f"\n{row.title}  ({about['mode']}, {about['clients_at_once']} at once; {about['why']})")
    for name, value in rates.items():
        share = f"{value / rates['bare loop']:.0%} of the bare loop" if row.bare and name == "simulate" else ""
        print(f"  {name:21} {value:>14,.0f} client-steps/s  {share or (binds if name == 'floor' else '')}")
    if beside:
        size, alone, shown = (beside[name] for name in ("bytes", "copies", "shown"))
        print(f"  the state: {size / 1e6:,.0f} MB a round there and back take {1e3 * alone:.2f} ms by themselves")
        to, back = beside["to"] / 1e6, beside["back"] / 1e6
        print(f"  on average {to:,.0f} MB a round went there, evaluations with it, and {back:,.0f} MB back")
        print(
            f"  a round takes {shown:.0%} of that longer (0 %: all behind work; above 100 %: more than the copies)"
        )
    for note in about["fallbacks"]:
        print(f"  note: {note}")
    return {**rates, "binds": binds, "execution": about, "beside": beside}


def simulated(
    row: Row, model: nn.Module, data: dc.FederatedData, mode: Mode, how: dict[str, Any]
) -> tuple[Clock, dict[str, Any]]:
    """The times of a row's rounds, with evaluation now and then, and how it was carried out."""
    clock = Clock.of_row(row.rounds, _SECONDS)
    run = dc.simulate(
        dc.Task(model),
        data,
        row.method(row.steps, row.batch),
        rounds=_LONG,
        cohort=row.cohort,
        mode=mode,
        device="cuda",
        **how,
        evaluate=dc.Evaluation(every=EVERY, parts=("test",)),
        keep_models="none",
        callbacks=clock,
    )
    return clock, run.config["execution"]


def state_beside(
    row: Row, model: nn.Module, data: dc.FederatedData, mode: Mode, how: dict[str, Any], on_gpu: float
) -> dict[str, float]:
    """The seconds of a median round with the clients' state in host memory, and what its copies take alone."""
    with in_host_memory() as travelled:
        clock, _ = simulated(row, model, data, mode, how)
    if not travelled.times:
        raise RuntimeError(f"{row.key}: no state has travelled; the row needs a method whose clients hold some")
    one_way = row.working * travelled.row
    copies = copy_seconds(one_way)
    shown, rounds = share_shown(clock.round_seconds, on_gpu, copies), len(clock.marks)
    moved = {"to": travelled.to / rounds, "back": travelled.back / rounds}  # with those of evaluations
    return {"seconds": clock.round_seconds, "bytes": 2.0 * one_way, "copies": copies, "shown": shown, **moved}


def whole(setup: Setup, mode: Mode, how: dict[str, Any], spent: Spent) -> dict[str, Any]:
    """Time a whole run as another project does, from the first round on, and a plain loop's part of it."""
    row, data = setup.row, setup.data()
    torch.manual_seed(0)
    model = setup.model(data)
    spent.on("data")
    began, clock = time.perf_counter(), Clock(lambda marks: len(marks) == setup.rounds)
    run = dc.simulate(
        dc.Task(model),
        data,
        dc.methods.FedAvg(lr=0.01, epochs=setup.epochs, batch=setup.batch),
        rounds=setup.of,
        cohort=setup.part or setup.cohort,
        mode=mode,
        device="cuda",
        **how,
        evaluate=dc.Evaluation(every=setup.every, parts=("test",), models=("shared",)),
        keep_models="none",
        callbacks=clock,
    )
    ended = time.perf_counter()
    spent.on_run(clock.marks)
    total = setup.extrapolated(clock.marks, began, ended, median(clock.evaluations))
    steps = setup.epochs * -(-setup.samples // setup.batch)
    plain = plain_loop(row, model, data) / setup.clients * setup.cohort * steps * setup.of
    spent.on("plain loop")
    about, started = run.config["execution"], clock.marks[0] - began
    took = f"{ended - began:.1f} s, of which {started:.1f} s up to the first round's end"
    whom = f" of {setup.part} of the {setup.cohort} clients" if setup.part else ""
    print(f"\n{setup.title}  ({about['mode']}, {about['clients_at_once']} at once)")
    print(f"  {setup.rounds} rounds{whom} in {took}")
    print(f"  {setup.of} rounds of {setup.cohort}: {total:.1f} s ({setup.means}); ", end="")
    print(f"a plain loop's steps alone {plain:.1f} s (from a few)", flush=True)
    for note in about["fallbacks"]:
        print(f"  note: {note}")
    figures = {"seconds": ended - began, "start": started, "extrapolated": total, "plain": plain}
    return {**figures, "clients": setup.part or setup.cohort, "rounds": setup.rounds, "execution": about}


if __name__ == "__main__":
    main()
