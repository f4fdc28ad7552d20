"""The kernels of direct convolutions, step by step on a CPU, where Triton is installed. On a GPU: tests/gpu."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.convolving import torchs_own
from tests.interpreted import marks, outside, run_of, within

pytestmark = marks


@outside
def test_kernels_hold_step_by_step() -> None:
    done = run_of(__file__)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.startswith("s..")  # all but this one ran


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Any:
    from descant.execution import kernels

    monkeypatch.setattr(kernels, "_LENGTH", 50)  # several slices even of few places
    return kernels


@st.composite
def cases(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], list[list[int]]]:
    """The shapes of images [K, B, C, H, W] and filters [K, O, C, h, w]; stride, padding and dilation."""
    clients, batch, channels = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    outputs = draw(st.sampled_from([1, 2, 3, 6, 9, 17]))
    window, stride, dilation = ([draw(st.integers(1, most)) for _ in range(2)] for most in (4, 3, 2))
    padding = [draw(st.integers(0, 3)) for _ in range(2)]
    reach = [d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)]
    size = [max(1, n - 2 * p) + draw(st.integers(0, 8)) for n, p in zip(reach, padding, strict=True)]
    return (clients, batch, channels, *size), (clients, outputs, channels, *window), [stride, padding, dilation]


@within
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
def test_kernels_are_torchs_own_convolutions(kernels: Any, case: Any) -> None:
    image_shape, filter_shape, how = case
    (images, filters, slopes), its = torchs_own(image_shape, filter_shape, how)
    mine = (
        kernels.convolution(images, filters, *how),
        kernels.images_gradient(slopes, filters, list(image_shape[3:]), *how),
        kernels.filters_gradient(images, slopes, list(filter_shape[3:]), *how),
    )
    torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


@within
def test_images_of_all_clients_are_read_where_they_lie(kernels: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(2, 3, 6, 7, generator=generator, dtype=torch.float64).expand(3, 2, 3, 6, 7)
    filters = torch.randn(3, 5, 3, 3, 2, generator=generator, dtype=torch.float64)
    how = ([1, 1], [0, 0], [1, 1])
    assert kernels._apart(shared) is shared
    outputs = kernels.convolution(shared, filters, *how)
    torch.testing.assert_close(outputs, kernels.convolution(shared.contiguous(), filters, *how), rtol=0, atol=0)
    turned = outputs.mT.contiguous().mT  # rows and columns lie the other way around
    mine, its = (kernels.filters_gradient(slopes, slopes, [1, 1], *how) for slopes in (turned, outputs))
    torch.testing.assert_close(mine, its, rtol=0, atol=0)
