"""Linear layers with few outputs, as a compiler likes them best.

A compiled program calls a library for every product of matrices. For a small one the call takes longer than the
product, and nothing around it can be fused with it. Written as a sum of products it becomes a loop of the program.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_FEW = 16  # outputs: about as many as a processor adds at once. With more, the library is faster


class FewOutputs(nn.Linear):
    """y_c = sum_i x_i W_ci + b_c, spelled out where a program is compiled for a CPU; else it is `nn.Linear`."""

    def forward(self, input: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() or input.device.type != "cpu":
            return super().forward(input)
        outputs = (input.unsqueeze(-2) * self.weight).sum(-1)
        return outputs if self.bias is None else outputs + self.bias


def spell_out(module: nn.Module) -> None:
    """Make `FewOutputs` of the linear layers inside `module` that have few, in place."""
    for layer in module.modules():
        if type(layer) is nn.Linear and layer.out_features <= _FEW:  # not a subclass, which may compute otherwise
            layer.__class__ = FewOutputs
