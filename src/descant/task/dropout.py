"""Dropout whose masks have an address, like every other draw of a run.

torch's own dropout draws from a global generator: its masks would depend on the order of the work, and vmap
refuses it. `address` puts these modules in the place of torch's; their `key` (a buffer) is the hash of (seed,
role, round, client, step), which the task sets at each forward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from descant.draws import uniform

# Whether whole channels are dropped.
_KINDS: dict[type[nn.Module], bool] = {
    nn.Dropout: False,
    nn.Dropout1d: True,
    nn.Dropout2d: True,
    nn.Dropout3d: True,
}


_AHEAD = 2**14  # places of an axis that are numbered ahead


class AddressedDropout(nn.Module):
    """Dropout of single activations, or of whole channels for Dropout1d, 2d and 3d."""

    key: Tensor
    numbers: Tensor

    def __init__(self, p: float, site: int, channels: bool) -> None:
        super().__init__()
        self.p, self.site, self.channels = p, site, channels
        self.uses = 0  # of this forward pass: a module used twice draws two masks
        self.register_buffer("key", torch.tensor(0))
        # A compiler knows the bounds of numbers that the program makes itself, and takes it that products of them
        # do not overflow, as those of a hash do: other masks came of it. It knows nothing of numbers that are read.
        self.register_buffer("numbers", torch.arange(_AHEAD))

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return inputs
        shape = inputs.shape[:2] + (1,) * (inputs.dim() - 2) if self.channels else inputs.shape
        # Every axis is a word of the address: padded rows change nothing, on whichever axis examples lie.
        places = [self._count(n) for n in shape]
        grid = [place.view(-1, *[1] * (len(shape) - axis)) for axis, place in enumerate(places, start=1)]
        kept = uniform(self.key, self.site, self.uses, *grid) >= self.p
        self.uses += 1
        return inputs * kept.to(inputs.dtype) / max(1.0 - self.p, 1e-12)  # p = 1 leaves zeros, as in torch

    def _count(self, n: int) -> Tensor:
        """The numbers from 0 to n - 1, from those that are there."""
        if n <= _AHEAD:
            return self.numbers[:n]
        rows = -(-n // _AHEAD)  # 2^28 places are the most
        return (self.numbers[:rows, None] * _AHEAD + self.numbers).flatten()[:n]


def address(module: nn.Module) -> dict[str, AddressedDropout]:
    """Replace torch's dropout inside `module` by addressed dropout, in place; return the new modules by name.

    A dropout module that lies in several places of the model stays one module.
    """
    sites: dict[nn.Module, AddressedDropout] = {}
    for parent in list(module.modules()):
        # Not named_children(), which leaves out the second name of a child.
        for name, child in parent._modules.items():
            if child is not None and type(child) in _KINDS:
                if child not in sites:
                    p = float(child.p)  # type: ignore[arg-type]
                    sites[child] = AddressedDropout(p, len(sites), _KINDS[type(child)])
                setattr(parent, name, sites[child])
    return {name: site for name, site in module.named_modules() if isinstance(site, AddressedDropout)}
