"""FedALA: how much of the global model a client takes over, number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from descant import FederatedData, Task
from descant.errors import SettingError
from descant.methods import FedALA, FedAvg
from tests.methods.runs import MINI, ROUNDS, N, cohort_of, column, deployed, far, run, shared

HEAD = np.arange(43) >= 25  # the last layer's numbers


@pytest.mark.few(1)
@pytest.mark.parametrize("cohort", [7, 3])
@pytest.mark.parametrize(
    ("layers", "on"), [(None, HEAD), (("0.weight", "2"), HEAD | (np.arange(43) < 20))], ids=str
)
def test_it_is_algorithm_1_client_by_client(
    data: FederatedData, mlp: Task, slope_mlp: Any, cohort: int, layers: Any, on: Any
) -> None:
    method = FedALA(lr=0.5, steps=3, batch=None, eta=2.0, ala_epochs=2, layers=layers)
    done = run(mlp, data, method, cohort=cohort)
    w, sizes = mlp.start().numpy(), data.train.sizes.tolist()
    v, W = [w for _ in range(N)], [np.ones(43) for _ in range(N)]

    def learnt(k: int) -> Any:
        weights = W[k]
        for _ in range(2):
            step = 2.0 * slope_mlp(k, v[k] + weights * (w - v[k])) * (w - v[k])
            weights = np.where(on, np.clip(weights - step, 0, 1), 1.0)
        return weights

    for t in range(1, ROUNDS + 1):
        chosen, update = cohort_of(t, cohort), np.zeros_like(w)
        for k in chosen:
            W[k] = learnt(k)
            x = v[k] + W[k] * (w - v[k])
            for _ in range(3):
                x = x - 0.5 * slope_mlp(k, x)
            v[k] = x
            update += sizes[k] / sum(sizes[j] for j in chosen) * (x - w)
        w = w + update
    final = [learnt(k) for k in range(N)]
    assert far(shared(done), w) <= 1e-10
    assert far(deployed(done), np.stack([v[k] + final[k] * (w - v[k]) for k in range(N)])) <= 1e-10
    assert min(weights[on].min() for weights in final) < 0.9, "weights were learnt"
    assert done.history.rounds[0]["gradients"] == cohort * (3 + 2)
    assert set(column(done, "bytes_up")) == {cohort * (43 * 8 + 4)}
    assert set(column(done, "bytes_down")) == {cohort * 43 * 8}


@pytest.mark.few(1)
@pytest.mark.parametrize("stragglers", [0.0, 0.6])
def test_with_weights_of_one_it_is_fedavg(data: FederatedData, mlp: Task, stragglers: float) -> None:
    """eta = 0; on minibatches, too."""
    settings: dict[str, Any] = {"cohort": 4, "stragglers": stragglers}
    fixed, plain = (run(mlp, data, m, **settings) for m in (FedALA(eta=0.0, **MINI), FedAvg(**MINI)))
    assert far(shared(fixed), shared(plain)) == 0
    assert far(deployed(fixed), shared(plain).expand(N, -1)) == 0


def test_layers_without_weights_are_the_global_models(data: FederatedData, mlp: Task) -> None:
    done = run(mlp, data, FedALA(eta=3.0, **MINI))
    models, w = deployed(done), shared(done)
    assert torch.equal(models[:, :25], w[:25].expand(N, -1))
    assert far(models[:, 25:], w[25:].expand(N, -1)) > 1e-3


def test_settings_that_make_no_sense_are_refused(data: FederatedData, mlp: Task) -> None:
    for field, value in {"eta": -1.0, "ala_epochs": 0}.items():
        with pytest.raises(SettingError, match=rf"FedALA\.{field} = {value}"):
            FedALA(**{field: value})
    with pytest.raises(SettingError, match="no layer called 'head'"):
        run(mlp, data, FedALA(layers=("head",)))
