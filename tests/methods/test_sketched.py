"""pFed1BS and pFedLMS beside plain NumPy loops over clients, what one is of the other, and their bytes."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

from descant import FederatedData, Run, Task
from descant.coupling import Dense, Fold, Hadamard, Projection
from descant.draws import seed_of
from descant.errors import SettingError
from descant.methods import Local, Method, PFed1BS, PFedLMS
from tests import held
from tests.methods import runs
from tests.methods.runs import MINI, PARTICIPATION, SEED, N, Vector, cohort_of, column, far, who

ROUNDS, M, D = 6, 6, 43  # D: the parameters of `mlp`
FULL: dict[str, Any] = {"m": M, "lr": 0.2, "steps": 3, "batch": None, "lam": 0.05, "mu": 0.01, "gamma": 3.0}
LAYERS = [(0, 25), (25, 43)]  # two, with a weight and a bias each


def run(task: Task, data: FederatedData, method: Method, **settings: Any) -> Run:
    return runs.run(task, data, method, **{"rounds": ROUNDS} | settings)


def matrix(projection: Projection, t: int, task: Task) -> Vector:
    """sqrt(d / m) P of round t, as a matrix."""
    seed = seed_of(SEED, "projection", t) if projection.fresh else SEED
    P = projection.build(seed, M, task.start()[None], task.layout)
    A: Vector = P.lift(torch.eye(M, dtype=torch.float64)).numpy() * (D / M) ** 0.5
    return A


def loop(
    method: PFed1BS, task: Task, data: FederatedData, slope: Any, cuts: Vector, cohort: int, everyone: bool
) -> Any:
    """The models after all rounds and the last consensus [T, M]; `cuts` [T, M] are the thresholds."""
    x, v = [task.start().numpy() for _ in range(N)], np.zeros_like(cuts)
    for t in range(1, ROUNDS + 1):
        A, votes = matrix(method.projection, max(1, t - 1), task), np.zeros_like(cuts)
        for k in range(N):
            if everyone or k in cohort_of(t, cohort):
                for _ in range(3):
                    tie = sum(
                        A.T @ (np.tanh(3.0 * (A @ x[k] - cut)) - side) for cut, side in zip(cuts, v, strict=True)
                    )
                    x[k] = x[k] - 0.2 * (slope(k, x[k]) + 0.05 * tie + 0.01 * x[k])
            if k in cohort_of(t, cohort):
                sketch = matrix(method.projection, t, task) @ x[k]
                votes += int(data.train.sizes[k]) * np.where(sketch >= cuts, 1, -1)
        v = np.where(votes >= 0, 1.0, -1.0)
    return np.stack(x), v


def said(done: Run, method: PFed1BS) -> Vector:
    """The last consensus [T, M], from the bytes."""
    bits = np.unpackbits(held.by_server(done)["said"].numpy(), bitorder="little")
    number = [int(bits[i * method.bits :][: method.bits] @ 2 ** np.arange(method.bits)) for i in range(M)]
    return np.where(np.array(number) > np.arange(method.intervals - 1)[:, None], 1.0, -1.0)


@pytest.mark.few(2)
@PARTICIPATION
@pytest.mark.parametrize("projection", [Hadamard(), Dense(), Fold(fresh=True)], ids=lambda p: f"{p.name} {p.fresh}")
def test_pfed1bs_is_a_plain_loop_over_clients(
    data: FederatedData, mlp: Task, slope_mlp: Any, projection: Projection, cohort: int, everyone: bool
) -> None:
    method = PFed1BS(**FULL, projection=projection)
    done = run(mlp, data, method, **who(cohort, everyone))
    x, v = loop(method, mlp, data, slope_mlp, np.zeros((1, M)), cohort, everyone)
    assert far(held.personal(done), x) <= 1e-10
    assert np.array_equal(said(done, method), v) and set(v.flat) == {-1.0, 1.0}


@pytest.mark.few(2)
@PARTICIPATION
@pytest.mark.parametrize("levels", [7, 4, 2])
def test_pfedlms_is_a_plain_loop_over_clients(
    data: FederatedData, mlp: Task, slope_mlp: Any, levels: int, cohort: int, everyone: bool
) -> None:
    """Thresholds are quantiles of a normal distribution as wide as the sketch of a layer of the first model."""
    method, x0 = PFedLMS(**FULL, levels=levels), mlp.start().numpy()
    dims = [3, 3]  # of six, in proportion to 25 and 18 parameters: 3.49 and 2.51, the larger remainder rounded up
    wide = np.repeat([np.sqrt(np.mean(x0[a:b] ** 2) * D / M) for a, b in LAYERS], dims)
    cuts = np.array([NormalDist().inv_cdf((t + 1) / (levels + 1)) for t in range(levels)])[:, None] * wide
    done = run(mlp, data, method, **who(cohort, everyone))
    x, v = loop(method, mlp, data, slope_mlp, cuts, cohort, everyone)
    assert far(held.personal(done), x) <= 1e-10
    assert np.array_equal(said(done, method), v)
    assert (np.diff(v, axis=0) <= 0).all(), "a majority above a threshold is one above those below it"


def test_one_threshold_for_the_whole_model_is_pfed1bs(data: FederatedData, mlp: Task) -> None:
    one = run(mlp, data, PFedLMS(**FULL, levels=1, projection=Hadamard()), cohort=3)
    other = run(mlp, data, PFed1BS(**FULL), cohort=3)
    assert torch.equal(held.personal(one), held.personal(other))


@pytest.mark.parametrize("kind", [PFed1BS, PFedLMS])
def test_without_a_tie_they_are_local_training(data: FederatedData, mlp: Task, kind: type[PFed1BS]) -> None:
    ours, theirs = run(mlp, data, kind(**MINI, lam=0.0, mu=0.0), cohort=4), run(mlp, data, Local(**MINI), cohort=4)
    assert torch.equal(held.personal(ours), held.personal(theirs))


@pytest.mark.parametrize(
    ("method", "octets"),
    [
        (PFed1BS(**FULL | {"m": 20}), 3),
        (PFedLMS(**FULL | {"m": 20}), 8),
        (PFedLMS(**FULL | {"m": 20}, levels=4), 8),
    ],
    ids=["one bit", "three bits", "five intervals"],
)
def test_numbers_take_their_bits_both_ways(data: FederatedData, mlp: Task, method: PFed1BS, octets: int) -> None:
    done = run(mlp, data, method, cohort=4)
    assert column(done, "bytes_up") == [4 * (octets + 4)] * ROUNDS, "and the number of examples"
    assert column(done, "bytes_down") == [0] + [4 * octets] * (ROUNDS - 1), "nothing before anybody was heard"


def test_after_a_round_without_mail_nothing_is_said(data: FederatedData, mlp: Task) -> None:
    done = run(mlp, data, PFed1BS(**FULL), cohort=1, lost=0.5, rounds=12)
    received = [row["received"] for row in done.history.rounds]
    assert 0 < sum(received) < 12
    assert [row > 0 for row in column(done, "bytes_down")] == [False, *(count > 0 for count in received[:-1])]


@pytest.mark.parametrize(("field", "value"), [("m", 0), ("lam", -1.0), ("mu", -1.0), ("gamma", 0.0), ("levels", 0)])
def test_fields_that_make_no_sense_are_refused(field: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"PFedLMS.{field} = "):
        PFedLMS(**{field: value})
