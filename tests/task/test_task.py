"""A task: what is trained, what stays, what is refused."""

import doctest
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import descant as dc
from descant.errors import SettingError, TaskError
from descant.execution import Loop, Vmap, choose
from descant.task import Batch, Task
from descant.task import task as task_module

Helper = Callable[..., Any]


class Tied(nn.Module):
    """An autoencoder that decodes with the weights it encodes with."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 4, bias=False)
        self.decode = nn.Linear(4, 4, bias=False)
        self.decode.weight = self.encode.weight

    def forward(self, inputs: Tensor) -> Tensor:
        decoded: Tensor = self.decode(torch.tanh(self.encode(inputs)))
        return decoded


def half_frozen() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    return model


def test_training_starts_from_the_modules_own_parameters() -> None:
    model = nn.Linear(3, 2)
    assert torch.equal(Task(model).start(), torch.cat([model.weight.flatten(), model.bias]))


def test_the_start_is_a_copy() -> None:
    model = nn.Linear(3, 2)
    start = Task(model).start()
    start += 1
    assert not torch.equal(model.bias, start[-2:])


def test_module_is_the_model_with_those_parameters_ready_to_predict() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    x = torch.arange(8.0)
    made = Task(model).module(x)
    assert not made.training
    assert torch.equal(nn.utils.parameters_to_vector(made.parameters()), x)
    assert type(made[1]) is nn.Dropout  # type: ignore[index]
    assert not torch.equal(nn.utils.parameters_to_vector(model.parameters()), x)


def test_tied_parameters_are_one_parameter_and_stay_tied(plain: Helper, grads: Helper) -> None:
    task = Task(Tied(), "squared_error")
    assert task.dim == 16
    x = torch.randn(2, 16)
    inputs = torch.randn(2, 5, 4)
    batch = Batch(inputs, inputs, torch.ones(2, 5, dtype=torch.bool), torch.zeros(2, dtype=torch.int64))
    for execution in (Vmap(task), Loop(task)):
        gradients, _ = grads(execution, x, batch)
        for k in range(2):
            expected, _ = plain(task.model, x[k], (inputs[k], inputs[k]), nn.functional.mse_loss)
            torch.testing.assert_close(gradients[k], expected)
    made = task.module(x[0])
    assert made.encode.weight is made.decode.weight  # type: ignore[union-attr]


def test_frozen_parameters_stay_out_of_the_vector_and_as_they_are(plain: Helper, grads: Helper) -> None:
    model = half_frozen()
    before = deepcopy(model.state_dict())
    task = Task(model)
    assert task.dim == 10
    assert task.layout.names == ("2.weight", "2.bias")
    x, inputs, targets = torch.randn(1, 10), torch.randn(1, 6, 3), torch.arange(6)[None] % 2
    batch = Batch(inputs, targets, torch.ones(1, 6, dtype=torch.bool), torch.zeros(1, dtype=torch.int64))
    expected, _ = plain(model, x[0], (inputs[0], targets[0]))
    for execution in (Vmap(task), Loop(task)):
        torch.testing.assert_close(grads(execution, x, batch)[0][0], expected)
    made = task.module(x[0])
    assert torch.equal(made.state_dict()["0.weight"], before["0.weight"])
    assert torch.equal(made.state_dict()["2.bias"], x[0, -2:])


def test_a_run_leaves_frozen_parameters_and_the_users_module_alone() -> None:
    model = half_frozen()
    before = deepcopy(model.state_dict())
    data = dc.FederatedData.from_arrays([(torch.randn(9, 3), torch.arange(9) % 2) for _ in range(3)])
    run = dc.simulate(Task(model), data, dc.methods.FedAvg(), rounds=2)
    trained = run.personal(1, round="last").state_dict()
    assert torch.equal(trained["0.weight"], before["0.weight"])
    assert torch.equal(trained["0.bias"], before["0.bias"])
    assert not torch.equal(trained["2.weight"], before["2.weight"])
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert model.training and not model[0].weight.requires_grad


def test_float64_is_kept_throughout() -> None:
    task = Task(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Linear(4, 2)).double())
    assert task.dtype == task.start().dtype == task.buffer_start().dtype == torch.float64
    inputs, targets = torch.randn(5, 3, dtype=torch.float64), torch.arange(5) % 2
    batch = Batch(inputs[None], targets[None], torch.ones(1, 5, dtype=torch.bool), torch.tensor([3]))
    x, buffers = task.start()[None], task.buffer_start()[None]
    for execution in (choose(task, inputs, targets, "vmap")[0], Loop(task)):
        gradients, statistics = execution.grads(x, buffers, batch, torch.tensor([True]), task.objective, ())
        assert gradients.dtype == statistics.dtype == torch.float64
        assert execution.outputs(x, buffers, batch.inputs).dtype == torch.float64
    data = dc.FederatedData.from_arrays([(inputs.float(), targets), (inputs.float(), targets)])
    run = dc.simulate(task, data, dc.methods.FedAvg(), rounds=1)
    assert {p.dtype for p in run.personal(0, round="last").parameters()} == {torch.float64}


def test_a_start_of_its_own_is_what_the_layers_draw_from_that_seed() -> None:
    task = Task(half_frozen())
    state = torch.get_rng_state()
    one, again, other = task.random_start(5), task.random_start(5), task.random_start(6)
    assert torch.equal(torch.get_rng_state(), state)  # and torch's own generator is left alone
    assert torch.equal(one, again)
    assert not torch.isclose(one, other).any()
    assert not torch.isclose(one, task.start()).any()
    assert float(one.abs().max()) <= 4**-0.5  # nn.Linear draws from U(-1/sqrt(in), 1/sqrt(in))


def test_parameters_that_no_layer_can_draw_again_have_no_start_of_their_own() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3))

    with pytest.raises(TaskError, match=r"Bare has parameters but no reset_parameters"):
        Task(Bare()).random_start(0)


def test_parameters_of_two_dtypes_are_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(TaskError, match=r"mix torch\.float32 and torch\.float64: use one, as in model\.float\(\)"):
        Task(model)


@pytest.mark.parametrize("model", [nn.Flatten(), nn.Linear(2, 2).requires_grad_(False)])
def test_a_model_without_anything_to_train_is_refused(model: nn.Module) -> None:
    with pytest.raises(TaskError, match="no parameter that requires a gradient"):
        Task(model)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TaskError, match=r"must be a torch\.nn\.Module, not function"):
        Task(nn.functional.relu)  # type: ignore[arg-type]


def test_buffers_are_shared_or_local() -> None:
    with pytest.raises(SettingError, match=r"Task\.buffers = 'mine': it must be 'shared' or 'local'"):
        Task(nn.Linear(2, 2), buffers="mine")  # type: ignore[arg-type]


def test_a_cumulative_batchnorm_is_refused_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, momentum=None))
    with pytest.raises(TaskError, match=r"BatchNorm1d \('1'\) has momentum=None"):
        Task(model)


def test_a_task_says_what_it_is() -> None:
    about = Task(nn.Linear(60, 10).double(), buffers="local").describe()
    assert about["parameters"] == 610
    assert about["loss"] == "cross_entropy" and about["metric"] == "accuracy"
    assert about["dtype"] == "float64" and about["buffers"] == "local"


def test_the_examples_in_the_docstrings_hold() -> None:
    result = doctest.testmod(task_module)
    assert result.attempted > 0 and result.failed == 0


def test_a_model_without_numbers_to_start_from_is_refused_by_the_parameters_name() -> None:
    with pytest.raises(TaskError, match=r"'0\.weight' has no shape yet: call the model once on a few examples"):
        Task(nn.Sequential(nn.LazyLinear(3)))
    model = nn.Linear(4, 3)
    with torch.no_grad():
        model.bias[1] = torch.nan
    with pytest.raises(TaskError, match="'bias' holds NaN or infinity: start from finite numbers"):
        Task(model)


class Masked(nn.Module):
    """Attention with a causal mask, kept as a parameter that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 3)
        self.mask = nn.Parameter(torch.tensor([[0.0, -torch.inf], [0.0, 0.0]]), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        seen = torch.softmax(inputs[:, :2, None] * inputs[:, None, 2:] + self.mask, -1)
        scores: Tensor = self.score(inputs) + seen[:, :, 0].sum(1, keepdim=True)
        return scores


def test_what_is_not_trained_may_hold_infinity() -> None:
    execution, _ = choose(Task(Masked()), torch.randn(3, 4), torch.arange(3), "vmap")
    assert isinstance(execution, Vmap)
    waiting = nn.Linear(4, 3)
    waiting.register_parameter("late", nn.UninitializedParameter(requires_grad=False))
    with pytest.raises(TaskError, match="'late' has no shape yet"):
        Task(waiting)


def test_a_metric_or_a_loss_of_another_kind_is_told_what_it_must_be() -> None:
    function: Any = lambda outputs, targets: outputs.sum(1)  # noqa: E731
    with pytest.raises(
        SettingError, match=r"Task.metric = <function .*: it must be a Metric\(name, of, higher_is_b"
    ):
        Task(nn.Linear(4, 3), metric=function)
    with pytest.raises(
        SettingError, match=r"Task.loss = 5: it must be a name, or a function of \(outputs, targets\)"
    ):
        Task(nn.Linear(4, 3), 5, "accuracy")  # type: ignore[arg-type]
    for loss, metric in (("mine:loss", None), ("bce", "mine:metric")):
        with pytest.raises(SettingError, match=r"of your own has no import path, and is handed to descant.Task"):
            Task(nn.Linear(4, 3), loss, metric)
    for name in ("a.b", "at@last", "", 3):
        with pytest.raises(SettingError, match=r"Metric.name = .*: it must be a word without \. and @"):
            dc.Metric(name, function, higher_is_better=True)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"Metric.of = 0.5: it must be a function"):
        dc.Metric("mine", 0.5, higher_is_better=True)  # type: ignore[arg-type]
