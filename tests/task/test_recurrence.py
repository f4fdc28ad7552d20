"""The operators of LSTM layers: values, gradients of any order, vmap, and who takes them.

torch's own `nn.LSTM`, one client after the other, says what is right.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap

from descant.task import Task, recurrence
from descant.task.recurrent import LSTM, vectorise
from tests.calls import Called

NUMBERS = st.integers(1, 3)


def ours(layer: nn.LSTM) -> nn.Module:
    """The same layer, as vmap runs it."""
    copied = deepcopy(layer)
    vectorise(copied)
    assert isinstance(copied, LSTM)
    return copied


@st.composite
def cases(draw: st.DrawFn) -> tuple[nn.LSTM, dict[str, Tensor], tuple[Tensor, ...]]:
    """A layer, the parameters [K, ...] of some clients, and their inputs, with first states or without."""
    clients, features, hidden, layers = (draw(NUMBERS) for _ in range(4))
    batch = draw(st.integers(0, 3))
    options = {name: draw(st.booleans()) for name in ("bias", "batch_first", "bidirectional")}
    torch.manual_seed(draw(st.integers(0, 10**6)))
    layer = nn.LSTM(features, hidden, layers, **options).double()
    values = {name: 0.7 * torch.randn(clients, *p.shape).double() for name, p in layer.named_parameters()}
    steps, axes = draw(st.integers(1, 6)), options["batch_first"]
    inputs = torch.randn(clients, *((batch, steps) if axes else (steps, batch)), features).double()
    states = torch.randn(2, clients, layers * (1 + options["bidirectional"]), batch, hidden).double()
    return layer, values, (inputs, *states) if draw(st.booleans()) else (inputs,)


def loss_of(layer: nn.Module) -> Any:
    """A number in which all states, the last ones and the last cells count."""

    def loss(values: dict[str, Tensor], inputs: Tensor, *first: Tensor) -> Tensor:
        outputs, (h, c) = functional_call(layer, values, (inputs, first) if first else (inputs,))
        return outputs.sin().sum() + (2 * h).cos().sum() + (c * c).sum()

    return loss


def of_each(function: Any, values: dict[str, Tensor], given: tuple[Tensor, ...]) -> list[Any]:
    clients = range(len(given[0]))
    return [function({n: v[k] for n, v in values.items()}, *(tensor[k] for tensor in given)) for k in clients]


def plain_gradients(layer: nn.Module, graph: bool = False) -> Any:
    """Of parameters and inputs, by plain autograd."""

    def gradients(values: dict[str, Tensor], *given: Tensor) -> list[Tensor]:
        leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
        inputs = [tensor.clone().requires_grad_() for tensor in given]
        wanted = [*leaves.values(), *inputs]
        first = torch.autograd.grad(loss_of(layer)(leaves, *inputs), wanted, create_graph=graph)
        if not graph:
            return list(first)
        return list(torch.autograd.grad(sum(g.square().sum() for g in first), wanted))

    return gradients


def close(mine: Any, its: list[list[Tensor]], tolerance: float = 1e-10) -> None:
    """Gradients ({name: [K, ...]}, inputs [K, ...]...), and those of each client by plain autograd."""
    flat = [*mine[0].values(), *mine[1:]]
    for found, expected in zip(flat, zip(*its, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected), rtol=tolerance, atol=tolerance)


Case = tuple[nn.LSTM, dict[str, Tensor], tuple[Tensor, ...]]


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from([1, 60, recurrence._CACHE]))
def test_all_clients_at_once_are_each_client_by_torchs_own(case: Case, cache: int) -> None:
    layer, values, inputs = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrence, "_CACHE", cache)  # weights that clients may have to be computed together
        arguments = tuple(range(1 + len(inputs)))
        close(
            vmap(grad(loss_of(ours(layer)), arguments))(values, *inputs), of_each(plain_gradients(layer), *case[1:])
        )
        predicted = vmap(loss_of(ours(layer)))(values, *inputs)
    torch.testing.assert_close(
        predicted, torch.stack(of_each(loss_of(layer), values, inputs)), rtol=1e-10, atol=1e-10
    )


@settings(max_examples=10, deadline=None)
@given(cases())
def test_gradients_of_gradients(case: Case) -> None:
    layer, values, inputs = case
    mine, arguments = loss_of(ours(layer)), tuple(range(1 + len(inputs)))

    def norm(*given: Any) -> Tensor:
        of_values, *of_inputs = grad(mine, arguments)(*given)
        return torch.stack([g.square().sum() for g in (*of_values.values(), *of_inputs)]).sum()

    close(vmap(grad(norm, arguments))(values, *inputs), of_each(plain_gradients(layer, True), values, inputs), 1e-8)


@settings(max_examples=15, deadline=None)
@given(cases(), st.booleans())
def test_clients_can_share_inputs_or_a_model(case: Case, model: bool) -> None:
    layer, values, inputs = case
    own = {name: value[0] for name, value in values.items()} if model else values
    shared = inputs if model else tuple(tensor[0] for tensor in inputs)
    dims = (None if model else 0, *(0 if model else None for _ in inputs))
    mine = vmap(grad(loss_of(ours(layer)), tuple(range(len(dims)))), in_dims=dims)(own, *shared)
    clients = len(inputs[0])
    alike = {name: value[:1].expand_as(value) for name, value in values.items()} if model else values
    same = inputs if model else tuple(tensor[:1].expand(clients, *tensor.shape[1:]) for tensor in inputs)
    close(mine, of_each(plain_gradients(layer), alike, same))


def example(batch: int = 3) -> tuple[Tensor, ...]:
    """What is added to the gates [K, T, B, 4H], U [K, 4H, H], and the first h and c [K, B, H]."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 4, batch, 8), (2, 8, 2), (2, batch, 2), (2, batch, 2))
    return tuple(torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)


