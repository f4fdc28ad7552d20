"""Fine-tuning as a phase of a run: first the rounds of a solver, then rounds that start from its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from descant.errors import require
from descant.methods.base import LocalView, ServerView, Tree, whole
from descant.methods.over import OverSolver
from descant.task import Layout


@dataclass(frozen=True, kw_only=True)
class Tuned(OverSolver):
    """Personal models that can be trained after the shared one.

    With `after`, so many rounds are the solver's alone, and in those that follow v is trained from its model w*,
    which a client hears when it first takes part in them; nothing else travels then. Until a client has begun, it
    deploys w.
    """

    after: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "after", self.after is None or self.after >= 1, "a positive number of rounds, or nothing")

    def check_run(self, rounds: int, layout: Layout) -> None:
        super().check_run(rounds, layout)
        tunes = self.after is None or self.after < rounds
        require(self, "after", tunes, f"below rounds = {rounds}, or no round is left to fine-tune in")

    def tunes(self, round: int) -> bool:
        """Whether a round is one of fine-tuning."""
        return self.after is not None and round > self.after

    def not_begun(self, x: Tensor) -> Tree:
        """What clients remember of fine-tuning, before it: the w* that they `heard`, and that they have none."""
        if self.after is None:
            return {}
        return {"heard": x, "begun": torch.zeros_like(x[:, 0], dtype=torch.bool)}

    def begin(self, w: Tensor, v: Tensor, own: Tree, local: LocalView) -> tuple[Tensor, Tensor]:
        """The w* [K, d] and the models v [K, C, d] to tune; those of clients that begin now are w* itself."""
        begins = ~own["begun"]
        self.inherit(begins, local)
        w = torch.where(begins[:, None], w, own["heard"])
        return w, torch.where(begins[:, None, None], w[:, None], v)

    def deployed(self, v: Tensor, down: Tree, state: Tree, local: LocalView) -> Tensor:
        """v [K, d] where fine-tuning has begun, and the solver's model otherwise."""
        self.inherit(~state["begun"], local)
        w = self.solver.personal(down, self.solvers(state), local)
        return torch.where(state["begun"][:, None], v, w)

    def inherit(self, who: Tensor, local: LocalView) -> None:
        """The personal models of `who` [K] are the shared one: so are their running statistics."""
        shared, personal = local.buffers["shared"], local.buffers["personal"]
        local.buffers["personal"] = torch.where(who[:, None], shared, personal)

    def silent(self, server: ServerView) -> bool | Literal["up", "down"]:
        return "up" if self.tunes(server.ctx.round) else self.solver.silent(server)

    def fetches(self, down: Tree, state: Tree, local: LocalView) -> Mapping[str, Tensor]:
        if not self.tunes(local.round):
            return super().fetches(down, state, local)
        return {name: whole(leaf) * ~state["begun"] for name, leaf in down.items()}  # who has begun holds w*
