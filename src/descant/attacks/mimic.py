"""Attackers that all say what one benign client says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.attacks.base import Attack
from descant.context import Context
from descant.errors import require
from descant.mail import Mail
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class Mimic(Attack):
    """Mimic (Karimireddy et al., 2022): all attackers copy one benign client, whose data then count for many.

    No message is out of the ordinary; it does harm where clients differ. In the first `warmup` rounds attackers
    look for the direction z of greatest variance of the benign updates x_i (Oja's rule; mu is their running mean):

        z <- t/(t+1) z + 1/(t+1) u / ||u||,   u = sum_i (x_i - mu) (x_i - mu)'z,   and z is made a unit vector,

    and copy the client that is furthest along z; then it stays the one of the last such round. In a round that this
    client does not take part in, they copy the one that is furthest along z. Updates are those of the first leaf.
    """

    name: ClassVar[str] = "mimic"

    warmup: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "warmup", self.warmup >= 1, "a positive number of rounds")

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        if not benign:
            return state, mail
        name, leaf = next(iter(benign.items()))
        x = benign.updates().get(name, leaf).reshape(len(leaf), -1).double()  # [B, d]
        rounds = int(state.get("rounds", 0))
        if rounds < self.warmup:
            state = self.turned(ctx, state, x, rounds)
            copied = int((x @ state["z"]).argmax())
            state |= {"client": benign.clients[copied], "rounds": torch.tensor(rounds + 1)}
        else:
            here = benign.clients == state["client"]
            copied = int(here.to(torch.uint8).argmax() if bool(here.any()) else (x @ state["z"]).argmax())
        said = {n: leaf[copied].expand_as(mail[n]) for n, leaf in benign.items() if leaf.is_floating_point()}
        return state, mail.with_leaves(said)

    def turned(self, ctx: Context, state: Tree, x: Tensor, t: int) -> Tree:
        """The running mean of the updates x [B, d], and z, after t rounds before this one."""
        first = ctx.at(0).normal(self.name, (x.shape[1],)).double()
        mu = (t * state.get("mu", torch.zeros_like(first)) + x.mean(0)) / (t + 1)
        z = state.get("z", first / torch.linalg.vector_norm(first))
        u = (x - mu).T @ ((x - mu) @ z)
        length = torch.linalg.vector_norm(u)
        if length > 0:  # it is not where all clients say the same
            z = (t * z + u / length) / (t + 1)
            z = z / torch.linalg.vector_norm(z)
        return {"mu": mu, "z": z}
