"""FedAvg in Apple's pfl, set up like the benchmarks of its own repository. Runs in the environment of `pfl_env`.

As there: tensors in memory, torch.optim.SGD for the clients and, with rate 1, for the server, one simulated backend
and no privacy. What costs time there and is not asked for here is left out: evaluation, logging of metrics. The
clients' data sets are made once, so that pfl's cache of minibatches holds; pfl goes through them in the same order
every epoch, where the others shuffle.
"""

from __future__ import annotations

import types
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from speed_shapes import Shape
from speed_turns import Job, Turns, serve
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

_LONG = 10**9  # rounds: training ends when nobody asks for more, and only round 0 is evaluated


class EveryRound(TrainingProcessCallback):  # type: ignore[misc]
    """Tell the clock."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.turns.trained()
        return False, Metrics()


def loss_of(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(module(inputs), targets)


def metrics_of(module: nn.Module, inputs: Tensor, targets: Tensor) -> dict[str, Any]:
    with torch.no_grad():
        return {"loss": Weighted(float(loss_of(module, inputs, targets)) * len(targets), len(targets))}


def pfl_model(module: nn.Module) -> PyTorchModel:
    module.loss = types.MethodType(loss_of, module)  # type: ignore[assignment]
    module.metrics = types.MethodType(metrics_of, module)  # type: ignore[assignment]
    server = torch.optim.SGD(module.parameters(), lr=1.0)
    return PyTorchModel(module, local_optimizer_create=torch.optim.SGD, central_optimizer=server)


def users(inputs: Tensor, targets: Tensor, shape: Shape) -> FederatedDataset:
    """One user a client. Its sampler goes through all before it takes one again: a cohort has no client twice."""
    pairs = zip(inputs.split(shape.samples), targets.split(shape.samples), strict=True)
    held = [PyTorchTensorDataset(pair, user_id=str(k)) for k, pair in enumerate(pairs)]
    return FederatedDataset(held.__getitem__, get_user_sampler("minimize_reuse", list(range(len(held)))))


def train(model: PyTorchModel, data: FederatedDataset, shape: Shape, rounds: int, callbacks: list[Any]) -> None:
    settings = NNAlgorithmParams(
        central_num_iterations=rounds,
        evaluation_frequency=_LONG,
        train_cohort_size=shape.cohort,
        val_cohort_size=0,
    )
    local = NNTrainHyperParams(
        local_num_epochs=shape.epochs, local_learning_rate=shape.lr, local_batch_size=shape.batch
    )
    backend = SimulatedBackend(training_data=data, val_data=data, postprocessors=[WeightByDatapoints()])
    FederatedAveraging().run(settings, backend, model, local, callbacks=callbacks, send_metrics_to_platform=False)


def contender(job: Job, turns: Turns) -> None:
    np.random.seed(0)
    model, data = pfl_model(job.model()), users(*job.data(), job.shape)
    turns.begin()
    train(model, data, job.shape, _LONG, [EveryRound(turns)])


if __name__ == "__main__":
    serve(contender, pfl=version("pfl"))
