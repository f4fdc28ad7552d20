"""Settings that depend on the round: what they say, how a file says it, and that the engine follows."""

from __future__ import annotations

from json import dumps, loads
from math import ceil, sqrt
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from descant import FederatedData, Run, Task, simulate
from descant.catalog import build, describe
from descant.errors import SettingError
from descant.methods import SCHEDULES, ByRound, FedAvg, Local, LpProj, Method, PFedMe, PowerLaw, Stages, Work
from tests import held

SIZES = [6, 1, 9, 4, 13, 2, 7]


def run(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    how = {"rounds": 5, "seed": 4, "evaluate": 5, "mode": "vmap"} | settings
    done = simulate(task, data, method, **how)
    assert done.collapse is None
    return done


@given(st.integers(0, 10**4), st.floats(0.1, 5), st.floats(1, 50), st.integers(1, 5), st.floats(0.5, 5))
def test_the_schedules_of_theorem_14(t: int, mu: float, zeta: float, R: int, D: float) -> None:
    beta = 1.5
    eta = PowerLaw(scale=8 / (beta * R * mu), shift=zeta, power=-1.0)
    nu = PowerLaw(scale=8 / mu, shift=zeta, power=-1.0)
    assert eta.at(t + 1) == pytest.approx(8 / (beta * R * mu * (zeta + t)), rel=1e-12)
    assert nu.at(t + 1) == pytest.approx(8 / (mu * (zeta + t)), rel=1e-12)
    batch = Work(batch=PowerLaw(scale=mu / D, shift=zeta, power=1.0)).batch_in(t + 1)
    assert batch is not None and abs(batch - mu * (zeta + t) / D - 0.5) <= 0.5 + 1e-6


@given(st.integers(0, 10**4), st.floats(1.0, 9.0))
def test_the_schedules_of_theorem_15(t: int, lam: float) -> None:
    eta = PowerLaw(scale=1 / (90 * lam**3), power=-0.5)
    assert eta.at(t + 1) == pytest.approx(1 / (90 * lam**2 * lam * sqrt(t + 1)), rel=1e-12)
    batch = Work(batch=PowerLaw(scale=90 * lam**3 / 1000, power=0.5)).batch_in(t + 1)
    assert batch is not None and abs(batch - 90 * lam**3 * sqrt(t + 1) / 1000 - 0.5) <= 0.5 + 1e-6


def test_a_batch_is_rounded_up_and_a_rounding_error_is_not() -> None:
    tenths = Work(batch=PowerLaw(scale=0.1, shift=1.0, power=1.0))
    assert [tenths.batch_in(t) for t in range(1, 41)] == [ceil(t / 10) for t in range(1, 41)]
    assert 0.1 * 3 * 10 != 3 and Work(batch=PowerLaw(scale=0.1 * 3 * 10, power=0.0)).batch_in(1) == 3
    assert Work(batch=7).batch_in(3) == 7 and Work().batch_in(3) is None


def test_stages_hold_until_the_next() -> None:
    stages = Stages(values=((1, 0.5), (3, 0.25), (4, 2.0)))
    assert [stages.at(t) for t in range(1, 7)] == [0.5, 0.5, 0.25, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "method",
    [
        LpProj(eta=PowerLaw(scale=0.3, shift=5.0), nu=PowerLaw(scale=0.1), batch=PowerLaw(scale=2.0, power=1.0)),
        PFedMe(eta=Stages(values=((1, 0.5), (3, 0.25)))),
        FedAvg(batch=Stages(values=((1, 4.0), (10, 64.0)))),
    ],
    ids=lambda method: method.name,
)
def test_a_method_with_schedules_survives_its_settings_file(method: Method) -> None:
    assert build("methods", loads(dumps(describe(method)))) == method
    assert hash(method) == hash(build("methods", describe(method)))


def test_a_file_gives_a_schedule_by_name() -> None:
    spec = {
        "name": "lp-proj",
        "eta": {"name": "stages", "values": [[1, 0.1], [50, 0.01]]},
        "nu": 1e-3,
        "batch": None,
    }
    assert build("methods", spec) == LpProj(eta=Stages(values=((1, 0.1), (50, 0.01))), nu=1e-3, batch=None)
    assert build("methods", {"name": "pfedme", "batch": 8}).batch == 8
    assert {"power": PowerLaw, "stages": Stages} == SCHEDULES
    with pytest.raises(SettingError, match=r"no schedule called 'powr'. Did you mean 'power'"):
        build("methods", {"name": "pfedme", "eta": {"name": "powr", "scale": 1}})
    with pytest.raises(SettingError, match=r"pfedme\.eta = 'fast': "):
        build("methods", {"name": "pfedme", "eta": "fast"})
    with pytest.raises(SettingError, match=r"fedavg\.batch = 2\.5: "):
        build("methods", {"name": "fedavg", "batch": 2.5})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PowerLaw(scale=0.0), r"PowerLaw\.scale = 0\.0: it must be a positive number"),
        (lambda: PowerLaw(scale=1.0, shift=0.0), r"PowerLaw\.shift = 0\.0: it must be a positive number"),
        (lambda: Stages(values=()), r"Stages\.values = \(\): it must be pairs \(round, value\) whose rounds begin"),
        (lambda: Stages(values=((2, 1.0),)), r"Stages\.values = .*: it must be pairs .* whose rounds begin with 1"),
        (lambda: Stages(values=((1, 1.0), (1, 2.0))), r"Stages\.values = .* whose rounds begin with 1 and rise"),
        (
            lambda: Stages(values=((1, 1.0), (2, 0.0))),
            r"Stages\.values = .*: it must be pairs with positive values",
        ),
    ],
)
def test_a_schedule_out_of_range_is_refused(make: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.slow
@pytest.mark.parametrize("constant", [lambda v: PowerLaw(scale=v, power=0.0), lambda v: Stages(values=((1, v),))])
@pytest.mark.parametrize("nu", [None, 1e-2])
def test_a_schedule_that_does_not_change_is_a_number(
    data: FederatedData, mlp: Task, constant: Any, nu: float | None
) -> None:
    common: dict[str, Any] = {"lr": 0.1, "lam": 0.5, "R": 2} | ({} if nu is None else {"cap": 20})
    plain = LpProj(eta=0.3, nu=nu, batch=3, **common)
    scheduled = LpProj(eta=constant(0.3), nu=nu and constant(nu), batch=constant(3.0), **common)
    one, other = (run(mlp, data, method, cohort=4) for method in (plain, scheduled))
    torch.testing.assert_close(held.everything(one), held.everything(other), rtol=0, atol=0)


@pytest.mark.few(1)
@pytest.mark.parametrize("batch", [PowerLaw(scale=2.0, power=1.0), Stages(values=((1, 3.0), (4, 50.0)))])
@pytest.mark.parametrize("mode", ["vmap", "loop"])
def test_minibatches_grow_as_the_schedule_says(
    data: FederatedData, linear: Task, batch: ByRound, mode: str
) -> None:
    """Steps see min(batch, n_k) examples in a first epoch; an epoch takes ceil(n_k / batch) steps."""
    sizes = [int(batch.at(t)) for t in range(1, 6)]
    assert len(set(sizes)) > 1
    steps = run(linear, data, Local(steps=1, batch=batch), mode=mode)
    assert [row["examples"] for row in steps.history.rounds] == [sum(min(b, n) for n in SIZES) for b in sizes]
    epochs = run(linear, data, FedAvg(epochs=2, batch=batch), mode=mode)
    expected = [2 * sum(-(-n // b) for n in SIZES) for b in sizes]
    assert [row["gradients"] for row in epochs.history.rounds] == expected


def test_a_round_with_a_scheduled_batch_is_that_round_with_the_number(data: FederatedData, linear: Task) -> None:
    """The third of three rounds sees minibatches of 5, whatever the sizes before."""
    grown = run(linear, data, Local(lr=1e-3, steps=1, batch=Stages(values=((1, 2.0), (3, 5.0)))), rounds=3)
    two = run(linear, data, Local(lr=1e-3, steps=1, batch=2), rounds=2)
    three = run(linear, data, Local(lr=1e-3, steps=1, batch=5), rounds=3)
    two_of_five = run(linear, data, Local(lr=1e-3, steps=1, batch=5), rounds=2)
    v = [held.personal(r) for r in (grown, two, three, two_of_five)]
    # At a small rate the models hardly differ, and so do the gradients of the same examples.
    assert torch.allclose(v[0] - v[1], v[2] - v[3], rtol=0, atol=1e-5)
    assert float((v[0] - v[1]).abs().max()) > 1e-4
