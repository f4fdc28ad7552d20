"""The flat vector of a model."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from descant.task import Layout

shapes = st.lists(st.lists(st.integers(0, 4), max_size=3).map(tuple), max_size=5)


def tensors(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(0)
    return {f"p{i}": torch.randn(shape, generator=g, dtype=dtype) for i, shape in enumerate(shapes)}


@given(shapes)
def test_unflatten_undoes_flatten(shapes: list[tuple[int, ...]]) -> None:
    named = tensors(shapes)
    layout = Layout.of(named)
    back = layout.unflatten(layout.flatten(named))
    assert list(back) == list(named)
    for name, tensor in named.items():
        assert back[name].shape == tensor.shape
        assert torch.equal(back[name], tensor)


@given(shapes)
def test_flatten_undoes_unflatten(shapes: list[tuple[int, ...]]) -> None:
    layout = Layout.of(tensors(shapes))
    vector = torch.arange(layout.dim, dtype=torch.float32)
    assert torch.equal(layout.flatten(layout.unflatten(vector)), vector)


@given(shapes)
def test_the_slices_are_the_tensors_one_after_the_other(shapes: list[tuple[int, ...]]) -> None:
    named = tensors(shapes)
    layout = Layout.of(named)
    vector, end = layout.flatten(named), 0
    for name, where in layout.slices.items():
        assert where.start == end
        assert torch.equal(vector[where], named[name].flatten())
        end = where.stop
    assert end == layout.dim == len(vector) == sum(tensor.numel() for tensor in named.values())


def test_the_order_is_that_of_the_module() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
    layout = Layout.of(dict(model.named_parameters()))
    assert layout.slices == {
        "0.weight": slice(0, 6),
        "0.bias": slice(6, 9),
        "2.weight": slice(9, 12),
        "2.bias": slice(12, 13),
    }
    expected = nn.utils.parameters_to_vector(model.parameters())
    assert torch.equal(layout.flatten(dict(model.named_parameters())), expected)


def test_a_gradient_passes_through_to_the_vector() -> None:
    layout = Layout.of(tensors([(2, 2), (3,)]))
    vector = torch.arange(7.0).requires_grad_()
    pieces = layout.unflatten(vector)
    (pieces["p0"].square().sum() + 5 * pieces["p1"].sum()).backward()
    assert vector.grad is not None
    assert vector.grad.tolist() == [0, 2, 4, 6, 5, 5, 5]
