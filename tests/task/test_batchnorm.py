"""BatchNorm: unpadded batches only, and running statistics as torch's own module keeps them."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from descant.errors import TaskError
from descant.execution import Execution, Loop, SingleExampleError, Vmap, choose
from descant.task import Task

Helper = Callable[..., Any]
Clients = list[tuple[Tensor, Tensor]]


def mlp() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).double()


def cnn() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3), nn.BatchNorm1d(3)
    ).double()


def ragged(shape: tuple[int, ...], sizes: tuple[int, ...]) -> Clients:
    g = torch.Generator().manual_seed(3)
    return [(torch.randn(n, *shape, generator=g).double(), torch.arange(n) % 3) for n in sizes]


def modes(task: Task, clients: Clients) -> list[Execution]:
    vmapped, _ = choose(task, *clients[0], mode="vmap")
    assert isinstance(vmapped, Vmap) and vmapped.mixes
    return [vmapped, Loop(task)]


def test_three_padded_rows_of_eight_would_change_the_gradient(padded: Helper, plain: Helper, grads: Helper) -> None:
    task, clients = Task(mlp()), ragged((4,), (5, 8))
    x = task.start().repeat(2, 1)
    unpadded, _ = plain(task.model, x[0], clients[0])
    naive, _ = grads(Vmap(task, mixes=False), x, padded(clients))
    assert float((naive[0] - unpadded).norm() / unpadded.norm()) > 0.05
    for execution in modes(task, clients):
        torch.testing.assert_close(grads(execution, x, padded(clients))[0][0], unpadded, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("make", "shape"), [(mlp, (4,)), (cnn, (1, 4, 4))])
def test_gradients_and_statistics_are_those_of_the_unpadded_batches(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...],
    padded: Helper,
    plain: Helper,
    grads: Helper,
    around: Helper,
) -> None:
    task, clients = Task(make()), ragged(shape, (5, 8, 3, 5, 2))
    x = around(task.start(), 5)
    for execution in modes(task, clients):
        gradients, statistics = grads(execution, x, padded(clients, pad=100.0))
        for k, examples in enumerate(clients):
            expected, left = plain(task.model, x[k], examples)
            torch.testing.assert_close(gradients[k], expected, rtol=1e-9, atol=1e-11)
            buffers = task.buffer_layout.flatten(dict(left.named_buffers()))
            torch.testing.assert_close(statistics[k], buffers, rtol=1e-10, atol=1e-12)


def test_over_several_steps_the_statistics_move_as_in_torchs_own_training(padded: Helper, grads: Helper) -> None:
    model = mlp()
    task = Task(model)
    sizes = [(5, 8), (7, 2), (3, 3), (8, 6)]  # of the two clients' batches, step by step
    steps = [ragged((4,), pair) for pair in sizes]
    trained = [deepcopy(model).train() for _ in range(2)]
    for k, own in enumerate(trained):
        optimizer = torch.optim.SGD(own.parameters(), lr=0.3)
        for step in steps:
            optimizer.zero_grad()
            functional.cross_entropy(own(step[k][0]), step[k][1]).backward()
            optimizer.step()
    for execution in modes(task, steps[0]):
        x, buffers = task.start().repeat(2, 1), task.buffer_start().repeat(2, 1)
        for step in steps:
            g, buffers = grads(execution, x, padded(step), buffers=buffers)
            x = x - 0.3 * g
        for k, own in enumerate(trained):
            expected = {n: v for n, v in own.eval().state_dict().items() if "num_batches" not in n}
            made = task.module(x[k], buffers[k])
            got = {name: made.state_dict()[name] for name in expected}
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
            inputs = steps[0][0][0]
            torch.testing.assert_close(made(inputs), own(inputs), rtol=1e-9, atol=1e-11)
            outputs = execution.outputs(x[k : k + 1], buffers[k : k + 1], inputs[None])[0]
            torch.testing.assert_close(outputs, own(inputs).detach(), rtol=1e-9, atol=1e-11)


def test_predictions_use_the_statistics_and_leave_them_alone(padded: Helper) -> None:
    task, clients = Task(mlp()), ragged((4,), (5, 5))
    x, inputs = task.start().repeat(2, 1), padded(clients).inputs
    buffers = task.buffer_start().repeat(2, 1) + torch.tensor([[0.0], [1.0]])
    before = buffers.clone()
    for execution in modes(task, clients):
        outputs = execution.outputs(x, buffers, inputs)
        for k in range(2):
            torch.testing.assert_close(outputs[k], task.module(x[k], buffers[k])(inputs[k]).detach())
    assert torch.equal(buffers, before)


def test_neither_the_users_module_nor_the_callers_statistics_are_changed(padded: Helper, grads: Helper) -> None:
    model = mlp()
    before = deepcopy(model.state_dict())
    task, clients = Task(model), ragged((4,), (5, 8))
    buffers = task.buffer_start().repeat(2, 1)
    given = buffers.clone()
    for execution in modes(task, clients):
        _, after = grads(execution, task.start().repeat(2, 1), padded(clients), buffers=buffers)
        assert not torch.isclose(after, given).all()
        assert torch.equal(buffers, given)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_clients_that_are_not_at_work_keep_their_statistics(padded: Helper) -> None:
    task, clients = Task(mlp()), ragged((4,), (5, 8, 5))
    x, buffers = task.start().repeat(3, 1), task.buffer_start().repeat(3, 1)
    active = torch.tensor([True, False, False])
    for execution in modes(task, clients):
        _, after = execution.grads(x, buffers, padded(clients), active, task.objective, ())
        assert not torch.isclose(after[0], buffers[0]).all()
        assert torch.equal(after[1:], buffers[1:])


def test_the_vector_of_statistics_holds_the_running_means_and_variances_and_no_counter() -> None:
    task = Task(mlp())
    assert task.buffer_layout.names == ("1.running_mean", "1.running_var")
    assert task.buffer_start().tolist() == [0.0] * 6 + [1.0] * 6


def test_a_single_example_is_refused_with_whose_it_was_and_what_to_do(padded: Helper, grads: Helper) -> None:
    task, clients = Task(mlp()), ragged((4,), (5, 1, 3, 1))
    for execution in modes(task, clients):
        with pytest.raises(
            SingleExampleError, match=r"single example\. Set drop_last=True.+another batch size"
        ) as e:
            grads(execution, task.start().repeat(4, 1), padded(clients))
        assert isinstance(e.value, TaskError)
        assert e.value.rows == ([1, 3] if execution.mode == "vmap" else [1])


def test_the_error_calls_clients_by_their_names_where_they_are_known() -> None:
    assert str(SingleExampleError([2])).startswith("client 2 of the cohort: BatchNorm cannot train")
    assert str(SingleExampleError([2, 4], ["ann", "bob"])).startswith("clients ann, bob: BatchNorm cannot train")


def test_one_image_is_enough_for_statistics_over_its_pixels(padded: Helper, plain: Helper, grads: Helper) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 3)).double()
    task, clients = Task(model), ragged((1, 4, 4), (1, 3))
    x = task.start().repeat(2, 1)
    for execution in modes(task, clients):
        gradients, _ = grads(execution, x, padded(clients))
        for k, examples in enumerate(clients):
            torch.testing.assert_close(gradients[k], plain(model, x[k], examples)[0], rtol=1e-9, atol=1e-11)


def test_other_mistakes_in_a_batch_of_one_keep_their_own_error(padded: Helper, grads: Helper) -> None:
    def mistaken(*_: object) -> Tensor:
        raise ValueError("mine")

    task, clients = Task(mlp()), ragged((4,), (1, 1))
    for execution in (Vmap(task, mixes=True), Loop(task)):
        with pytest.raises(ValueError, match=r"^mine$"):
            grads(execution, task.start().repeat(2, 1), padded(clients), objective=mistaken)
