"""One projection of a full update, with error feedback: what Hush is without its steps in the subspace."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.coupling import Projector
from descant.errors import require
from descant.methods.base import Gradient, LocalView, Tree
from descant.methods.hush import Hush
from descant.methods.optimizers import Down


@dataclass(frozen=True, kw_only=True)
class OneProjection(Hush):
    """One projection: Hush whose clients take their steps in the whole space, and project once what these come to.

    It is Hush's own rival, to show what steps in the subspace are worth. A client takes the steps of the shared
    model as FedAvg does, from w to x in all d dimensions. It sends the projection of u = x - w + e to the round's
    subspace, and keeps what that leaves out for the next time (error feedback: Karimireddy et al., 2019,
    Algorithm 2, with the projection S'S in the place of their compression):

        q = U u,    e <- u - U' q,    U = sqrt(g) S.

    The server, the personal models, rounding and bytes are Hush's, and so are the other fields. With `feedback`, g
    is 1 by default: what is left, (I - g S'S) u, must not be longer than u. Without it e is 0 and g is Hush's, so
    that one step of plain descent a round is Hush exactly. `bits` are those of a number on its way up and down, as
    in Hush. What rounding changes is not kept, nor is a message that got lost.
    """

    name: ClassVar[str] = "one-projection"
    paper: ClassVar[str] = "descant's own (docs/hush.md), after Karimireddy et al. 2019, Error Feedback"

    feedback: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        shorter = not self.feedback or self.gain is None or self.gain <= 1
        require(self, "gain", shorter, "at most 1 with feedback, or what is left over may grow without end")

    def stretch(self, d: int) -> float:
        """sqrt(g)."""
        return 1.0 if self.feedback and self.gain is None else super().stretch(d)

    def client_start(self, local: LocalView) -> Tree:
        nothing = {"left": torch.zeros_like(local.start)} if self.feedback else {}
        return super().client_start(local) | nothing

    def shared_work(self, S: Projector, w: Tensor, state: Tree, local: LocalView) -> tuple[Tensor, Tree]:
        x = local.run(self.descend, w, work=self.work, role="shared")
        u, a = x - w, self.stretch(w.shape[1])
        if not self.feedback:
            return a * S.project(u), {}
        u = u + state["left"]
        q = a * S.project(u)
        return q, {"left": u - a * S.lift(q)}

    def descend(self, x: Tensor, grad: Gradient) -> Down:
        """A step on the shared model (FedAvg)."""
        return self.down(x, self.slope(x, grad))

    @property
    def refuses(self) -> Mapping[str, str]:
        if not self.feedback:
            return super().refuses
        kept = "what a client keeps is what it did not send, and those who only train send nothing"
        return {**super().refuses, "trainers": f"{kept}; set `feedback` to false"}
