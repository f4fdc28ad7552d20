"""Ditto: personal models tied to the model of any global solver."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Self, cast

import torch
from torch import Tensor

from descant.errors import require
from descant.methods.base import Gradient, LocalView, Method, Tree, Work
from descant.methods.candidates import choose, pick
from descant.methods.optimizers import Down
from descant.methods.schedules import ByRound
from descant.methods.tuned import Tuned
from descant.trees import without


@dataclass(frozen=True, kw_only=True)
class Ditto(Tuned):
    """Ditto (Li et al., 2021), Algorithm 1: min_v f_k(v) + lam/2 ||v - w*||^2, with w* from any global solver.

    `lam` weighs the tie: lam = 0 is local training. Sends what the solver sends; v never leaves the client. In a
    round in which the solver is silent, v is tied to the model that the client heard last.

    v and w are trained jointly. With `after`, w* comes first (the fine-tuning of section 3.2): so many rounds are
    the solver's alone, and in those that follow v is trained from w*, which a client hears when it first takes part
    in them; nothing else travels then. Until a client has begun, it deploys w.

    Several rising `lam` are candidates (section 4): a model is trained for each, and after its round a client
    chooses the one with the lowest loss on its validation data, or the middle one if those are fewer than 4
    examples. (Under a strong attack they are 0.05, 0.1, 0.2 and otherwise 0.1, 1, 2; with 4 and 5 examples, which
    the paper leaves open, a client chooses.) A run reports how many chose each.
    """

    name: ClassVar[str] = "ditto"
    paper: ClassVar[str] = "Li et al. 2021, Ditto: Fair and Robust Federated Learning Through Personalization"
    default_work: ClassVar[Work] = Work(steps=20)
    least: ClassVar[int] = 4  # validation examples to choose on

    lam: float | tuple[float, ...] = 1.0
    lr: float | ByRound = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = len(self.lams) > 0 and all(a < b for a, b in pairwise(self.lams))
        require(self, "lam", rising, "a number, or several that rise")
        require(self, "lam", all(lam >= 0 for lam in self.lams), "zero or more")

    @property
    def lams(self) -> tuple[float, ...]:
        return self.lam if isinstance(self.lam, tuple) else (self.lam,)

    @property
    def candidates(self) -> tuple[Self, ...]:
        """This method with each lam by itself: whose step is taken."""
        return tuple(replace(self, lam=lam) for lam in self.lams) if isinstance(self.lam, tuple) else (self,)

    @property
    def middle(self) -> int:
        return (len(self.lams) - 1) // 2

    def client_start(self, local: LocalView) -> Tree:
        x = local.start
        own = {"v": x}
        if isinstance(self.lam, tuple):
            first = torch.full_like(x[:, 0], self.middle, dtype=torch.int64)
            own = {"v": x[:, None].expand(-1, len(self.lam), -1), "choice": first}
        if type(self.solver).silent is not Method.silent:
            own["heard"] = x  # the last w, for rounds in which none travels
        own |= self.not_begun(x)
        return self.keep(self.solver.client_start(local)) | own

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        one = len(self.lams) == 1 or not local.buffers["personal"].shape[1]
        require(self, "lam", one, "one number for a model with running statistics (BatchNorm)")
        own, solved, message = without(state, "solver"), self.solvers(state), Tree()
        if not self.tunes(local.round):
            message, solved = self.solver.client(down, solved, local)
        if self.after is None or self.tunes(local.round):
            w = self.solver.personal(down, solved, local) if down else own["heard"]
            own = self.personalize(w, own, local)
        return message, self.keep(solved) | own

    def personalize(self, w: Tensor, own: Tree, local: LocalView) -> Tree:
        """Line 6 for every candidate, towards the shared model w [K, d] that the client has heard."""
        v = own["v"].reshape(len(w), len(self.lams), -1)  # [K, C, d]
        if "begun" in own:
            w, v = self.begin(w, v, own, local)
        steps = [  # all candidates see the same minibatches
            local.run(candidate.step, v[:, c], w, work=self.work, role="personal")
            for c, candidate in enumerate(self.candidates)
        ]
        v = torch.stack(steps, 1)
        new = {"v": v.reshape(own["v"].shape), "heard": w, "begun": torch.ones_like(local.n, dtype=torch.bool)}
        if "choice" in own:
            new["choice"] = choose(v, local, least=self.least, otherwise=self.middle)
            for c, lam in enumerate(self.lams):
                local.record(f"lam={lam:g}", new["choice"] == c)
        return {name: new[name] for name in own}

    def step(self, v: Tensor, grad: Gradient, w: Tensor) -> Down:
        """Line 6. Here `lam` is one number, also where there are several candidates."""
        return self.down(v, self.slope(v, grad) + cast(float, self.lam) * (v - w))

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        v = self.chosen(state)
        return self.deployed(v, down, state, local) if "begun" in state else v

    def chosen(self, state: Tree) -> Tensor:
        """The client's v [K, d]: of several candidates, the one that it chose."""
        return pick(state["v"], state["choice"]) if "choice" in state else state["v"]

    def trained(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        if self.after is not None and not self.tunes(local.round):
            return self.solver.trained(down, self.solvers(state), local)
        return self.chosen(state)
