"""What a broadcast may be encoded with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import descant as dc
from descant.codecs import Codec
from descant.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Unmeasured(Codec):
    name = "unmeasured"

    def encode(self, *_: Any) -> Any:
        raise NotImplementedError

    def decode(self, *_: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("codec", "why"), [("top-k", "'top-k' acts on updates"), (Unmeasured(), "'unmeasured' does not say how long")]
)
def test_a_codec_that_cannot_broadcast_is_refused_with_the_reason(codec: Any, why: str) -> None:
    data = dc.data.synthetic(clients=2, samples=10)
    with pytest.raises(SettingError, match=f"downlink: {why}"):
        dc.simulate(dc.Task(torch.nn.Linear(60, 10)), data, "fedavg", rounds=1, downlink=codec)
