"""What a round of Hush costs beside one of Ditto:   python benchmarks/hush.py [--quick] [--device cuda]

Both take as many gradients, half of them for the shared model and half for the personal ones, on the same model,
data and minibatches. They train by turns, a run of a few rounds each, and the least of all rounds counts, without
those that compile or choose. **x Ditto** is Hush's time over Ditto's: by default (`m` a tenth of d, numbers of two
bits up and one down, rotated), with a 27th of 3 bits, with a 400th, and with other kinds of subspaces. Quote the
ratios of one run on a quiet machine.

The models are a network of 79,510 parameters on 20 clients, and a ResNet-18 of 11,173,962 on 4. `--quick` takes
fewer clients and steps: to see that it runs.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple
from warnings import simplefilter

import torch
from torch import Tensor

import descant as dc
from descant.coupling import Hadamard, Hash
from descant.methods import Ditto, FedAvg, Hush, Method
from descant.models import mlp, resnet18


class Shape(NamedTuple):
    what: str
    model: str
    clients: int
    batch: int
    steps: int


SHAPES = [Shape("MLP 784-100-10", "mlp", 20, 10, 20), Shape("ResNet-18, 3x32x32", "resnet", 4, 10, 3)]


def problem(shape: Shape) -> tuple[dc.Task, dc.FederatedData]:
    torch.manual_seed(0)
    image = (1, 28, 28) if shape.model == "mlp" else (3, 32, 32)

    def examples() -> tuple[Tensor, Tensor]:
        return torch.randn(4 * shape.batch, *image), torch.randint(10, (4 * shape.batch,))

    data = dc.FederatedData.from_arrays([{"train": examples()} for _ in range(shape.clients)], classes=10)
    module = mlp(data) if shape.model == "mlp" else resnet18(data, small_images=True)
    return dc.Task(module), data


def methods(shape: Shape) -> dict[str, Method]:
    """Ditto and Hush with the same local work; rates are small, so that no run ends early."""
    work = {"lr": 1e-4, "steps": shape.steps, "batch": shape.batch}
    ditto = Ditto(lr=1e-4, steps=shape.steps, batch=shape.batch, solver=FedAvg(**work))  # type: ignore[arg-type]

    def hush(m: float = Hush.m, **fields: object) -> Hush:
        return Hush(m=m, **work, **fields)  # type: ignore[arg-type]

    return {
        "Ditto": ditto,
        "Hush": hush(),
        "3 bits, m = d / 27": hush(1 / 27, bits=3, rotate=False),
        "Hush, m = d / 400": hush(1 / 400),
        "the same, hash": hush(1 / 400, projection=Hash(fresh=True)),
        "the same, hadamard": hush(1 / 400, projection=Hadamard(fresh=True)),
    }


def measured(shape: Shape, mode: str, device: str, turns: int) -> dict[str, float]:
    """The least seconds of a round, by method."""
    task, data = problem(shape)
    best: dict[str, float] = {}
    for _ in range(turns):
        for name, method in methods(shape).items():
            settings = {"rounds": 4, "mode": mode, "device": device, "evaluate": 100, "keep_models": "none"}
            run = dc.simulate(task, data, method, **settings)  # type: ignore[arg-type]
            best[name] = min(best.get(name, float("inf")), *run.rounds["seconds"].to_list()[1:])
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="fewer clients and steps, to see that it runs")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--modes", default="vmap,compile", help="with commas between them")
    parser.add_argument("--only", default="mlp,resnet", help="models, with commas between them")
    parser.add_argument("--turns", type=int, default=3, help="runs of each method")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    simplefilter("ignore", dc.errors.NoFiguresWarning)
    print(f"torch {torch.__version__}, {options.device}, {options.threads} thread(s)")
    for shape in (shape for shape in SHAPES if shape.model in options.only.split(",")):
        shape = shape._replace(clients=2, steps=1) if options.quick else shape
        for mode in options.modes.split(","):
            print(f"\n{shape.what}, {shape.clients} clients, {shape.steps} + {shape.steps} steps, {mode}")
            print(f"{'':24}{'s a round':>12}{'x Ditto':>10}")
            best = measured(shape, mode, options.device, options.turns)
            for name, seconds in best.items():
                print(f"{name:24}{seconds:12.4f}{seconds / best['Ditto']:10.2f}", flush=True)


if __name__ == "__main__":
    main()
