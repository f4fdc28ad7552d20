"""How fast descant trains on a GPU, beside a bare loop of compiled steps, a plain PyTorch loop, and the hardware.

python benchmarks/gpu.py                     all rows, in less than five minutes on an H200
python benchmarks/gpu.py --only mlp-248,lenet --precision tf32
python benchmarks/gpu.py --profile           where the time of a round goes, in place of the rates
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from gpu_profile import profiled
from gpu_rows import ROWS, SETUPS, Row, Setup, operations
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import descant as dc
from descant.engine import RoundRecord

KEYS = [*(row.key for row in ROWS), *(setup.key for setup in SETUPS)]
_LONG = 10**5  # rounds: a run that is worth compiling


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(KEYS), help=f"some of {','.join(KEYS)}")
    parser.add_argument("--precision", choices=("full", "tf32", "bf16"), default="full")
    parser.add_argument("--mode", default="auto")
    parser.add_argument("--profile", action="store_true", help="look at single rounds of the rows")
    parser.add_argument("--results", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("there is no GPU that torch can use")
    wanted = arguments.only.split(",")
    if arguments.profile:
        for row in ROWS:
            if row.key in wanted:
                profiled(row, arguments.mode, arguments.precision)
        return
    began = time.perf_counter()
    bandwidth, rate = hardware()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {arguments.precision}: ", end="")
    print(f"{bandwidth / 1e12:.2f} TB/s copied, {rate / 1e12:.1f} TFLOP/s in a large product", flush=True)
    found: dict[str, Any] = {"bandwidth": bandwidth, "rate": rate}
    for row in ROWS:
        if row.key in wanted:
            found[row.key] = show(row, arguments.mode, arguments.precision, bandwidth, rate)
            print(f"  {time.perf_counter() - began:.0f} s up to here", flush=True)
    for setup in SETUPS:
        if setup.key in wanted:
            found[setup.key] = whole(setup, arguments.mode, arguments.precision)
            print(f"  {time.perf_counter() - began:.0f} s up to here", flush=True)
    if arguments.results is not None:
        arguments.results.write_text(json.dumps(found, indent=2) + "\n")


def show(row: Row, mode: str, precision: str, bandwidth: float, rate: float) -> dict[str, Any]:
    """Time a row and print it: client-steps a second, and what part of them the hardware would allow."""
    data = row.data()
    torch.manual_seed(0)
    model = row.model(data)
    moved, counted = row.least(dc.Task(model), operations(model, data.train.inputs[: row.batch]))
    least = max(moved / bandwidth, counted / rate)  # seconds a step of all clients
    round_seconds, all_seconds, about = simulated(row, model, data, mode, precision)
    rates = {
        "simulate": row.clients * row.steps / round_seconds,
        "with evaluation": row.clients * row.steps * row.rounds / all_seconds,
        "floor": row.clients / least,
        "plain loop": row.clients / plain_loop(row, model, data),
    }
    if row.bare:
        rates["bare loop"] = row.clients / bare_loop(row, model, data)
    binds = "bytes" if moved / bandwidth > counted / rate else "operations"
    print(f"\n{row.title}  ({about['mode']}, {about['clients_at_once']} at once; {about['why']})")
    for name, value in rates.items():
        share = f"{value / rates['bare loop']:.0%} of the bare loop" if row.bare and name == "simulate" else ""
        print(
            f"  {name:16} {value:>14,.0f} client-steps/s  {share or (binds if name == 'floor' else '')}", flush=True
        )
    for note in about["fallbacks"]:
        print(f"  note: {note}")
    return {**rates, "binds": binds, "execution": about}


def simulated(
    row: Row, model: nn.Module, data: dc.FederatedData, mode: str, precision: str
) -> tuple[float, float, dict[str, Any]]:
    """The seconds of a median round, those of all rounds with evaluation every 10, and how it was carried out."""
    clock = Clock(row.rounds + 3)
    run = dc.simulate(
        dc.Task(model),
        data,
        row.method(row.steps, row.batch),
        rounds=_LONG,
        mode=mode,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
        device="cuda",
        evaluate=dc.Evaluation(every=10, parts=("test",)),
        keep_models="none",
        callbacks=clock,
    )
    marks = clock.marks  # an evaluation comes after the mark of its round
    between = sorted(b - a for r, (a, b) in enumerate(pairwise(marks), start=1) if r > 2 and r % 10)
    return between[len(between) // 2], marks[-1] - marks[2], run.config["execution"]


class Clock(dc.callbacks.Callback):
    """Notes when rounds end, and ends the run after some of them: `auto` is to choose as for a long one."""

    def __init__(self, rounds: int) -> None:
        self.rounds, self.marks = rounds, list[float]()

    def on_round(self, record: RoundRecord) -> dc.callbacks.Stop | None:
        # What the round left has been read here. The GPU draws the next round's minibatches: who waited for that
        # would time them one after the other.
        self.marks.append(time.perf_counter())
        return dc.callbacks.Stop("timed") if record.round == self.rounds else None


def step_of(row: Row, model: nn.Module, data: dc.FederatedData) -> tuple[Callable[[], None], Tensor]:
    """A bare step of all clients, in place: a random minibatch, the gradient, and x <- x - lr g."""
    model = model.cuda()
    names, shapes = zip(*((n, p.shape) for n, p in model.named_parameters()), strict=True)
    sizes = [shape.numel() for shape in shapes]
    inputs, targets = data.train.inputs.cuda(), data.train.targets.cuda()
    x = torch.cat([p.detach().flatten() for p in model.parameters()]).repeat(row.clients, 1)
    first = data.train.offsets[:-1, None].cuda()
    position = torch.randint(0, row.samples, (row.clients, row.batch), device="cuda")

    def loss(x: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        values = {n: part.view(s) for n, part, s in zip(names, x.split(sizes), shapes, strict=True)}
        return functional.cross_entropy(functional_call(model, values, (inputs,)), targets)

    def step(x: Tensor, position: Tensor) -> None:
        index = first + position
        x.copy_(x - 0.01 * vmap(grad(loss))(x, inputs[index], targets[index]))

    program = torch.compile(step, fullgraph=True, dynamic=False)
    return lambda: program(x, position), x


def bare_loop(row: Row, model: nn.Module, data: dc.FederatedData) -> float:
    """Seconds of a step in a bare loop of a compiled step, captured as a CUDA graph."""
    torch._dynamo.reset()
    with torch.no_grad():
        step, _ = step_of(row, model, data)
        beside = torch.cuda.Stream()
        with torch.cuda.stream(beside):
            step()
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        return timed(graph.replay, 30)


def plain_loop(row: Row, model: nn.Module, data: dc.FederatedData) -> float:
    """Seconds of a step of all clients in an ordinary PyTorch loop over clients, from a few of them."""
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs, targets = (t[: row.samples].cuda() for t in (data.train.inputs, data.train.targets))

    def step() -> None:
        at = torch.randint(0, row.samples, (row.batch,), device="cuda")
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[at]), targets[at]).backward()
        optimizer.step()

    return row.clients * timed(step, 40)


def whole(setup: Setup, mode: str, precision: str) -> dict[str, Any]:
    """Time a whole run as another project does, from the first round on, and a plain loop's part of it."""
    row = Row(
        key=setup.key,
        title=setup.title,
        model=setup.model,
        inputs=setup.inputs,
        classes=setup.classes,
        clients=setup.clients,
        samples=setup.samples,
        batch=setup.batch,
    )
    generator = torch.Generator().manual_seed(0)
    parts = [row._part(samples, generator) for samples in (setup.samples, 0, setup.tested)]
    data = dc.FederatedData(*parts, classes=setup.classes, name=setup.key)
    torch.manual_seed(0)
    model = setup.model(data)
    began, clock = time.perf_counter(), Clock(setup.rounds)
    run = dc.simulate(
        dc.Task(model),
        data,
        dc.methods.FedAvg(lr=0.01, epochs=setup.epochs, batch=setup.batch),
        rounds=setup.of,
        cohort=setup.cohort,
        mode=mode,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
        device="cuda",
        evaluate=dc.Evaluation(every=setup.every, parts=("test",), models=("shared",)),
        keep_models="none",
        callbacks=clock,
    )
    marks = clock.marks
    ended = time.perf_counter()
    started, a_round = marks[0] - began, (ended - marks[0]) / (setup.rounds - 1)
    total = started + a_round * (setup.of - 1)
    steps = setup.epochs * -(-setup.samples // setup.batch)
    plain = plain_loop(row, model, data) / setup.clients * setup.cohort * steps * setup.of
    about = run.config["execution"]
    print(f"\n{setup.title}  ({about['mode']}, {about['clients_at_once']} at once)")
    print(f"  {setup.rounds} rounds in {ended - began:.1f} s, of which {started:.1f} s up to the first round's end")
    print(f"  {setup.of} rounds: {total:.1f} s (from these); a plain loop's steps alone {plain:.1f} s", flush=True)
    return {"seconds": ended - began, "start": started, "extrapolated": total, "plain": plain, "execution": about}


def hardware() -> tuple[float, float]:
    """Bytes a second of a large copy (read and written), and operations a second of a large product in float32."""
    a = torch.empty(2**28, device="cuda")
    b, c = torch.empty_like(a), torch.randn(8192, 8192, device="cuda")
    bandwidth = 8.0 * len(a) / timed(lambda: b.copy_(a), 10)
    return bandwidth, 2.0 * 8192**3 / timed(lambda: c @ c, 5)


def timed(call: Callable[[], Any], repeats: int) -> float:
    """The mean seconds of a call, after a few that are not counted."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / repeats


if __name__ == "__main__":
    main()
