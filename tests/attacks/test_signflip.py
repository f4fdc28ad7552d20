"""Sign-flip: messages turned around by a random factor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from descant import FederatedData, Run, Task, simulate
from descant.aggregators import KLoss
from descant.attacks import ATTACKS, SignFlip
from descant.context import Context
from descant.draws import normal
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import FedAvg, FedPlus, Local, Method
from tests.held import personal, shared

SEED = 5


def posted(task: Task, round: int, clients: list[int], **leaves: Tensor) -> Mail:
    ctx = Context(round, SEED, 100, task.layout, task.start())
    return Mail.of(leaves, torch.tensor(clients), ctx)


def factor(round: int, client: int, tau: float) -> float:
    return -tau * abs(float(normal(SEED, "each", round, "sign-flip", client, 0)))


def forged(attack: SignFlip, mail: Mail) -> Mail:
    return attack.forge(mail.ctx, {}, mail, mail.only(mail.clients < 0))[1]


def test_every_attacker_draws_its_own_factor_in_each_round(linear: Task) -> None:
    x = torch.randn(2, 3, dtype=torch.float64)
    for t in (1, 2):
        back = forged(SignFlip(tau=4.0), posted(linear, t, [3, 8], x=x))["x"]
        for row, k in enumerate((3, 8)):
            assert torch.allclose(back[row], factor(t, k, 4.0) * x[row], rtol=1e-14, atol=0)
    assert len({factor(t, k, 4.0) for t in (1, 2) for k in (3, 8)}) == 4


def test_the_factor_is_that_of_the_paper(linear: Task) -> None:
    """-|c| with c ~ N(0, tau^2): its mean is -tau sqrt(2 / pi), its mean square tau^2."""
    clients = list(range(20_000))
    c = forged(SignFlip(tau=10.0), posted(linear, 1, clients, x=torch.ones(20_000).double()))["x"]
    assert bool((c < 0).all())
    mean, square = float(c.mean()), float(c.square().mean())
    assert abs(mean + 10 * (2 / torch.pi) ** 0.5) <= 4 * 10 * (1 - 2 / torch.pi) ** 0.5 / 20_000**0.5
    assert abs(square - 100) <= 4 * 100 * 2**0.5 / 20_000**0.5


def test_whole_numbers_stay(linear: Task) -> None:
    mail = posted(linear, 1, [1], x=torch.ones(1, 2), n=torch.tensor([7], dtype=torch.int32), s=torch.ones(1))
    back = forged(SignFlip(), mail)
    assert back["n"].tolist() == [7] and bool((back["x"] < 0).all()) and float(back["s"]) < 0
    assert back.form == mail.form


def test_on_updates_it_turns_around_how_a_message_moves(linear: Task) -> None:
    since = torch.tensor([[10.0, 20.0]], dtype=torch.float64)
    u = torch.tensor([[11.0, 18.0]], dtype=torch.float64)
    mail = replace(posted(linear, 1, [6], u=u, other=u), references={"u": since})
    back = forged(SignFlip(tau=2.0, on="update"), mail)
    assert torch.allclose(back["u"], since + factor(1, 6, 2.0) * (u - since), rtol=1e-14, atol=0)
    assert torch.equal(back["other"], u), "which does not say what it is"


@pytest.mark.parametrize("wrong", [{"tau": 0.0}, {"tau": -1.0}, {"tau": float("inf")}, {"on": "model"}], ids=str)
def test_settings_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        SignFlip(**wrong)


def run(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    return simulate(task, data, method, **{"rounds": 3, "seed": SEED, "evaluate": 3, "mode": "vmap"} | settings)


@pytest.mark.few(1)
@pytest.mark.parametrize("chunk", [1, 5])
def test_in_a_run_only_attackers_messages_are_forged(labelled: FederatedData, linear: Task, chunk: int) -> None:
    method = FedAvg(lr=0.1, steps=2, batch=None, weighted=False)
    done = run(linear, labelled, method, rounds=1, attacks=[SignFlip(tau=3.0)], malicious=[1, 4], chunk=chunk)
    w = linear.start()
    honest = [
        shared(run(linear, labelled.only([k]), method, rounds=1)) - w for k in range(5)
    ]  # what each would have sent
    sent = [factor(1, k, 3.0) * u if k in (1, 4) else u for k, u in enumerate(honest)]
    assert float((shared(done) - (w + sum(sent) / 5)).abs().max()) <= 1e-12
    assert done.config["malicious"] == [1, 4]
    assert done.history.spent[1]["bytes_up"].tolist() == [15 * 8] * 5, "attackers pay like everyone"


@pytest.mark.parametrize("method", [FedAvg(steps=2), FedPlus(steps=2)], ids=lambda m: m.name)
def test_without_attackers_nothing_changes(labelled: FederatedData, linear: Task, method: Method) -> None:
    plain, none = (run(linear, labelled, method, **how) for how in ({}, {"attacks": [SignFlip()], "malicious": 0}))
    assert torch.equal(shared(plain), shared(none)) and torch.equal(personal(plain), personal(none))


def test_an_attacker_may_forge_its_loss(labelled: FederatedData, linear: Task) -> None:
    """k-loss takes the largest loss but k, and a turned-around one is the smallest: an attacker is not chosen."""
    done = run(
        linear, labelled, FedAvg(steps=2), rounds=1, attacks=[SignFlip()], malicious=[4], aggregator=KLoss(k=3)
    )
    w = linear.start()
    honest = [shared(run(linear, labelled.only([k]), FedAvg(steps=2), rounds=1)) - w for k in range(4)]
    moved = shared(done) - w
    assert sum(torch.allclose(moved, u, rtol=0, atol=1e-12) for u in honest) == 1


def test_an_attackers_overflow_is_nobodys_collapse(linear: Task) -> None:
    inputs = (torch.full((3, 4), 1e200, dtype=torch.float64), torch.ones(3, 4).double(), torch.eye(3, 4).double())
    data = FederatedData.from_arrays([{"train": (x, torch.tensor([0, 1, 2]))} for x in inputs], classes=3)
    method = Local(lr=0.1, steps=3)
    assert run(linear, data, method).collapse is not None
    attacked = run(linear, data, method, attacks=[SignFlip()], malicious=[0])
    assert attacked.collapse is None
    assert personal(attacked).isfinite().all(1).tolist() == [False, True, True]
    assert run(linear, data, method, attacks=[SignFlip()], malicious=[1]).collapse is not None


def test_a_cohort_of_attackers_that_overflow_is_a_round_without_mail(linear: Task) -> None:
    huge = {"train": (torch.full((3, 4), 1e200, dtype=torch.float64), torch.tensor([0, 1, 2]))}
    data, method = FederatedData.from_arrays([huge] * 3, classes=3), FedAvg(lr=0.1, steps=3)
    done = run(linear, data, method, cohort=1, attacks=[SignFlip()], malicious=[0, 1, 2])
    assert done.collapse is None and torch.equal(shared(done), linear.start())
    assert all((row["received"], row["refused"]) == (0, 1) for row in done.history.rounds)
    assert run(linear, data, method, cohort=1).collapse is not None


def test_it_is_known_by_its_name() -> None:
    assert ATTACKS["sign-flip"] is SignFlip
