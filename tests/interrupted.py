"""To stop a run in its midst, and to see that it goes on as if nobody had."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch

from descant import Run
from descant.engine import Record, RoundRecord
from tests import held


def interrupt(round: int) -> Callable[[Record], None]:
    """A `progress` that is Ctrl-C after a round."""

    def progress(record: Record) -> None:
        if isinstance(record, RoundRecord) and record.round == round:
            raise KeyboardInterrupt

    return progress


def assert_same(found: Run, expected: Run) -> None:
    """Tables, settings, and all that the parties hold are the same to the bit."""
    assert_same_results(found, expected)
    ours, theirs = held.everything(found), held.everything(expected)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def assert_same_results(found: Run, expected: Run) -> None:
    """Tables and settings are the same to the bit."""
    assert found.rounds.drop("seconds").equals(expected.rounds.drop("seconds"))
    assert found.clients.equals(expected.clients)
    assert json.dumps(found.config) == json.dumps(expected.config)
