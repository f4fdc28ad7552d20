"""FedAvg whose server adds noise: public, so that anyone can take it off again, or private."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from descant.methods import Aggregate, FedAvg, LocalView, Messages, ServerView, Tree


@dataclass(frozen=True, kw_only=True)
class NoisyFedAvg(FedAvg):
    """w <- w + mean update + sigma z, z ~ N(0, I) by the address of the round."""

    name: ClassVar[str] = "noisy-fedavg"

    sigma: float = 0.1

    def noise(self, server: ServerView) -> Tensor:
        return server.ctx.normal("noise", tuple(server["w"].shape))

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"w": super().server(server, messages, aggregate)["w"] + self.sigma * self.noise(server)}


@dataclass(frozen=True, kw_only=True)
class PrivateFedAvg(NoisyFedAvg):
    """The same with noise from the server's own secret; and every client adds its own, and begins with some.

    What a client adds to its update it also keeps (`mask`), and takes off again the next time: over two rounds its
    noise cancels.
    """

    name: ClassVar[str] = "private-fedavg"

    def noise(self, server: ServerView) -> Tensor:
        return server.ctx.private.normal("noise", tuple(server["w"].shape))

    def client_start(self, local: LocalView) -> Tree:
        return {"mask": local.ctx.private.normal("first", (local.start.shape[1],))}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        message, _ = super().client(down, {}, local)
        mask = local.ctx.private.normal("mask", (local.start.shape[1],))
        delta = message["delta"] + self.sigma * (mask - state["mask"])
        return message | {"delta": delta}, {"mask": mask}
