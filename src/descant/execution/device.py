"""Where a run computes, how exactly, and how much room there is."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch

Precision = Literal["full", "tf32", "bf16"]
AUTO = "auto"


def resolve(device: str) -> str:
    """The device itself; for "auto", the GPU where there is one that torch can use, else the processor."""
    if device != AUTO:
        return device
    return "cuda" if torch.cuda.is_available() else "cpu"


@contextmanager
def computing(device: str, precision: Precision, deterministic: bool = True) -> Iterator[None]:
    """Compute on a device: products in full precision, and alike every time, unless asked otherwise.

    Some operations of a GPU add up in an order that changes from run to run, and would make a resumed run another
    one. Of these the ordered kind is taken where torch has one, if all is to be `deterministic`.
    """
    if not device.startswith("cuda"):
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # with which products are computed alike
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (products.allow_tf32, convolutions.allow_tf32, convolutions.deterministic, convolutions.benchmark)
    strict, warns = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        products.allow_tf32 = convolutions.allow_tf32 = precision != "full"
        convolutions.deterministic, convolutions.benchmark = deterministic, False
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        with torch.cuda.device(device), warnings.catch_warnings():  # streams and graphs are made on it
            warnings.filterwarnings("ignore", message=".*does not have a deterministic implementation.*")
            warnings.filterwarnings("ignore", message=".*TensorFloat32 tensor cores.*")
            yield
    finally:
        products.allow_tf32, convolutions.allow_tf32, convolutions.deterministic, convolutions.benchmark = before
        torch.use_deterministic_algorithms(strict, warn_only=warns)
        torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


def free_memory(device: torch.device) -> int:
    """The bytes of a GPU's memory that are free, or held by torch and not in use."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
