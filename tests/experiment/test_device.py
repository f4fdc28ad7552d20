"""Where a run computes and how exactly, as far as that can be seen without a GPU."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn

import descant as dc
from descant.engine.clients import Clients
from descant.errors import SettingError
from descant.execution.device import computing, resolve
from descant.mail import Mail
from descant.state import ClientStore
from tests import held


def federation() -> dc.FederatedData:
    return dc.data.synthetic(clients=5, samples=30, seed=1)


def run(**settings: Any) -> dc.Run:
    torch.manual_seed(0)
    method = dc.methods.Ditto(steps=3, batch=8)
    return dc.simulate(dc.Task(nn.Linear(60, 10)), federation(), method, rounds=2, mode="vmap", **settings)


def test_auto_is_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve("auto") == "cuda" and resolve("cpu") == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve("auto") == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_auto_is_the_default_and_the_run_says_what_it_was() -> None:
    assert run().config["execution"]["device"] == "cpu"


def test_what_is_no_device_is_refused_by_name() -> None:
    with pytest.raises(SettingError, match=r"device = 'gpu'.*'auto', or a device of torch"):
        run(device="gpu")
    with pytest.raises(SettingError, match=r"precision = 'half'.*'full', 'tf32' or 'bf16'"):
        run(precision="half")


def test_bfloat16_is_near_and_keeps_parameters_as_they_are() -> None:
    rough, full = run(device="cpu", precision="bf16"), run(device="cpu")
    assert held.personal(rough).dtype == torch.float32
    assert not held.personal(rough).equal(held.personal(full))
    torch.testing.assert_close(held.personal(rough), held.personal(full), rtol=0, atol=0.02)


def test_the_processor_computes_as_before() -> None:
    before = torch.are_deterministic_algorithms_enabled()
    with computing("cpu", "full"):
        assert torch.are_deterministic_algorithms_enabled() == before


def test_whether_sums_have_an_order_is_recorded_and_asked_of_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(device="cpu").config["deterministic"] is True
    assert run(device="cpu", deterministic=False).config["deterministic"] is False
    asked: list[bool] = []
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda on, warn_only: asked.append(on))
    monkeypatch.setattr(torch.cuda, "device", lambda name: nullcontext())
    for deterministic in (True, False):
        before = torch.backends.cudnn.deterministic
        with computing("cuda", "full", deterministic):
            assert torch.backends.cudnn.deterministic == deterministic == asked[-1]
        assert torch.backends.cudnn.deterministic == before and asked[-1] is False, "as it was"


def test_where_memory_does_not_suffice_half_as_many_work_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def out_of_memory(self: Clients, who: torch.Tensor, *others: Any, **more: Any) -> None:
        if len(who) > 2:
            raise torch.OutOfMemoryError("no memory is left")
        close(self, who, *others, **more)

    close = Clients._close
    expected = run(device="cpu", chunk=2)
    monkeypatch.setattr(Clients, "_close", out_of_memory)
    done = run(device="cpu", out=tmp_path / "run", commit=1)
    notes = done.config["execution"]["fallbacks"]
    assert notes == [
        "the memory did not hold 5 clients at once: 3 are trained at once",
        "the memory did not hold 3 clients at once: 2 are trained at once",
    ]
    torch.testing.assert_close(held.personal(done), held.personal(expected), rtol=1e-5, atol=1e-6)
    for mine, its in zip(done.history.rounds, expected.history.rounds, strict=True):
        assert {**mine, "seconds": 0} == {**its, "seconds": 0}, "nothing is charged twice"


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["mail", "store"])
def test_memory_may_be_short_anywhere_in_the_work(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"device": "cpu", "trainers": "everyone", "cohort": 0.6, "health": 1}
    expected = run(chunk=3, **settings)
    failed = [0]

    def short(plain: Any) -> Any:
        def tried(*arguments: Any, **more: Any) -> Any:
            if failed[0] == 0 and len(arguments[1]) == 5:
                failed[0] += 1
                raise torch.OutOfMemoryError("no memory is left")
            return plain(*arguments, **more)

        return tried

    if where == "mail":
        monkeypatch.setattr(Mail, "only", short(Mail.only))
    else:
        monkeypatch.setattr(ClientStore, "write", short(ClientStore.write))
    done = run(**settings)
    assert failed == [1]
    torch.testing.assert_close(held.personal(done), held.personal(expected), rtol=1e-5, atol=1e-6)
    assert [{**row, "seconds": 0} for row in done.history.rounds] == [
        {**row, "seconds": 0} for row in expected.history.rounds
    ]
    assert done.health.height == expected.health.height


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_only_a_gpu_can_do_is_noted() -> None:
    [note] = run(precision="tf32").config["execution"]["fallbacks"]
    assert note == "precision tf32 is a GPU's: products were computed in full"


def test_a_newcomer_who_is_not_there_is_refused_by_field() -> None:
    with pytest.raises(SettingError, match="newcomers: there is no client called 'ward'"):
        run(newcomers=["ward"])
