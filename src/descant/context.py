"""Where a hook stands: the round, the federation, and random numbers by name.

Every hook of a method, an attack, a codec and an aggregator is told so by one frozen `Context`. What it draws
depends on the address of the draw alone, so that nothing is hidden in a generator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from descant.draws import Word, bits, normal, uniform
from descant.task import Layout


@dataclass(frozen=True)
class Draws:
    """Random numbers by name, at one address; or, at the addresses of K clients, a row for each of them."""

    address: tuple[Word, ...]
    like: Tensor  # whose dtype and device numbers have
    clients: Tensor | None = None  # [K] what tells the rows apart

    def normal(self, name: str, shape: tuple[int, ...] = ()) -> Tensor:
        """Draws from N(0, 1) of a shape, or [K, *shape]."""
        return normal(*self._at(name, shape)).to(self.like.dtype).view(self._shaped(shape))

    def uniform(self, name: str, shape: tuple[int, ...] = ()) -> Tensor:
        """Float64 draws from (0, 1) of a shape, or [K, *shape]."""
        return uniform(*self._at(name, shape)).view(self._shaped(shape))

    def bits(self, name: str, shape: tuple[int, ...] = ()) -> Tensor:
        """64 random bits (int64) for each number of a shape, or [K, *shape]."""
        return bits(*self._at(name, shape)).view(self._shaped(shape))

    def _at(self, name: str, shape: tuple[int, ...]) -> tuple[Word, ...]:
        place = torch.arange(prod(shape), device=self.like.device)
        if self.clients is None:
            return (*self.address, name, place)
        return (*self.address, name, self.clients.to(place.device)[:, None], place)

    def _shaped(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape if self.clients is None else (len(self.clients), *shape)


@dataclass(frozen=True)
class Context:
    """What every party of a round knows, and what this one alone does.

    Draws made from the context itself are public: whoever has the seed can repeat them, as all parties must for a
    projection, a hash or a cohort. `private` draws come from the party's own secret, and follow from nothing that
    the others know: noise and masks, which are to hide something. Both are other ones in each round.
    """

    round: int
    seed: int  # of the run
    clients: int  # how many take part in the federation
    layout: Layout  # which slice of a model is which parameter
    x0: Tensor  # [d] the model that the federation starts from
    secret: int = 0  # of this party; a simulation derives that of every party from one of its own
    party: str | Tensor | None = None  # in a simulation: "server", or the numbers [K] of the clients

    @cached_property
    def coin(self) -> float:
        """A number in (0, 1), the same for all parties of this round."""
        return float(uniform(self.seed, "coin", self.round))

    def at(self, round: int) -> Context:
        """The context of another round, as for a draw that is made once (round 0) or made again."""
        return replace(self, round=round)

    def normal(self, name: str, shape: tuple[int, ...] = ()) -> Tensor:
        """Public draws from N(0, 1)."""
        return self._public().normal(name, shape)

    def uniform(self, name: str, shape: tuple[int, ...] = ()) -> Tensor:
        """Public draws from (0, 1), in float64."""
        return self._public().uniform(name, shape)

    def bits(self, name: str, shape: tuple[int, ...] = ()) -> Tensor:
        """Public random bits (int64)."""
        return self._public().bits(name, shape)

    def each(self, clients: Tensor) -> Draws:
        """Public draws with a row [K, ...] for each of the clients with these numbers [K]."""
        return Draws((self.seed, "each", self.round), self.x0, clients)

    @property
    def private(self) -> Draws:
        """Draws from this party's secret; for K clients, a row [K, ...] from the secret of each."""
        if isinstance(self.party, Tensor):
            return Draws(("private", self.round), self.x0, bits(self.secret, "client", self.party))
        return Draws((self.secret, self.party or "alone", "private", self.round), self.x0)

    def of_parties(self, clients: Tensor) -> Context:
        """The context of K clients in a simulation."""
        return replace(self, party=clients)

    def of_server(self) -> Context:
        """The context of the server in a simulation."""
        return self._of_server

    @cached_property
    def _of_server(self) -> Context:
        return replace(self, party="server")  # once: the engine asks for it many times a round

    def _public(self) -> Draws:
        return Draws((self.seed, "public", self.round), self.x0)
