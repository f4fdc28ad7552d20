"""Where the parts of a round meet: each is asked, told and remembered no more and no less than it should be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from descant.aggregators import CenteredClipping, KLoss
from descant.methods import FLAME, Ditto, FedAvg, LocalView, ServerView, Tree


def test_clipping_starts_from_what_was_sent_last_whoever_else_asks_for_it(run: Any) -> None:
    clipping = CenteredClipping(tau=0.05)
    plain = run(FLAME(steps=2), cohort=4, aggregator=clipping)
    watched = run(FLAME(steps=2), cohort=4, aggregator=clipping, attacks="random-labels", malicious=0)
    assert torch.equal(plain._simulation.server.state["w"], watched._simulation.server.state["w"])


@dataclass(frozen=True, kw_only=True)
class EverySecond(FedAvg):
    """FedAvg that is silent in every second round."""

    name: ClassVar[str] = "every-second"

    def silent(self, server: ServerView) -> bool:
        return server.ctx.round % 2 == 0

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        return super().client(down, state, local) if down else ({}, state)


def test_nobody_is_asked_for_a_loss_in_a_round_without_mail(run: Any) -> None:
    fine_tuned = run(Ditto(steps=2, after=1), cohort=4, aggregator=KLoss())
    silent = run(Ditto(steps=2, solver=EverySecond(steps=2)), cohort=4, aggregator=KLoss())
    assert [scored > 0 for scored in fine_tuned.rounds["scored"]] == [True, False, False]
    assert [scored > 0 for scored in silent.rounds["scored"]] == [True, False, True]
