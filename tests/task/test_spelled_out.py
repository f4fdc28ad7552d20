"""What is spelled out for a compiler is what torch computes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from descant import Task
from descant.task.objectives import cross_entropy
from descant.task.products import FewOutputs, spell_out


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def gradients(value: Tensor, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(value.square().sum(), leaves))


@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (4, 6), (3, 4, 6)])
def test_a_linear_layer_with_few_outputs(
    shape: tuple[int, ...], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(6, 5, bias=bias).double()
    spell_out(layer)
    assert type(layer) is FewOutputs
    inputs = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    leaves = (inputs, *layer.parameters())
    expected = functional.linear(inputs, layer.weight, layer.bias)
    monkeypatch.setattr(functional, "linear", None)  # it does without
    torch.testing.assert_close(layer(inputs), expected, rtol=0, atol=1e-14)
    for got, wanted in zip(gradients(layer(inputs), *leaves), gradients(expected, *leaves), strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_outside_of_a_compiler_torch_multiplies_to_the_bit() -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(60, 10), torch.randn(8, 60)
    expected = layer(inputs)
    spell_out(layer)
    assert torch.equal(layer(inputs), expected)


def test_only_plain_linear_layers_with_few_outputs_are_spelled_out_and_only_in_training() -> None:
    class Mine(nn.Linear):
        pass

    model = nn.Sequential(nn.Linear(4, 100), Mine(100, 4), nn.Linear(4, 3))
    task = Task(model)
    assert [type(layer) for layer in task._training] == [nn.Linear, Mine, FewOutputs]  # type: ignore[union-attr, attr-defined]
    assert [type(layer) for layer in model] == [nn.Linear, Mine, nn.Linear]


@pytest.mark.usefixtures("compiling")
@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("shape", [(7,), (4, 3)])
def test_cross_entropy(shape: tuple[int, ...], scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    scores = (scale * torch.randn(*shape, 5, generator=generator, dtype=torch.float64)).requires_grad_()
    labels = torch.randint(5, shape, generator=generator)
    expected = functional.cross_entropy(scores.flatten(0, -2), labels.flatten(), reduction="none").view(shape)
    expected = expected.flatten(1).mean(1) if len(shape) > 1 else expected
    got = cross_entropy(scores, labels)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12 * scale)
    (ours,), (theirs,) = gradients(got, scores), gradients(expected, scores)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12 * scale)


@pytest.mark.usefixtures("compiling")
def test_cross_entropy_of_scores_that_overflow_is_not_finite() -> None:
    """As torch's is: a run that has diverged must be seen to."""
    for bad in (torch.inf, torch.nan):
        assert not cross_entropy(torch.tensor([[0.0, bad, 1.0]]), torch.tensor([0])).isfinite().any()
