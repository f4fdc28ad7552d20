"""What clients hear and the server reads: evaluated as it arrives, and refused where it cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from descant import FederatedData, Task
from descant.attacks import SignFlip
from descant.codecs import Native
from descant.context import Context
from descant.data import DataError
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import FedAvg
from descant.state import HeldRows
from descant.trees import Tree


def test_a_client_deploys_what_the_downlink_delivered(run: Any, point: Task, points: FederatedData) -> None:
    done = run(FedAvg(steps=1), task=point, data=points, rounds=2, downlink="float16")
    w = done.shared(round="last").at.detach()
    assert not torch.equal(w, w.half().double())  # rounding says something
    assert torch.equal(done.personal(0, round="last").at.detach(), w.half().double())


@dataclass(frozen=True, kw_only=True)
class Careless(Native):
    """A codec that cannot read the bytes of client 2, and says so in words of its own."""

    name: ClassVar[str] = "careless"
    exact: ClassVar[bool] = False
    raises: type[Exception] = ValueError

    def decode(self, ctx: Context, copies: Tree, payloads: list[bytes], blank: Mail) -> tuple[Tree, Mail]:
        if 2 in blank.clients.tolist():
            raise self.raises("these bytes are none of mine")
        return super().decode(ctx, copies, payloads, blank)


@pytest.mark.parametrize("raises", [ValueError, IndexError, ZeroDivisionError, RuntimeError])
def test_whatever_a_codec_says_of_a_message_refuses_that_message(
    run: Any, point: Task, points: FederatedData, raises: type[Exception]
) -> None:
    done = run(FedAvg(steps=1), task=point, data=points, rounds=2, codec=Careless(raises=raises))
    assert [(row["received"], row["refused"]) for row in done.history.rounds] == [(3, 1)] * 2


@pytest.mark.parametrize("raises", [TypeError, torch.OutOfMemoryError])
def test_a_mistake_of_the_codec_or_of_the_machine_is_no_messages_fault(
    run: Any, point: Task, points: FederatedData, raises: type[Exception]
) -> None:
    with pytest.raises(raises):
        run(FedAvg(steps=1), task=point, data=points, rounds=1, codec=Careless(raises=raises))


def test_attacks_want_to_know_who_attacks(run: Any, point: Task, points: FederatedData) -> None:
    method = FedAvg(steps=1)
    with pytest.raises(SettingError, match="attacks: nobody carries them out; say who attacks"):
        run(method, task=point, data=points, rounds=1, attacks=SignFlip())
    nobody = run(method, task=point, data=points, rounds=1, attacks=SignFlip(), malicious=0)
    plain = run(method, task=point, data=points, rounds=1)
    assert torch.equal(nobody.shared(round="last").at, plain.shared(round="last").at)


def test_a_client_that_is_elsewhere_has_no_place_here(data: FederatedData) -> None:
    some = data.only([4, 1])
    assert some.places(torch.tensor([1, 4])).tolist() == [1, 0]
    for absent in (0, 3, 6):
        with pytest.raises(DataError, match="not in this data"):
            some.places(torch.tensor([absent]))


@pytest.mark.parametrize("folder", [None, "held"])
def test_held_rows_are_known_by_their_bits_and_may_have_any_name(tmp_path: Path, folder: str | None) -> None:
    """0 and -0 compare equal, and a leaf may be called as one of the store's own."""
    rows = HeldRows({"touched": torch.zeros(3, 2)}, tmp_path / folder if folder else None)
    rows.replace({"touched": torch.tensor([[0.0, 0.0], [0.0, -0.0], [0.0, 0.0]])})
    who, changed = rows.changed()
    assert who.tolist() == [1] and changed["touched"].signbit().tolist() == [[False, True]]
    again = HeldRows({"touched": torch.zeros(3, 2)}, tmp_path / "again" if folder else None)
    again.write(who, changed)
    assert torch.equal(again.leaves["touched"].signbit(), rows.leaves["touched"].signbit())
