"""lp-proj and RSA at p = 1, where the reference can leave the real numbers: collapse, or local training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from descant import FederatedData, Task, resume
from descant.aggregators import AGGREGATORS, Aggregator, unheard
from descant.aggregators import RecordFigure as Reports
from descant.coupling import Dense
from descant.errors import SettingError
from descant.methods import RSA, LpProj, Method
from descant.methods.base import signed_power
from tests.held import personal
from tests.interrupted import interrupt
from tests.methods.lpproj_loop import D, Oracle, matrix, reference, run
from tests.methods.runs import MINI, PARTICIPATION, Vector, far, who


@dataclass(frozen=True, kw_only=True)
class Flipped(Aggregator):
    """The mean, after the first message was turned round and blown up: w leaves the real numbers by way of inf."""

    name: ClassVar[str] = "flipped"

    def __call__(
        self, leaves: Mapping[str, Tensor], weights: Tensor | None = None, record: Reports = unheard
    ) -> dict[str, Tensor]:
        return {name: torch.cat([-1e200 * leaf[:1], leaf[1:]]).mean(0) for name, leaf in leaves.items()}


ATTACK: dict[str, Any] = {"aggregator": Flipped(), "nonfinite": "keep"}
AT_P_1 = pytest.mark.parametrize("kind", [LpProj, RSA])


@AT_P_1
@pytest.mark.parametrize("nonfinite", ["drop", "keep"])
def test_a_reference_that_has_overflowed_is_a_collapse(
    data: FederatedData, linear: Task, kind: type[Method], nonfinite: str
) -> None:
    done = run(linear, data, kind(**MINI), **ATTACK | {"nonfinite": nonfinite})  # type: ignore[call-arg]
    assert done.collapse is not None
    assert (done.collapse.round, done.collapse.why) == (2, "the server's 'w' is not finite")


@pytest.mark.few(1)
@PARTICIPATION
@AT_P_1
def test_as_in_the_authors_code_one_that_is_not_a_number_lets_go(
    data: FederatedData, linear: Task, slope: Any, kind: Any, cohort: int, everyone: bool
) -> None:
    """First w is finite, then infinite (which still pulls), then NaN; from there on it is local training."""
    settings: dict[str, Any] = {"lr": 0.1, "steps": 3, "lam": 0.05, "R": 2}

    def flipped(messages: Vector) -> Vector:
        average: Vector = np.concatenate([-1e200 * messages[:1], messages[1:]]).mean(0)
        return average

    theta = linear.start().numpy()
    P = matrix(Dense(), 6) if kind is LpProj else np.eye(D)
    w0 = np.zeros(6) if kind is LpProj else theta
    with np.errstate(all="ignore"):
        w, x = Oracle(slope, theta, cohort, everyone, flipped).run(P, 1.0, w0, eta=lambda t: 0.3, **settings)
    own = {"dim": 6} if kind is LpProj else {}
    method = kind(overflow="local", eta=0.3, batch=None, **settings, **own)
    done = run(linear, data, method, **ATTACK, **who(cohort, everyone))
    assert np.isnan(w).all() and reference(done).isnan().all()
    assert far(personal(done), x) <= 1e-10


def test_a_run_without_its_reference_is_resumed_to_the_bit(
    data: FederatedData, linear: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(AGGREGATORS, "flipped", Flipped)

    method, how = RSA(overflow="local", **MINI), ATTACK | {"commit": 1, "rounds": 6}
    unbroken = run(linear, data, method, out=tmp_path / "unbroken", **how)
    with pytest.raises(KeyboardInterrupt):
        run(linear, data, method, out=tmp_path / "run", progress=interrupt(4), **how)
    resumed = resume(tmp_path / "run", linear, data)
    assert reference(resumed).isnan().all()
    assert torch.equal(personal(resumed), personal(unbroken))


@AT_P_1
def test_only_kept_messages_let_a_run_go_on_without_its_reference(
    data: FederatedData, linear: Task, kind: Any
) -> None:
    done = run(linear, data, kind(overflow="local", **MINI), **ATTACK | {"nonfinite": "drop"})
    assert done.collapse is not None
    assert (done.collapse.round, done.collapse.why) == (3, "none of the 7 messages was finite")


@pytest.mark.parametrize("nonfinite", ["drop", "keep"])
@AT_P_1
def test_a_clients_own_reference_that_overflows_is_not_mistaken_for_none(
    data: FederatedData, linear: Task, kind: Any, nonfinite: str
) -> None:
    """w_k goes to infinity in the first alternation and to inf - inf in the second."""
    done = run(linear, data, kind(eta=1e308, lam=1e3, lr=1e-6, steps=1, R=2), nonfinite=nonfinite)
    why = {"drop": "none of the 7 messages was finite", "keep": "the server's 'w' is not finite"}[nonfinite]
    assert done.collapse is not None and (done.collapse.round, done.collapse.why) == (1, why)
    # A third alternation would train on against that: it must not pass for one without a penalty.
    done = run(linear, data, kind(eta=1e308, lam=1e3, lr=1e-6, steps=1, R=3), nonfinite=nonfinite)
    why = "the state 'x' of client '0' is not finite"
    assert done.collapse is not None and (done.collapse.round, done.collapse.why) == (1, why)


anything = st.floats() | st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0])


@given(st.lists(anything, min_size=1, max_size=6), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_the_slope_of_the_penalty_keeps_what_is_not_a_number(c: list[float], q: float) -> None:
    with np.errstate(all="ignore"):
        power = np.abs(np.array(c)) ** q
    expected = np.where(np.array(c) == 0, 0.0, np.copysign(power, c))
    expected[np.isnan(c)] = np.nan
    found = signed_power(torch.tensor(c, dtype=torch.float64), q).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (lambda: LpProj(overflow="ignore"), r"LpProj\.overflow = 'ignore': it must be 'collapse' or 'local'"),
        (lambda: RSA(overflow="ignore"), r"RSA\.overflow = 'ignore': it must be 'collapse' or 'local'"),
        (
            lambda: LpProj(overflow="local", p=2.0),
            r"LpProj\.overflow = 'local': it must be 'collapse' unless p = 1",
        ),
    ],
)
def test_settings_out_of_range_are_refused(method: Any, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        method()