def test_gradients_are_those_of_finite_differences() -> None:
    given = tuple(tensor.requires_grad_() for tensor in example())
    assert torch.autograd.gradcheck(recurrence.states, given)
    assert torch.autograd.gradgradcheck(recurrence.states, given, fast_mode=True)


def test_a_compiler_is_told_the_right_shapes() -> None:
    given, checks = example(), {"test_utils": ("test_schema", "test_faketensor")}
    for keep in (True, False):
        torch.library.opcheck(torch.ops.descant.recurrence.default, (*given, keep), **checks)
    hs, last, cs, gates = torch.ops.descant.recurrence(*given, True)
    torch.library.opcheck(torch.ops.descant.recurrence_gradient.default, (*given, hs, last, cs, gates), **checks)


def fused_cell(added: Tensor, recurrent: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What torch's kernel of a cell gives: h, c and the gates."""
    i, f, g, o = (added + recurrent).chunk(4, -1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new = f * c + i * g
    return o * new.tanh(), new, torch.cat([i, f, g, o], -1)


def fused_gradient(
    dh: Tensor, dc: Tensor, before: Tensor, c: Tensor, gates: Tensor, bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What torch's kernel of its gradient gives, here by autograd: the slopes of the gates and of the c before."""
    i, f, g, o = gates.chunk(4, -1)
    before = before.detach().requires_grad_()
    sums = torch.cat([i.logit(), f.logit(), g.atanh(), o.logit()], -1).detach().requires_grad_()
    with torch.enable_grad():
        h, new, _ = fused_cell(sums, torch.zeros_like(sums), before)
        of_sums, of_before = torch.autograd.grad((h, new), (sums, before), (dh, dc))
    torch.testing.assert_close(new, c)
    return of_sums, of_before, None


@pytest.mark.parametrize("batch", [3, 0])
def test_steps_by_a_kernel_for_each_cell_are_the_same(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Here with stand-ins for torch's kernels, which a GPU has; tests/gpu has the kernels."""
    monkeypatch.setattr(recurrence, "_CELL", fused_cell)
    monkeypatch.setattr(recurrence, "_CELL_GRADIENT", fused_gradient)
    first = example(batch)
    expected = torch.ops.descant.recurrence(*first, True)
    torch.testing.assert_close(recurrence._forward_fused(*first, True), expected)
    without = torch.ops.descant.recurrence(*first, False)
    torch.testing.assert_close(recurrence._forward_fused(*first, False), without)
    hs, last, cs, gates = expected
    _, weight, _, c = first
    given = (hs.cos(), last.sin(), cs, gates)
    mine = recurrence._backward_fused(weight, c, *given)
    torch.testing.assert_close(mine, torch.ops.descant.recurrence_gradient(*first, *given))


@pytest.mark.parametrize("fuses", [False, True])
def test_autocast_around_it_changes_no_type(monkeypatch: pytest.MonkeyPatch, fuses: bool) -> None:
    """A kernel takes numbers of one type, and products in another would be refused."""

    def strict(kernel: Any) -> Any:
        def call(*given: Any) -> Any:
            assert {each.dtype for each in given if isinstance(each, Tensor)} == {torch.float32}
            return kernel(*given)

        return call

    monkeypatch.setattr(recurrence, "_CELL", strict(fused_cell))
    monkeypatch.setattr(recurrence, "_CELL_GRADIENT", strict(fused_gradient))
    monkeypatch.setattr(recurrence, "_fuses", lambda tensor: fuses)
    first = tuple(each.float() for each in example())
    hs, last, cs, gates = expected = recurrence._recurrence(*first, True)
    given = (*first, hs.cos(), last.sin(), cs, gates)
    slopes = recurrence._gradient(*given)
    with torch.autocast("cpu", torch.bfloat16):
        assert all(map(torch.equal, recurrence._recurrence(*first, True), expected))
        assert all(map(torch.equal, recurrence._gradient(*given), slopes))


def two_layers(clients: int) -> tuple[nn.LSTM, dict[str, Tensor], Tensor]:
    torch.manual_seed(0)
    layer = nn.LSTM(3, 4, 2, batch_first=True)
    values = {name: p.detach().expand(clients, *p.shape).clone() for name, p in layer.named_parameters()}
    return layer, values, torch.randn(clients, 2, 5, 3)


def test_a_step_of_all_clients_is_two_calls_a_layer() -> None:
    layer, values, inputs = two_layers(6)
    with Called() as called:
        vmap(grad(loss_of(ours(layer))))(values, inputs)
    assert called.names == ["recurrence"] * 2 + ["recurrence_gradient"] * 2


def test_a_prediction_keeps_nothing_for_a_gradient() -> None:
    layer, values, inputs = two_layers(3)
    with Called() as called, torch.no_grad():
        vmap(loss_of(ours(layer)))(values, inputs)
    assert called.names == ["recurrence"] * 2
    assert [given[-1] for given in called.given] == [False, False]


def test_outside_of_vmap_it_is_torchs_own() -> None:
    layer, _, inputs = two_layers(1)
    mine = ours(layer)
    with Called() as called:
        found = mine(inputs[0])
    assert not called.names
    torch.testing.assert_close(found, layer(inputs[0]), rtol=0, atol=0)


def test_other_inputs_and_other_layers_are_torchs_own() -> None:
    layer, values, inputs = two_layers(1)
    for special in (nn.LSTM(3, 4, proj_size=2), nn.LSTM(3, 4, 2, dropout=0.5), nn.GRU(3, 4)):
        kept = deepcopy(special)
        vectorise(kept)
        assert type(kept) is type(special)
    lone = {name: value[0] for name, value in values.items()}
    with Called() as called:  # a sequence without a batch
        grad(loss_of(ours(layer)))(lone, inputs[0, 0])
    assert not called.names


def test_a_forward_derivative_is_refused() -> None:
    layer, _, inputs = two_layers(1)
    with pytest.raises(NotImplementedError, match=r"has no forward-mode derivative: use torch\.func\.grad"):
        jvp(lambda x: ours(layer)(x)[0], (inputs[0],), (inputs[0],))


def test_a_users_own_model_stays_as_it_is() -> None:
    model = nn.ModuleDict({"read": nn.LSTM(3, 4)})
    task = Task(model)
    assert type(model["read"]) is nn.LSTM
    assert type(task.module(task.start())["read"]) is nn.LSTM  # type: ignore[index]
