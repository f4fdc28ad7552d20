"""Fine-tuning from the model of any global solver: plain, tied by an L2 norm, by EWC, or by what models say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from descant.errors import TaskError, require
from descant.methods.base import Gradient, LocalView, Tree, Work
from descant.methods.optimizers import Down
from descant.methods.schedules import ByRound
from descant.methods.tuned import Tuned
from descant.task import Batch, Predict
from descant.task.objectives import masked_mean
from descant.trees import without


@dataclass(frozen=True, kw_only=True)
class FineTune(Tuned):
    """Fine-tuning: v_k goes down f_k(v) + lam/2 ||v - w||^2 from v = w, the model of any global solver.

    Sends what the solver sends. `lam` weighs the tie to w: 0 is plain fine-tuning. With `steps` = 0 clients deploy
    w itself.

    By default a client fine-tunes whenever it deploys a model, so also at each evaluation, on its training data,
    and forgets v; these gradients are on nobody's bill, and counted apart (`evaluation_gradients`). With `after`,
    fine-tuning is rounds of its own after so many of the solver: it is Ditto's second solver (section 3.2), and its
    gradients are on the bill. The default of 50 epochs is that of Ditto's comparisons (section 4.4).
    """

    name: ClassVar[str] = "finetune"
    paper: ClassVar[str] = "Yu et al. 2020, Salvaging Federated Learning by Local Adaptation; Ditto, section 4.4"
    default_work: ClassVar[Work] = Work(epochs=50)
    fewest: ClassVar[int] = 0

    lam: float = 0.0
    lr: float | ByRound = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "lam", self.lam >= 0, "zero or more")

    def client_start(self, local: LocalView) -> Tree:
        own = {} if self.after is None else {"v": local.start} | self.not_begun(local.start)
        return self.keep(self.solver.client_start(local)) | own

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        own, solved = without(state, "solver"), self.solvers(state)
        if not self.tunes(local.round):
            message, solved = self.solver.client(down, solved, local)
            return message, self.keep(solved) | own
        w, v = self.begin(self.solver.personal(down, solved, local), own["v"][:, None], own, local)
        new = {"v": self.tune(v[:, 0], w, local), "heard": w, "begun": torch.ones_like(own["begun"])}
        return {}, self.keep(solved) | new

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        if self.after is not None:
            return self.deployed(state["v"], down, state, local)
        w = self.solver.personal(down, self.solvers(state), local)
        return self.tune(w, w, local, start="shared")

    def trained(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"] if self.tunes(local.round) else self.solver.trained(down, self.solvers(state), local)

    def resumes(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        if self.after is not None:
            return self.deployed(state["v"], down, state, local)
        return self.solver.resumes(down, self.solvers(state), local)

    def tune(self, v: Tensor, w: Tensor, local: LocalView, start: str | None = None) -> Tensor:
        """The local work on v [K, d], for a fixed w [K, d]; `start` names the model that v was made from now."""
        if self.steps == 0:
            self.inherit(torch.ones_like(local.n, dtype=torch.bool), local)
            return v
        also = self.prepare(w, local, start)
        return local.run(self.step, v, w, *also, work=self.work, role="personal", start=start)

    def prepare(self, w: Tensor, local: LocalView, start: str | None) -> tuple[Tensor, ...]:
        """What the tie needs beside w, found once: rows [K, ...]."""
        return ()

    def step(self, v: Tensor, grad: Gradient, w: Tensor, *also: Tensor) -> Down:
        slope = self.slope(v, grad)
        return self.down(v, slope + self.lam * self.pull(v, grad, w, *also) if self.lam else slope)

    def pull(self, v: Tensor, grad: Gradient, w: Tensor, *also: Tensor) -> Tensor:
        """The gradient of the tie in v [K, d]."""
        return v - w


@dataclass(frozen=True, kw_only=True)
class EWC(FineTune):
    """Fine-tuning with elastic weights: v_k goes down f_k(v) + lam/2 sum_j F_j (v_j - w_j)^2 from v = w.

    F is the diagonal of the empirical Fisher matrix at w, the mean over the client's examples of the squares of
    their own gradients (Kirkpatrick et al., 2017; as a personal method: Yu et al., 2020). It costs one gradient an
    example each time that a client fine-tunes. BatchNorm, which cannot train on a single example, is refused. When
    and how else it fine-tunes is as with `finetune`.
    """

    name: ClassVar[str] = "ewc"
    paper: ClassVar[str] = "Kirkpatrick et al. 2017, Overcoming Catastrophic Forgetting in Neural Networks"

    lam: float = 1.0

    @property
    def refuses(self) -> Mapping[str, str]:
        alone = "F takes the gradient of one example alone, and BatchNorm cannot train on a batch of one"
        return {**super().refuses, "statistics": alone}

    def prepare(self, w: Tensor, local: LocalView, start: str | None) -> tuple[Tensor, ...]:
        squares = local.run(
            self.add_square,
            torch.zeros_like(w),
            w,
            work=Work(epochs=1, batch=1),
            role="personal/fisher",
            start=start,
        )
        seen = local.taken("personal/fisher").steps  # a straggler looks at some of its examples only
        return (squares / seen.clamp(min=1)[:, None],)

    def add_square(self, total: Tensor, grad: Gradient, w: Tensor) -> Tensor:
        """Add the squared gradient of one example at w."""
        return total + grad(w).square()

    def pull(self, v: Tensor, grad: Gradient, w: Tensor, *also: Tensor) -> Tensor:
        (fisher,) = also
        return fisher * (v - w)


@dataclass(frozen=True, kw_only=True)
class SKL(FineTune):
    """Fine-tuning tied by outputs: v_k goes down f_k(v) + lam mean_i KL(p_i || q_i) + KL(q_i || p_i) from v = w.

    p_i and q_i are the probabilities that v and w give the classes of example i (Ditto, section 4.4, after Jiang
    et al., 2020). The mean is over the minibatch; the code of Ditto's authors sums over all training examples, so
    that their lam is this one over n_k. A step costs two gradients. When and how else it fine-tunes is as with
    `finetune`.
    """

    name: ClassVar[str] = "skl"
    paper: ClassVar[str] = "Jiang et al. 2020, SMART: Robust and Efficient Fine-Tuning; Ditto, section 4.4"

    lam: float = 1.0

    @property
    def refuses(self) -> Mapping[str, str]:
        return {**super().refuses, "one_output": "SKL compares probabilities of classes"}

    def pull(self, v: Tensor, grad: Gradient, w: Tensor, *also: Tensor) -> Tensor:
        return grad(v, w, objective=symmetrised_kl)


def symmetrised_kl(predict: Predict, v: Tensor, batch: Batch, w: Tensor) -> Tensor:
    """The mean over a client's minibatch of KL(p || q) + KL(q || p) = sum_c (p_c - q_c) (log p_c - log q_c)."""
    scores = predict(v)
    if scores.dim() < 2 or scores.shape[-1] < 2:
        raise TaskError("SKL compares probabilities of classes, and the model gives one number an example")
    p, q = functional.log_softmax(scores, -1), functional.log_softmax(predict(w), -1)
    divergence = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # [B], or [B, T] for sequences
    return masked_mean(divergence.flatten(1).mean(1) if divergence.dim() > 1 else divergence, batch.mask)
