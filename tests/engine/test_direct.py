"""The operators of direct convolutions: values, gradients of any order, vmap, compiled programs, and who has them.

Here they compute by torch's own convolutions; tests/engine/test_kernels.py and tests/gpu hold the kernels to those.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import descant as dc
from descant import Task
from descant.execution import direct, ongpu, tuning
from descant.execution.compiled import Compile
from tests.calls import Called
from tests.engine.convolving import network
from tests.interrupted import assert_same, interrupt

PAIR = st.tuples(st.integers(1, 3), st.integers(1, 3))
OPERATORS = (torch.ops.descant.convolution, torch.ops.descant.images_gradient, torch.ops.descant.filters_gradient)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, Tensor, dict[str, Any]]:
    """Images [K, B, C, H, W], filters [K, O, C, h, w], and how to convolve them."""
    clients, batch, channels, outputs = (draw(st.integers(1, 3)) for _ in range(4))
    window, stride, dilation = draw(PAIR), draw(PAIR), draw(PAIR)
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    reach = [d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)]
    size = [max(1, n - 2 * p) + draw(st.integers(0, 4)) for n, p in zip(reach, padding, strict=True)]
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    images = torch.randn(clients, batch, channels, *size, generator=generator, dtype=dtype)
    filters = torch.randn(clients, outputs, channels, *window, generator=generator, dtype=dtype)
    return images, filters, {"stride": stride, "padding": padding, "dilation": dilation}


def ours(images: Tensor, filters: Tensor, how: dict[str, Any]) -> Tensor:
    return torch.ops.descant.convolution(images[None], filters[None], *how.values())[0]


def theirs(images: Tensor, filters: Tensor, how: dict[str, Any]) -> Tensor:
    return functional.conv2d(images, filters, **how)


def both_gradients(convolve: Any, images: Tensor, filters: Tensor, how: dict[str, Any]) -> tuple[Tensor, Tensor]:
    def loss(images: Tensor, filters: Tensor) -> Tensor:
        return convolve(images, filters, how).tanh().sum()

    return grad(loss, argnums=(0, 1))(images, filters)


def close(mine: Any, its: Any, dtype: torch.dtype) -> None:
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(mine, its, rtol=tolerance, atol=tolerance)


@settings(max_examples=40, deadline=None)
@given(cases())
def test_all_clients_at_once_are_each_client_by_torchs_own(case: tuple[Tensor, Tensor, dict[str, Any]]) -> None:
    images, filters, how = case
    alone = [theirs(x, w, how) for x, w in zip(images, filters, strict=True)]
    close(vmap(lambda x, w: ours(x, w, how))(images, filters), torch.stack(alone), images.dtype)
    mine = vmap(lambda x, w: both_gradients(ours, x, w, how))(images, filters)
    its = [both_gradients(theirs, x, w, how) for x, w in zip(images, filters, strict=True)]
    close(mine, tuple(torch.stack(each) for each in zip(*its, strict=True)), images.dtype)


@settings(max_examples=20, deadline=None)
@given(cases())
def test_clients_can_share_images_or_filters(case: tuple[Tensor, Tensor, dict[str, Any]]) -> None:
    images, filters, how = case
    for dims in ((None, 0), (0, None)):
        x, w = (t[0] if dim is None else t for t, dim in zip((images, filters), dims, strict=True))
        mine, its = (
            vmap(lambda x, w, f=f: both_gradients(f, x, w, how), in_dims=dims)(x, w) for f in (ours, theirs)
        )
        close(mine, its, images.dtype)


@settings(max_examples=20, deadline=None)
@given(cases())
def test_vmap_inside_vmap(case: tuple[Tensor, Tensor, dict[str, Any]]) -> None:
    images, filters, how = case
    several = torch.stack([images, images.flip(0), -images], 2)  # [K, B, 3, C, H, W], all with a client's filters
    mine, its = (
        vmap(lambda x, w, f=f: vmap(lambda x: f(x, w, how), in_dims=1, out_dims=1)(x))(several, filters)
        for f in (ours, theirs)
    )
    close(mine, its, images.dtype)


def test_vmap_over_any_axis() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 4, 2, 6, 7, generator=generator, dtype=torch.float64)  # clients are the axis 2
    filters = torch.randn(2, 5, 2, 3, 2, 4, generator=generator, dtype=torch.float64)  # and the last
    how = ((1, 1), (0, 0), (1, 1))
    mine = vmap(lambda x, w: OPERATORS[0](x, w, *how), in_dims=(2, 5))(images, filters)
    its = torch.stack([OPERATORS[0](images[:, :, k], filters[..., k], *how) for k in range(4)])
    torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("stride,padding,dilation", [((1, 1), (0, 0), (1, 1)), ((2, 1), (1, 2), (1, 2))])
def test_the_gradients_of_each_are_those_of_finite_differences(stride: Any, padding: Any, dilation: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    how = (stride, padding, dilation)
    images = torch.randn(2, 2, 2, 5, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    filters = torch.randn(2, 3, 2, 2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    slopes = torch.randn_like(torch.ops.descant.convolution(images, filters, *how), requires_grad=True)
    calls = (
        (OPERATORS[0], (images, filters), how),
        (OPERATORS[1], (slopes, filters), ([5, 6], *how)),
        (OPERATORS[2], (images, slopes), ([2, 3], *how)),
    )
    for operator, tensors, rest in calls:
        assert torch.autograd.gradcheck(lambda a, b, f=operator, r=rest: f(a, b, *r), tensors, fast_mode=True)
        assert torch.autograd.gradgradcheck(lambda a, b, f=operator, r=rest: f(a, b, *r), tensors, fast_mode=True)
        plain = tuple(t.detach() for t in tensors)
        torch.library.opcheck(operator.default, (*plain, *rest), test_utils=("test_schema", "test_faketensor"))


def loss_of(model: nn.Module) -> Any:
    def loss(values: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, values, (inputs,)), targets)

    return loss


def examples(clients: int = 3) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    values = {
        name: value.detach() + 0.1 * torch.randn(clients, *value.shape, generator=generator, dtype=torch.float64)
        for name, value in network(nn.Conv2d).named_parameters()
    }
    inputs = torch.randn(clients, 5, 2, 10, 10, generator=generator, dtype=torch.float64)
    return values, inputs, torch.arange(clients * 5).view(clients, 5) % 3


def test_a_step_of_all_clients_is_one_call_a_layer_and_nothing_is_computed_for_the_data() -> None:
    with Called() as called:
        mine = vmap(grad(loss_of(network(direct.Direct))))(*examples())
    assert sorted(called.names) == ["convolution"] * 2 + ["filters_gradient"] * 2 + ["images_gradient"]
    its = vmap(grad(loss_of(network(nn.Conv2d))))(*examples())
    torch.testing.assert_close(mine, its, rtol=1e-12, atol=1e-14)


def second(model: nn.Module) -> Any:
    """The gradient of a gradient's square norm."""
    loss = loss_of(model)

    def norm(values: dict[str, Tensor], *batch: Tensor) -> Tensor:
        return torch.stack([g.square().sum() for g in grad(loss)(values, *batch).values()]).sum()

    return vmap(grad(norm))


