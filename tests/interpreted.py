"""Kernels of Triton on a CPU, by its interpreter: in a process of their own, where Triton is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # Triton looks at this once, when it is imported
within = pytest.mark.skipif(not INTERPRETED, reason="run by the first test, in a process of its own")
outside = pytest.mark.skipif(INTERPRETED, reason="this is the process of its own")
marks = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and tests/gpu holds the kernels on it"),
]


def run_of(file: str) -> subprocess.CompletedProcess[str]:
    """The tests of a file in a process that interprets kernels."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", file]
    return subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
