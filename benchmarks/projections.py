"""What projections cost:   python benchmarks/projections.py [--quick] [--threads 2] [--only fold,hash]

For one client's model of d parameters in float32: the bytes that P stores, the seconds to make it, and those of
`project` and `lift`, with the GB of the model that they handle in a second, beside a plain copy of the model. The
least of several calls counts; of `seed-only`, which generates `dim` d entries at each use, one call of `project`.

The sizes are a vector of 10 million entries, lp-proj's network for Fashion-MNIST, ResNet-18 and ResNet-34.
`--quick` takes a hundredth of each and a tenth of `dim`: to see that it runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import torch

from descant.coupling import (
    BlockDiagonal,
    Dense,
    Fold,
    Hadamard,
    Hash,
    Orthogonal,
    PerLayer,
    Projection,
    Projector,
    SeedOnly,
    SparseSign,
)
from descant.coupling.projections.gaussian import Generated
from descant.task import Layout

LAYERS = 36  # that a vector is cut into for per-layer projections
ENOUGH = 1.0  # seconds that a call is repeated for


class Size(NamedTuple):
    what: str
    d: int
    dim: int


SIZES = [
    Size("10 million entries", 10_000_000, 600),
    Size("lp-proj's Fashion-MNIST network", 678_794, 600),
    Size("ResNet-18", 11_689_512, 500),
    Size("ResNet-34", 21_797_672, 600),
]
KINDS: dict[str, Projection] = {
    "dense": Dense(),
    "orthogonal": Orthogonal(),
    "block-diagonal, 50 blocks": BlockDiagonal(blocks=50),
    "the same, one for all": BlockDiagonal(blocks=50, shared=True),
    "per-layer, hash": PerLayer(kind=Hash()),
    "sparse-sign": SparseSign(),
    "hash": Hash(),
    "fold": Fold(),
    "hadamard": Hadamard(),
    "seed-only": SeedOnly(),
}


def needed(projection: Projection, size: Size) -> float:
    """GiB that making P takes, where its matrix is stored: orthogonal ones are made in float64, with two copies."""
    numbers = size.d * size.dim / (projection.blocks if isinstance(projection, BlockDiagonal) else 1)
    if isinstance(projection, BlockDiagonal) and projection.shared:
        return numbers / projection.blocks * 4 / 2**30
    times = {Dense: 4, BlockDiagonal: 4, Orthogonal: 24}.get(type(projection), 0)
    return times * numbers / 2**30


def seconds(call: Callable[[], Any]) -> float:
    """The least time of a call, repeated for a second; of a call that takes longer, its first time."""
    times = list[float]()
    while not times or sum(times) < ENOUGH:
        began = perf_counter()
        call()
        times.append(perf_counter() - began)
    return min(times)


def layout(d: int) -> Layout:
    sizes = [len(part) for part in torch.arange(d).tensor_split(LAYERS)]
    return Layout(tuple(f"{i}.weight" for i in range(LAYERS)), tuple(torch.Size([n]) for n in sizes))


def made(projection: Projection, size: Size, x: torch.Tensor) -> Projector:
    if isinstance(
        projection, SeedOnly
    ):  # without the pass for the norms of its rows, which is as long as the other
        return Generated(size.dim, size.d, torch.tensor(0), torch.ones(size.dim))
    return projection.build(0, size.dim, x, layout(size.d))


def row(projection: Projection, size: Size, x: torch.Tensor) -> list[str]:
    began = perf_counter()
    P = made(projection, size, x)
    make = perf_counter() - began
    c = torch.randn(1, size.dim)
    project = seconds(lambda: P.project(x))
    shown = [f"{P.stored:,}", "-" if isinstance(projection, SeedOnly) else f"{make:.2f}", *timed(project, size.d)]
    return shown + (["-", "-"] if isinstance(projection, SeedOnly) else timed(seconds(lambda: P.lift(c)), size.d))


def timed(spent: float, d: int) -> list[str]:
    return [f"{spent:.4f}", f"{4e-9 * d / spent:.3g}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="a hundredth of every size, to see that it runs")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--memory", type=float, default=4, help="GiB that a matrix may take")
    parser.add_argument("--skip", default="", help="kinds to leave out, with commas between them")
    parser.add_argument("--only", default="", help="kinds to measure, with commas between them; by default all")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} thread(s)")
    for size in SIZES:
        size = size._replace(d=size.d // 100, dim=size.dim // 10) if options.quick else size
        x = torch.randn(1, size.d)
        copied = torch.empty_like(x)
        copy = seconds(lambda x=x, copied=copied: copied.copy_(x))
        print(f"\n{size.what}: d = {size.d:,}, dim = {size.dim}")
        heads = ("stored bytes", "make s", "project s", "GB/s", "lift s", "GB/s")
        print(f"{'':26}" + "".join(f"{head:>15}" for head in heads))
        print(f"{'a copy':26}" + "".join(f"{cell:>15}" for cell in ["-", "-", *timed(copy, size.d), "-", "-"]))
        for name, projection in KINDS.items():
            if name in options.skip.split(",") or (options.only and name not in options.only.split(",")):
                continue
            if needed(projection, size) > options.memory:
                print(f"{name:26}  takes {needed(projection, size):.0f} GiB to make: not tried")
                continue
            print(f"{name:26}" + "".join(f"{cell:>15}" for cell in row(projection, size, x)), flush=True)


if __name__ == "__main__":
    main()
