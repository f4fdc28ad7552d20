"""Layers that stay with the client while the others are shared: LG-FedAvg, FedPer, FedRep, FedBN."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from descant.context import Context
from descant.coupling.layers import coordinates
from descant.errors import SettingError, require, require_different
from descant.mail import Sent, difference
from descant.methods.base import Aggregate, Gradient, LocalView, Messages, PerClient, ServerView, Tree, Work
from descant.methods.descent import Descent
from descant.methods.optimizers import Down
from descant.task import Layout


class Split(NamedTuple):
    """The coordinates of a model that travel, and those that stay with the client."""

    travels: Tensor  # [s]
    stays: Tensor  # [d - s]

    def join(self, shared: Tensor, own: Tensor) -> Tensor:
        """Whole models [K, d] from what is shared [K, s] and what is the clients' own [K, d - s]."""
        order = torch.cat([self.travels, self.stays]).argsort()
        return torch.cat([shared, own], 1)[:, order]


@dataclass(frozen=True, kw_only=True)
class Layerwise(Descent):
    """Clients keep some layers to themselves, and share the others w, which the server averages.

    `layers` names those that they keep: the parameters of that name, and those whose names go on from it with a
    dot. By default each method has its own. Only the others travel, as an update and, for a mean `weighted` by
    numbers of examples, with n_k. What a client keeps never leaves it, and nobody else changes it; BatchNorm's
    running statistics are always kept. There is no global model. A straggler's partial work counts.

    A client that keeps nothing does what FedAvg does, and one that keeps everything trains alone.
    """

    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True

    layers: tuple[str, ...] | None = None
    weighted: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_different(self, "layers", self.layers)

    @abstractmethod
    def kept(self, layout: Layout) -> Sequence[str]:
        """The parameters that clients keep where `layers` does not say."""

    def split(self, layout: Layout, like: Tensor) -> Split:
        """Which coordinates travel and which stay, on the device of `like`."""
        stays = coordinates(layout, self.kept(layout) if self.layers is None else self.layers).to(like.device)
        return Split((~stays).nonzero().squeeze(1), stays.nonzero().squeeze(1))

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0[self.split(ctx.layout, ctx.x0).travels]}

    def client_start(self, local: LocalView) -> Tree:
        return {"own": local.start[:, self.split(local.layout, local.start).stays]}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        split = self.split(local.layout, down["w"])
        x = self.train(split.join(down["w"], state["own"]), split, local)
        message = {"delta": x[:, split.travels] - down["w"]}
        message |= {"n": local.n.to(torch.int32)} if self.weighted else {}
        return message, {"own": x[:, split.stays]}

    def train(self, x: Tensor, split: Split, local: LocalView) -> Tensor:
        """The local work of a round on whole models x [K, d]: here, on all layers at once."""
        return local.run(self.step, x, work=self.work, role="personal")

    def step(self, x: Tensor, grad: Gradient) -> Down:
        return self.down(x, self.slope(x, grad))

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate({"delta": messages["delta"]}, weights=messages.get("n"))
        return {"w": server["w"] + mean["delta"]}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return self.split(local.layout, down["w"]).join(down["w"], state["own"])

    @property
    def needs(self) -> Literal["sums", "rows"]:
        return "sums"

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"delta": difference(of="w")}


@dataclass(frozen=True, kw_only=True)
class LGFedAvg(Layerwise):
    """LG-FedAvg (Liang et al., 2020), Algorithm 1: local representations l_k under a shared model w on top of them.

    All layers are trained together. By default the last layer is shared, and clients keep all others.
    """

    name: ClassVar[str] = "lg-fedavg"
    paper: ClassVar[str] = "Liang et al. 2020, Think Locally, Act Globally"

    def kept(self, layout: Layout) -> Sequence[str]:
        return [name for name in layout.names if name not in layout.last]


@dataclass(frozen=True, kw_only=True)
class FedPer(Layerwise):
    """FedPer (Arivazhagan et al., 2019), Algorithms 1 and 2: shared base layers w under personal layers on top.

    All layers are trained together. By default clients keep the last layer.
    """

    name: ClassVar[str] = "fedper"
    paper: ClassVar[str] = "Arivazhagan et al. 2019, Federated Learning with Personalization Layers"

    def kept(self, layout: Layout) -> Sequence[str]:
        return layout.last


@dataclass(frozen=True, kw_only=True)
class FedRep(Layerwise):
    """FedRep (Collins et al., 2021), Algorithm 1: min_w mean_k min_h f_k(w, h), a shared representation w.

    A round first trains the client's head h for a fixed w, for `head_steps` or `head_epochs` (by default 10
    epochs), and then w for a fixed h, for `steps` or `epochs`. By default the head is the last layer. The mean is
    plain, as in the paper. `clip` and `weight_decay` see the layers that are trained at the time.
    """

    name: ClassVar[str] = "fedrep"
    paper: ClassVar[str] = "Collins et al. 2021, Exploiting Shared Representations for Personalized FL"

    weighted: bool = False
    head_steps: int | None = None
    head_epochs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_steps is not None and self.head_epochs is not None:
            raise SettingError("FedRep has both head_steps and head_epochs: give one of them")
        for field in ("head_steps", "head_epochs"):
            value = getattr(self, field)
            require(self, field, value is None or value >= 1, "a positive number, or nothing")

    @property
    def head_work(self) -> Work:
        epochs = 10 if self.head_steps is self.head_epochs is None else self.head_epochs
        return replace(self.work, steps=self.head_steps, epochs=epochs)

    def kept(self, layout: Layout) -> Sequence[str]:
        return layout.last

    def train(self, x: Tensor, split: Split, local: LocalView) -> Tensor:
        head = torch.zeros_like(x)
        head[:, split.stays] = 1
        x = local.run(self.step_on, x, head, work=self.head_work, role="personal/head")
        return local.run(self.step_on, x, 1 - head, work=self.work, role="personal")

    def step_on(self, x: Tensor, grad: Gradient, on: Tensor) -> Down:
        """A step on the coordinates where `on` [K, d] is 1; where it is 0 they stay."""
        return self.down(x, self.guarded(on * x, on * grad(x)))


@dataclass(frozen=True, kw_only=True)
class FedBN(Layerwise):
    """FedBN (Li et al., 2021), Algorithm 1: FedAvg, but every client keeps its BatchNorm layers.

    Their parameters and running statistics stay, and everything else is averaged, plainly as in the paper. A model
    without BatchNorm keeps nothing: name its `layers` (those of GroupNorm, say).
    """

    name: ClassVar[str] = "fedbn"
    paper: ClassVar[str] = "Li et al. 2021, FedBN: Federated Learning on Non-IID Features via Local BatchNorm"

    weighted: bool = False

    def kept(self, layout: Layout) -> Sequence[str]:
        return layout.norms
