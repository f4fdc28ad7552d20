"""LSTM layers that vmap makes layers of all clients: torch's own kernels run one client at a time."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from descant.task.recurrence import states


class LSTM(nn.LSTM):
    """`nn.LSTM`, computed by operators of ours under vmap and in compiled programs; else it is that of torch.

    A model may ask whether a layer is an `nn.LSTM`, and so it is one.
    """

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> Any:
        if not _transformed() or not isinstance(input, Tensor) or input.dim() != 3:
            return super().forward(input, hx)
        sequence = input.transpose(0, 1) if self.batch_first else input  # [T, B, features]
        directions = ("", "_reverse") if self.bidirectional else ("",)
        zeros = sequence.new_zeros(self.num_layers * len(directions), sequence.shape[1], self.hidden_size)
        first = (zeros, zeros) if hx is None else hx
        ends: list[tuple[Tensor, Tensor]] = []
        for layer in range(self.num_layers):
            found = []
            for direction in directions:
                h, c = (state[len(ends)] for state in first)
                hs, last = self._layer(f"_l{layer}{direction}", sequence, h, c, backwards=bool(direction))
                found.append(hs)
                ends.append((hs[0] if direction else hs[-1], last))
            sequence = found[0] if len(found) == 1 else torch.cat(found, -1)
        h_n, c_n = (torch.stack(state) for state in zip(*ends, strict=True))
        return sequence.transpose(0, 1) if self.batch_first else sequence, (h_n, c_n)

    def flatten_parameters(self) -> None:
        """Lay the weights out as torch's own kernel reads them, which models ask for before they call a layer."""
        if not _transformed():  # weights of all clients have no address that could be looked at
            super().flatten_parameters()

    def _layer(self, name: str, sequence: Tensor, h: Tensor, c: Tensor, backwards: bool) -> tuple[Tensor, Tensor]:
        """All states [T, B, H] of a layer, and its last cell [B, H]."""
        bias = getattr(self, f"bias_ih{name}") + getattr(self, f"bias_hh{name}") if self.bias else None
        added = functional.linear(sequence, getattr(self, f"weight_ih{name}"), bias)
        added = added.flip(0) if backwards else added
        # Where torch.autocast computes products in bfloat16, the states are that, too.
        others = (tensor.to(added.dtype)[None] for tensor in (getattr(self, f"weight_hh{name}"), h, c))
        hs, last = states(added[None], *others)
        return hs[0].flip(0) if backwards else hs[0], last[0]


def _transformed() -> bool:
    """Whether a compiler, or torch.func, looks at what is computed."""
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None


def recurrent_layers(model: nn.Module) -> list[nn.RNNBase]:
    return [layer for layer in model.modules() if isinstance(layer, nn.RNNBase)]


def numbers_held(model: nn.Module, shape: Sequence[int]) -> int:
    """How many numbers a model holds for an example of this shape: its own or, if they are more, the states of a
    recurrent layer that reads it, as tokens [T] or as vectors [..., features]."""
    steps = shape[0] if len(shape) == 1 else prod(shape[:-1])
    held = [steps * layer.hidden_size * (1 + layer.bidirectional) for layer in recurrent_layers(model)]
    return max([1, prod(shape), *held])


def vectorise(module: nn.Module) -> None:
    """Make `LSTM` of the LSTM layers inside `module` that it can compute, in place."""
    for layer in module.modules():
        # Not a subclass, which may compute otherwise. Dropout inside a layer draws what no address reaches.
        draws = isinstance(layer, nn.LSTM) and layer.dropout > 0 and layer.num_layers > 1
        if type(layer) is nn.LSTM and not layer.proj_size and not draws:
            layer.__class__ = LSTM
