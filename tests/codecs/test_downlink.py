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


def test_a_codec_of_plain_numbers_that_cannot_broadcast_is_refused_with_the_reason() -> None:
    data = dc.data.synthetic(clients=2, samples=10)
    with pytest.raises(SettingError, match=r"downlink: 'unmeasured' does not say how long .* such as stc"):
        dc.simulate(dc.Task(torch.nn.Linear(60, 10)), data, "fedavg", rounds=1, downlink=Unmeasured())