def test_gradients_of_gradients() -> None:
    mine, its = second(network(direct.Direct))(*examples()), second(network(nn.Conv2d))(*examples())
    torch.testing.assert_close(mine, its, rtol=1e-11, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_compiled_programs_too(backend: str) -> None:
    def first(model: nn.Module) -> Any:
        return vmap(grad(loss_of(model)))

    # What torch compiled before and kept on disk does not follow from the code of these operators.
    with torch.no_grad(), torch._inductor.config.patch(force_disable_caches=True):
        for of in (first, second) if backend == "aot_eager" else (first,):
            program = torch.compile(of(network(direct.Direct)), fullgraph=True, dynamic=False, backend=backend)
            its = of(network(nn.Conv2d))(*examples())
            torch.testing.assert_close(program(*examples()), its, rtol=1e-11, atol=1e-13)


def test_an_image_without_a_batch_is_left_to_torch() -> None:
    layer = direct.Direct(2, 3, 3)
    images = torch.randn(4, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    with Called() as called:
        alone = layer(images[1])
    assert not called.names
    torch.testing.assert_close(layer(images)[1], alone)


@pytest.mark.slow
def test_a_resumed_run_computes_them_as_it_began(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def images() -> dc.FederatedData:
        generator = torch.Generator().manual_seed(2)
        inputs = [torch.randn(n, 2, 10, 10, generator=generator, dtype=torch.float64) for n in (9, 7, 8)]
        return dc.FederatedData.from_arrays([(x, torch.arange(len(x)) % 3) for x in inputs])

    def run(folder: str, **more: Any) -> dc.Run:
        task, method = Task(network(nn.Conv2d)), dc.methods.FedAvg(steps=2, batch=4)
        return dc.simulate(
            task, images(), method, mode="compile", device="cpu", rounds=4, out=tmp_path / folder, **more
        )

    with monkeypatch.context() as patch:
        patch.setattr(tuning, "Compile", lambda *given: ongpu.with_convolutions("direct", Compile(*given)))
        unbroken = run("unbroken")
        with pytest.raises(KeyboardInterrupt):
            run("run", progress=interrupt(2))
    with monkeypatch.context() as patch:
        met: list[str] = []
        plain = direct.Direct._conv_forward
        patch.setattr(direct.Direct, "_conv_forward", lambda *given: met.append("direct") or plain(*given))
        resumed = dc.resume(tmp_path / "run", Task(network(nn.Conv2d)), images())
    assert met
    assert resumed.config["execution"]["convolutions"] == "direct"
    assert_same(resumed, unbroken)
