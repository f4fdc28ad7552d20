"""A method refuses settings that make no sense, and names the field, the value and what is allowed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from descant.errors import SettingError
from descant.methods import (
    AFL,
    METHODS,
    QFFL,
    RSA,
    TERM,
    Descent,
    Ditto,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMGDA,
    FedProx,
    FedYogi,
    Local,
    LpProj,
    Method,
    PFedMe,
    Scaffold,
    Work,
)

DESCENTS = {name: kind for name, kind in METHODS.items() if issubclass(kind, Descent)}
POSITIVE, COUNT, AT_LEAST_0 = "a positive number", "a positive number, or nothing", "zero or more"


@pytest.mark.parametrize(
    ("kind", "field", "value", "allowed"),
    [
        *[(kind, "lr", value, POSITIVE) for kind in DESCENTS.values() for value in (0.0, -1.0, float("nan"))],
        *[(kind, "batch", 0, COUNT) for kind in DESCENTS.values()],
        (Local, "steps", 0, COUNT),
        *[(Local, "momentum", value, "from 0 to below 1") for value in (-0.1, 1.0)],
        (Local, "epochs", -2, COUNT),
        (Local, "clip", 0.0, COUNT),
        (Local, "weight_decay", -0.1, AT_LEAST_0),
        (FedAvg, "stragglers", "hide", "'drop' or 'keep'"),
        (FedProx, "mu", -1.0, AT_LEAST_0),
        *[(kind, "lam", -1.0, AT_LEAST_0) for kind in (Ditto, PFedMe, RSA, LpProj)],
        *[(kind, "eta", 0.0, POSITIVE) for kind in (PFedMe, RSA, LpProj)],
        *[(kind, "R", 0, POSITIVE) for kind in (PFedMe, RSA, LpProj)],
        *[(kind, "beta", 0.0, POSITIVE) for kind in (PFedMe, RSA, LpProj)],
        *[(kind, "nu", 0.0, COUNT) for kind in (PFedMe, RSA, LpProj)],
        *[(kind, "cap", 0, POSITIVE) for kind in (PFedMe, RSA, LpProj)],
        (Scaffold, "option", "III", "'I' or 'II'"),
        *[(kind, "server_lr", 0.0, POSITIVE) for kind in (Scaffold, FedAvgM, FedAdam, FedMGDA)],
        (FedAvgM, "beta", 1.0, "from 0 to below 1"),
        *[(kind, "beta1", -0.1, "from 0 to below 1") for kind in (FedAdagrad, FedYogi, FedAdam)],
        *[(kind, "beta2", 1.0, "from 0 to below 1") for kind in (FedYogi, FedAdam)],
        *[(kind, "tau", 0.0, POSITIVE) for kind in (FedAdagrad, FedYogi, FedAdam)],
        (QFFL, "q", -0.5, AT_LEAST_0),
        (QFFL, "L", 0.0, COUNT),
        (AFL, "gamma", -0.1, AT_LEAST_0),
        (AFL, "draw", "all", "'uniform' or 'mixture'"),
        (TERM, "t", float("nan"), "a number"),
        (TERM, "t", float("inf"), "a finite number"),
        *[(FedMGDA, "epsilon", value, "from 0 to 1") for value in (-0.1, 1.1)],
        (FedMGDA, "tol", 0.0, POSITIVE),
        (FedMGDA, "cap", 0, POSITIVE),
        (LpProj, "p", 0.5, "1 or more"),
        (LpProj, "dim", -1, AT_LEAST_0),
    ],
)
def test_a_value_out_of_range_is_refused(kind: type[Method], field: str, value: Any, allowed: str) -> None:
    with pytest.raises(SettingError) as caught:
        kind(**{field: value})
    assert str(caught.value) == f"{kind.__name__}.{field} = {value!r}: it must be {allowed}"


@pytest.mark.parametrize("kind", DESCENTS.values(), ids=DESCENTS)
def test_work_is_steps_or_epochs_but_not_both(kind: type[Method]) -> None:
    with pytest.raises(SettingError, match=f"{kind.__name__} has both steps and epochs: give one of them"):
        kind(steps=2, epochs=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("work", [{"steps": 3}, {"epochs": 3}])
@pytest.mark.parametrize("kind", [PFedMe, LpProj])
def test_an_accuracy_and_a_number_of_steps_exclude_each_other(kind: type[Any], work: dict[str, int]) -> None:
    with pytest.raises(
        SettingError, match=rf"{kind.__name__}\.nu = 0\.1: it must be nothing where steps are given"
    ):
        kind(nu=0.1, **work)


@pytest.mark.parametrize(
    ("method", "work"),
    [
        (FedAvg(), Work(epochs=1, batch=64)),
        (Local(batch=None), Work(epochs=1)),
        (Ditto(), Work(steps=20, batch=64)),
        (LpProj(), Work(steps=20, batch=64)),  # what the authors' code does
        (PFedMe(epochs=2, batch=8), Work(epochs=2, batch=8)),
    ],
    ids=lambda value: value.name if isinstance(value, Method) else "",
)
def test_work_that_is_not_given_is_the_methods_own(method: Any, work: Work) -> None:
    assert method.work == replace(work, lr=method.lr)
