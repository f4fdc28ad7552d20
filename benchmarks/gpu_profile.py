"""Where the time of a round goes on a GPU: what `benchmarks/gpu.py --profile` prints of a row."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from gpu_rows import Row
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

import descant as dc
from descant.engine import RoundRecord

_WARM, _TIMED, _LOOKED_AT = 20, 20, 5  # rounds; those that are looked at are slower, and not timed
_LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaGraphLaunch")
_COPIES = ("cudaMemcpyAsync", "cudaMemcpy", "cudaMemsetAsync")
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


@dataclass
class Look(dc.callbacks.Callback):
    """Times some rounds, then looks closely at a few, and ends the run."""

    marks: list[float] = field(default_factory=list)
    found: Any = None

    def on_round(self, record: RoundRecord) -> dc.callbacks.Stop | None:
        if _WARM <= record.round <= _WARM + _TIMED:  # a round ends when the GPU has been read
            self.marks.append(time.perf_counter())
        if record.round == _WARM + _TIMED:
            self.found = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
            self.found.__enter__()
        if record.round == _WARM + _TIMED + _LOOKED_AT:
            torch.cuda.synchronize()
            self.found.__exit__(None, None, None)
            return dc.callbacks.Stop("looked at")
        return None


def profiled(row: Row, mode: str, precision: str, most: int = 8) -> dict[str, float]:
    """Print how long a round takes, how long the GPU is at work in it, and what the processor asks for."""
    data, look = row.data(), Look()
    torch.manual_seed(0)
    dc.simulate(
        dc.Task(row.model(data)),
        data,
        row.method(row.steps, row.batch),
        rounds=10**5,
        cohort=row.cohort,
        mode=mode,  # type: ignore[arg-type]
        precision=precision,  # type: ignore[arg-type]
        device="cuda",
        evaluate=dc.Evaluation(every=10**6, parts=("test",)),
        keep_models="none",
        callbacks=look,
    )
    kernels: dict[str, float] = defaultdict(float)
    asked: dict[str, float] = defaultdict(float)
    for event in look.found.events():
        if event.device_type == DeviceType.CUDA:
            kernels[event.name] += event.time_range.elapsed_us() / 1e3 / _LOOKED_AT
        for kind, names in (("launches", _LAUNCHES), ("copies", _COPIES), ("waits", _WAITS)):
            if event.device_type == DeviceType.CPU and event.name in names:
                asked[kind] += 1 / _LOOKED_AT
    rounds = sorted(b - a for a, b in zip(look.marks, look.marks[1:], strict=False))
    figures = {"ms a round": 1e3 * rounds[len(rounds) // 2], "GPU at work, ms": sum(kernels.values()), **asked}
    print(f"\n{row.title}: one round of {row.steps} steps")
    print("  " + ", ".join(f"{name} {figure:.2f}" for name, figure in figures.items()))
    for name, spent in sorted(kernels.items(), key=lambda item: -item[1])[:most]:
        print(f"  {spent:8.3f} ms  {name[:90]}")
    return figures
