"""Where the parts of a round meet: each is asked, told and remembered no more and no less than it should be."""

from __future__ import annotations

from typing import Any

import torch

from descant.aggregators import CenteredClipping
from descant.methods import FLAME


def test_clipping_starts_from_what_was_sent_last_whoever_else_asks_for_it(run: Any) -> None:
    clipping = CenteredClipping(tau=0.05)
    plain = run(FLAME(steps=2), cohort=4, aggregator=clipping)
    watched = run(FLAME(steps=2), cohort=4, aggregator=clipping, attacks="random-labels", malicious=0)
    assert torch.equal(plain._simulation.server.state["w"], watched._simulation.server.state["w"])
