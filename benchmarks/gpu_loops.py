"""What stands beside descant in `benchmarks/gpu.py`: a bare loop, a plain loop, and the hardware itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from gpu_rows import Row
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import descant as dc

_LONG_ENOUGH = 1.0  # seconds after which a call has been repeated often enough
_FEWEST = 5  # times that it is


def step_of(row: Row, model: nn.Module, data: dc.FederatedData) -> Callable[[], None]:
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
    return lambda: program(x, position)


def bare_loop(row: Row, model: nn.Module, data: dc.FederatedData) -> float:
    """Seconds of a step in a bare loop of a compiled step, captured as a CUDA graph."""
    torch._dynamo.reset()  # every row compiles the same function: after eight, torch would compile no more
    with torch.no_grad():
        step = step_of(row, model, data)
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


def hardware() -> tuple[float, float]:
    """Bytes a second of a large copy (read and written), and operations a second of a large product in float32."""
    a = torch.empty(2**28, device="cuda")
    b, c = torch.empty_like(a), torch.randn(8192, 8192, device="cuda")
    bandwidth = 8.0 * len(a) / timed(lambda: b.copy_(a), 10)
    return bandwidth, 2.0 * 8192**3 / timed(lambda: c @ c, 5)


def timed(call: Callable[[], Any], repeats: int) -> float:
    """The mean seconds of a call, after a few that are not counted; of fewer calls where they take long."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    began, done = time.perf_counter(), 0
    while done < repeats and (done < _FEWEST or time.perf_counter() - began < _LONG_ENOUGH):
        call()
        done += 1
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / done
