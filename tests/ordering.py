"""What orders of examples are tried on, and what they must be."""

from __future__ import annotations

from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from descant.draws import bits

LAST = torch.iinfo(torch.int64).max


class Case(NamedTuple):
    """Clients that go through their examples."""

    seed: int
    clients: Tensor  # [K]
    epochs: int
    examples: int
    sizes: Tensor  # [K]

    def asked(self, device: str = "cpu") -> tuple[Tensor, Tensor, int, int, Tensor]:
        """The arguments of `orders`."""
        key = bits(self.seed, "batch", "shared", 3)
        return key, self.clients.to(device), self.epochs, self.examples, self.sizes.to(device)

    def plainly(self) -> Tensor:
        """The argsort of all 64 bits [K, epochs, examples], of which no two have the same upper ones."""
        address = (self.clients[:, None, None], torch.arange(self.epochs)[:, None], torch.arange(self.examples))
        hashed = bits(self.seed, "batch", "shared", 3, *address)
        behind = torch.arange(self.examples) >= self.sizes[:, None, None]
        return hashed.masked_fill(behind, LAST).argsort(dim=-1, stable=True)


def case(seed: int, clients: int, epochs: int, examples: int) -> Case:
    """Clients of any numbers, and of sizes up to `examples`, which the last one has."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(2**40, (clients,), generator=generator)
    sizes = torch.randint(1, examples + 1, (clients,), generator=generator)
    sizes[-1] = examples
    return Case(seed, numbers, epochs, examples, sizes)


@st.composite
def cases(draw: st.DrawFn, most: int = 400) -> Case:
    clients, epochs, examples = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, most))
    return case(draw(st.integers(0, 2**62)), clients, epochs, examples)
