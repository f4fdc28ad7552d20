"""MOCHA: a linear model for every client, and how the clients are related, learnt in turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from descant.context import Context
from descant.errors import TaskError, require
from descant.mail import LAST, Sent, position
from descant.methods.base import (
    Aggregate,
    Gradient,
    LocalView,
    Messages,
    Method,
    PerClient,
    ServerView,
    Tree,
    Work,
)
from descant.methods.duals import DUALS
from descant.task import Batch, Layout


@dataclass(frozen=True, kw_only=True)
class MOCHA(Method):
    """MOCHA (Smith et al., 2017), Algorithm 1: min over W, Sigma of sum_k f_k(w_k) + lam/2 tr(W' Sigma^-1 W).

    The rows of W [N, d] are the clients' linear models, a bias being the weight of a feature that is always 1.
    Sigma [N, N] says how clients are related: it is positive semidefinite of trace one, and begins as I/N. f_k is
    the mean over the client's examples (as in the authors' code; the paper has the sum) of its `loss`: "hinge",
    "logistic" or "squared" (a number's squared error), whatever the task's is. Several outputs are a problem each,
    class against the rest. Training starts at zero.

    For a fixed Sigma, W is found in the dual. A client has a dual a_i for each of its examples, and sends
    b_k = mean_i a_i x_i; the server tells it w_k = sum_j Sigma_kj b_j / lam. In a round a client goes up its part
    of the dual (the paper's (4)) one example after the other, in an order drawn anew, `epochs` times over its data.
    There sigma' Sigma_kk is sum_j |Sigma_kj|, which is the paper's bound taken for each client by itself. A
    straggler takes a part of these steps, and what it sends is used. Each is counted as a gradient on one example,
    which costs as much. A run reports the `duality_gap` that the cohort had before its work; with everyone in it,
    that is the primal less the dual.

    After `every` so many rounds (100 in the authors' code) Sigma is learnt from W: it is the root of W W' + epsilon
    I, over the trace of that root. `epsilon` lets models leave the span of what they were when Sigma was first
    learnt, where there are more clients than numbers in a model (the authors' code lifts the eigenvalues of W W' to
    1e-7). A client that has not been heard has w_k = 0, which would tie it to zero for good: it stays apart, with
    Sigma_kk = 1/N, and the others share the rest of the trace. `lam` is 1e-4 in the authors' code too.

    A message says where its client stands, so that the next one makes up for one that is lost, and for what a codec
    leaves out of it.
    """

    name: ClassVar[str] = "mocha"
    paper: ClassVar[str] = "Smith et al. 2017, Federated Multi-Task Learning"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True

    lam: float = 1e-4
    loss: Literal["hinge", "logistic", "squared"] = "hinge"
    epochs: int = 1
    every: int = 10
    epsilon: float = 1e-7

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam > 0, "a positive number")
        require(self, "loss", self.loss in DUALS, "'hinge', 'logistic' or 'squared'")
        require(self, "epochs", self.epochs >= 1, "a positive number")
        require(self, "every", self.every >= 1, "a positive number of rounds")
        require(self, "epsilon", self.epsilon >= 0, "zero or more")

    def check_run(self, rounds: int, layout: Layout) -> None:
        weight, *bias = layout.shapes
        linear = len(weight) == 2 and bias in ([], [weight[:1]])
        if not linear:
            shapes = ", ".join(f"{name} {list(s)}" for name, s in zip(layout.names, layout.shapes, strict=True))
            raise TaskError(f"MOCHA trains linear models (linear, svm or an nn.Linear), and this one has {shapes}")

    def server_start(self, ctx: Context) -> Tree:
        alone = torch.eye(ctx.clients, dtype=ctx.x0.dtype, device=ctx.x0.device) / ctx.clients
        return {"b": ctx.x0.new_zeros(ctx.clients, len(ctx.x0)), "sigma": alone}

    def client_start(self, local: LocalView) -> Tree:
        return {"a": local.start.new_zeros(len(local.n), local.largest, local.layout.shapes[0][0])}

    def broadcast(self, server: ServerView) -> dict[str, Tensor | PerClient]:
        bound = server["sigma"].abs().sum(1) / self.lam
        return {"w": PerClient(server["sigma"] @ server["b"] / self.lam), "bound": PerClient(bound)}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        batch, w = local.part("train"), matrices(down["w"], local.layout)  # w [K, C, p]
        x, y = features(batch, w), self.answers(batch, w, local)  # [K, B, p], [K, B, C]
        a = state["a"][:, : x.shape[1]]
        gaps = DUALS[self.loss].gap(a, y, x @ w.mT).sum(2)
        local.record("duality_gap", torch.where(batch.mask, gaps, 0).sum(1) / local.n)
        drawn = local.ctx.each(local.clients).uniform("order", (x.shape[1],))
        order = drawn.masked_fill(~batch.mask, torch.inf).argsort(1)
        first, work = (a, w, torch.zeros_like(local.n)), Work(epochs=self.epochs, batch=1)
        rows = (x, y, order, local.n, down["bound"] / local.n)  # the last: sigma' Sigma_kk / (lam n_k)
        a, _, taken = local.run(self.step, first, *rows, work=work, role="personal")
        local.count(taken)
        b = (a.mT @ x) / local.n[:, None, None]
        rest = state["a"][:, x.shape[1] :]
        return {"b": vectors(b, local.layout)}, {"a": torch.cat([a, rest], 1)}

    def step(
        self,
        state: tuple[Tensor, ...],
        grad: Gradient,
        x: Tensor,
        y: Tensor,
        order: Tensor,
        n: Tensor,
        bound: Tensor,
    ) -> tuple[Tensor, ...]:
        """A step up the dual on one example of each client; u is w_k, moved as far as the bound allows."""
        a, u, taken = state
        k = torch.arange(len(n), device=n.device)
        i = order[k, taken % n]
        xi, ai = x[k, i], a[k, i]  # [K, p], [K, C]
        scores, q = (u @ xi[:, :, None])[:, :, 0], bound * xi.square().sum(1)
        new = DUALS[self.loss].ascend(ai, y[k, i], scores, q[:, None])
        u = u + bound[:, None, None] * (new - ai)[:, :, None] * xi[:, None]
        return a.index_put((k, i), new), u, taken + 1

    def answers(self, batch: Batch, w: Tensor, local: LocalView) -> Tensor:
        """y [K, B, C]: numbers for "squared", and otherwise 1 for an example's class and -1 for the others."""
        outputs, targets = w.shape[1], batch.targets
        if self.loss == "squared" and targets[0, 0].numel() == outputs:
            return targets.to(w.dtype).reshape(*batch.mask.shape, outputs)
        classes = max(2, outputs)
        wrong = (targets != targets.long()) | (targets < (-1 if outputs == 1 else 0)) | (targets >= classes)
        if self.loss == "squared" or targets.dim() > 2 or bool(wrong.any()):
            client = int(local.clients[wrong.flatten(1).any(1).int().argmax()])
            takes = f"{outputs} numbers" if self.loss == "squared" else f"one of {classes} labels"
            raise TaskError(
                f"MOCHA.loss = {self.loss!r} takes {takes} an example, and client {client} has targets such as "
                f"{targets[wrong][:1].tolist() or targets[0, 0].tolist()}: choose another loss"
            )
        if outputs == 1:
            return torch.where(targets > 0, 1.0, -1.0).to(w.dtype)[:, :, None]
        return 2 * functional.one_hot(targets.long(), outputs).to(w.dtype) - 1

    def server(self, server: ServerView, messages: Messages, aggregate: Aggregate) -> Tree:
        b, sigma = messages.into(server["b"], "b"), server["sigma"]
        if server.ctx.round % self.every == 0:
            sigma = related(sigma @ b / self.lam, b.any(1), self.epsilon).to(b.dtype)
        return {"b": b, "sigma": sigma}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]

    def trained(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        assert isinstance(local.ended, tuple)
        return vectors(local.ended[1], local.layout)

    @property
    def held(self) -> tuple[str, ...]:
        return ("b",)

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {"b": position(since=LAST)}

    def first_sent(self, ctx: Context) -> Tree:
        return {"b": torch.zeros_like(ctx.x0)}

    @property
    def refuses(self) -> Mapping[str, str]:
        return {
            "aggregator": "its server relates every model to the others, and combines none",
            "own_start": "every model starts at zero",
        }


def related(W: Tensor, heard: Tensor, epsilon: float) -> Tensor:
    """Sigma [N, N] for the models W [N, d] of the clients that were heard [N], and 1/N for each of the others."""
    apart = torch.eye(len(W), dtype=torch.float64, device=W.device) / len(W)
    if not W.isfinite().all():  # which is a collapse, found elsewhere
        return apart
    U, singular, _ = torch.linalg.svd(W.double() * heard[:, None], full_matrices=False)
    above = (singular.square() + epsilon).sqrt() - epsilon**0.5
    root: Tensor = (U * above) @ U.mT + epsilon**0.5 * torch.diag(heard.double())  # of W W' + epsilon I
    if not bool(root.any()):
        return apart
    return apart * ~heard + heard.double().mean() * root / root.trace()


def matrices(w: Tensor, layout: Layout) -> Tensor:
    """The weights [K, C, p] of models w [K, d], a bias being the last of the p."""
    parts = torch.split(w, layout.sizes, dim=1)
    return torch.cat([part.view(len(w), *layout.shapes[0][:1], -1) for part in parts], 2)


def vectors(weights: Tensor, layout: Layout) -> Tensor:
    """Models [K, d] with the weights [K, C, p]."""
    width = layout.shapes[0][1]
    return torch.cat([part.flatten(1) for part in (weights[:, :, :width], weights[:, :, width:])], 1)


def features(batch: Batch, w: Tensor) -> Tensor:
    """The inputs [K, B, p] that the weights w [K, C, p] are for: a bias's is 1."""
    x = batch.inputs.flatten(2).to(w.dtype)
    if x.shape[2] not in (w.shape[2], w.shape[2] - 1):
        raise TaskError(
            f"MOCHA's model has weights for {w.shape[2]} inputs, and examples have {x.shape[2]} numbers"
        )
    return torch.cat([x, torch.ones_like(x[:, :, :1])], 2)[:, :, : w.shape[2]]
