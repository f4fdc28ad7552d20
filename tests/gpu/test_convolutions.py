"""Direct convolutions on a GPU, where there is one: kernels as torch's own convolutions, runs as in mode vmap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant.execution import ongpu, tuning
from descant.execution.memory import Choice
from tests import held
from tests.engine.convolving import torchs_own
from tests.interrupted import assert_same, interrupt

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU that torch can use"),
]
# The shapes of images [K, B, C, H, W] and filters [K, O, C, h, w], stride, padding and dilation.
CASES = {
    "the first layer of LeNet": ((3, 5, 3, 32, 32), (3, 6, 3, 5, 5), (1, 1), (0, 0), (1, 1)),
    "the second": ((3, 5, 6, 14, 14), (3, 16, 6, 5, 5), (1, 1), (0, 0), (1, 1)),
    "many channels, padding": ((2, 4, 8, 13, 13), (2, 33, 8, 3, 3), (1, 1), (1, 1), (1, 1)),
    "uneven": ((2, 3, 3, 9, 8), (2, 17, 3, 3, 2), (2, 1), (1, 2), (1, 2)),
    "strides that leave out pixels": ((2, 3, 2, 11, 12), (2, 5, 2, 3, 3), (3, 2), (2, 0), (2, 1)),
    "one pixel, many places": ((2, 70, 4, 12, 12), (2, 7, 4, 1, 1), (1, 1), (0, 0), (1, 1)),
    "two apart, all even": ((2, 64, 4, 12, 12), (2, 4, 4, 2, 2), (2, 2), (0, 0), (1, 1)),
    "one output": ((2, 6, 4, 4, 4), (2, 4, 4, 4, 4), (1, 1), (0, 0), (1, 1)),
    "one column of outputs": ((2, 64, 4, 36, 4), (2, 4, 4, 3, 4), (2, 1), (0, 0), (1, 1)),
    "as large as can be": ((2, 2, 1, 20, 12), (2, 3, 1, 16, 8), (1, 1), (3, 3), (1, 1)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_kernels_are_torchs_own_convolutions(name: str, dtype: torch.dtype) -> None:
    from descant.execution import kernels

    image_shape, filter_shape, *given = CASES[name]
    how: Any = [list(pair) for pair in given]
    (images, filters, slopes), its = torchs_own(image_shape, filter_shape, how)
    x, w, g = (tensor.to("cuda", dtype) for tensor in (images, filters, slopes))

    def computed() -> tuple[torch.Tensor, ...]:
        return (
            kernels.convolution(x, w, *how),
            kernels.images_gradient(g, w, list(image_shape[3:]), *how),
            kernels.filters_gradient(x, g, list(filter_shape[3:]), *how),
        )

    mine = computed()
    for ours, exact in zip(mine, its, strict=True):
        error = (ours.cpu().double() - exact).norm() / exact.norm()
        assert error < 10 * torch.finfo(dtype).eps  # TF32 would be off by a thousand times as much
    assert all(a.equal(b) for a, b in zip(mine, computed(), strict=True))


def lenet() -> dc.Task:
    torch.manual_seed(0)
    convolutions = (nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 3), nn.ReLU())
    return dc.Task(nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 2)))


def images() -> dc.FederatedData:
    generator = torch.Generator().manual_seed(5)
    inputs = [torch.randn(n, 1, 8, 8, generator=generator) for n in (20, 30, 25, 18, 40)]
    return dc.FederatedData.from_arrays([(x, (x.mean((1, 2, 3)) > 0).long()) for x in inputs])


def run(monkeypatch: pytest.MonkeyPatch, mode: str, **more: Any) -> dc.Run:
    monkeypatch.setattr(tuning, "recall", lambda key: Choice(ongpu.DIRECT, "chosen here", []) if key else None)
    method = dc.methods.Ditto(lr=0.05, steps=5, batch=8)
    return dc.simulate(lenet(), images(), method, device="cuda", mode=mode, rounds=8, **more)


def test_a_run_is_that_of_mode_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = (run(monkeypatch, mode) for mode in ("auto", "vmap"))
    assert ours.config["execution"]["convolutions"] == "direct"
    assert not ours.config["execution"]["fallbacks"]
    assert theirs.config["execution"]["convolutions"] == "grouped"
    torch.testing.assert_close(held.personal(ours), held.personal(theirs), rtol=1e-3, atol=1e-5)


def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    unbroken = run(monkeypatch, "auto", out=tmp_path / "unbroken", commit=3)
    with pytest.raises(KeyboardInterrupt):
        run(monkeypatch, "auto", out=tmp_path / "run", commit=3, progress=interrupt(5))
    monkeypatch.undo()
    resumed = dc.resume(tmp_path / "run", lenet(), images())
    assert resumed.config["execution"]["convolutions"] == "direct"
    assert_same(resumed, unbroken)
