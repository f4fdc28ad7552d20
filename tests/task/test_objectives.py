"""Losses and metrics: one number an example."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import descant as dc
from descant.errors import SettingError, TaskError
from descant.execution import Loop, Vmap, choose
from descant.task import LOSSES, Metric, Task
from descant.task.objectives import masked_mean

Helper = Callable[..., Any]
cross_entropy, accuracy = LOSSES["cross_entropy"][0], LOSSES["cross_entropy"][1].of
squared_error = LOSSES["squared_error"][0]


def test_cross_entropy_of_scores() -> None:
    scores, labels = torch.randn(5, 4), torch.tensor([0, 3, 1, 1, 2])
    by_hand = -torch.log(torch.softmax(scores, 1)[torch.arange(5), labels])
    torch.testing.assert_close(cross_entropy(scores, labels), by_hand)


def test_cross_entropy_of_a_sequence_is_the_mean_over_its_positions() -> None:
    scores, labels = torch.randn(5, 7, 4), torch.randint(0, 4, (5, 7))
    by_hand = torch.stack([functional.cross_entropy(scores[i], labels[i]) for i in range(5)])
    torch.testing.assert_close(cross_entropy(scores, labels), by_hand)


def test_accuracy_is_the_share_of_highest_scores_that_are_the_labels() -> None:
    scores = torch.tensor([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    assert accuracy(scores, torch.tensor([1, 1, 0])).tolist() == [1, 0, 0]
    sequence = scores[None].expand(2, 3, 2)
    assert accuracy(sequence, torch.tensor([[1, 1, 0], [1, 0, 1]])).tolist() == pytest.approx([1 / 3, 1])


def test_a_score_that_is_not_a_number_is_a_wrong_answer() -> None:
    """To torch NaN is the highest of all scores, and the first of them class 0."""
    nan, inf = torch.nan, torch.inf
    scores = torch.tensor([[nan, nan], [nan, 0.1], [0.1, nan], [0.1, nan], [inf, 0.1]])
    assert accuracy(scores, torch.tensor([0, 0, 0, 1, 0])).tolist() == [0, 0, 0, 0, 1]
    sequence = torch.tensor([[[nan, nan], [2.0, 1.0]]])
    assert accuracy(sequence, torch.tensor([[0, 0]])).tolist() == [0.5]
    signs = LOSSES["hinge"][1].of(torch.tensor([nan, nan, -1.0]), torch.tensor([0, 1, 0]))
    assert signs.tolist() == [0, 0, 1]
    assert squared_error(torch.tensor([nan]), torch.tensor([1.0])).isnan().all()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3)])
def test_squared_error_is_the_mean_over_an_examples_outputs(shape: tuple[int, ...]) -> None:
    outputs, targets = torch.randn(5, *shape), torch.randn(5, *shape)
    by_hand = [float(((outputs[i] - targets[i]) ** 2).mean()) for i in range(5)]
    np.testing.assert_allclose(squared_error(outputs, targets), by_hand, rtol=1e-6)


def test_one_output_goes_with_targets_without_an_axis_of_their_own() -> None:
    outputs, targets = torch.randn(5, 1), torch.randn(5)
    torch.testing.assert_close(squared_error(outputs, targets), (outputs[:, 0] - targets) ** 2)


@pytest.mark.parametrize("labels", [(0, 1), (-1.0, 1.0)], ids=["labels", "signs"])
@pytest.mark.parametrize("shape", [(40,), (40, 1)])
def test_hinge_is_one_minus_the_signed_score_where_that_is_positive(labels: Any, shape: tuple[int, ...]) -> None:
    scores, targets = 2 * torch.randn(*shape), torch.tensor(labels)[torch.randint(0, 2, (40,))]
    hinge, metric = LOSSES["hinge"]
    signs = np.where(targets.numpy() == labels[1], 1, -1)
    flat = scores.numpy().ravel()
    np.testing.assert_allclose(hinge(scores, targets), np.maximum(0, 1 - signs * flat), rtol=1e-6)
    assert metric.name == "accuracy" and metric.higher_is_better
    assert metric.of(scores, targets).tolist() == (np.sign(flat) == signs).tolist()


def test_the_gradient_of_a_support_vector_machine(padded: Helper, grads: Helper, around: Helper) -> None:
    torch.manual_seed(0)
    task = Task(nn.Linear(4, 1).double(), "hinge")
    clients = [(2 * torch.randn(n, 4).double(), torch.randint(0, 2, (n,))) for n in (9, 5, 1)]
    x = around(task.start(), 3)
    for execution in (Vmap(task), Loop(task)):
        gradients, _ = grads(execution, x, padded(clients))
        for k, (inputs, targets) in enumerate(clients):
            u, y, (w, b) = inputs.numpy(), 2 * targets.numpy() - 1, np.split(x[k].numpy(), [4])
            inside = y * (u @ w + b) < 1
            expected = -np.concatenate([(u * (y * inside)[:, None]).mean(0), [(y * inside).mean()]])
            np.testing.assert_allclose(gradients[k], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("shape", [(40,), (40, 1)])
def test_bce_is_the_cross_entropy_of_a_probability(shape: tuple[int, ...]) -> None:
    logits, labels = 3 * torch.randn(*shape).double(), torch.randint(0, 2, (40,))
    loss, metric = LOSSES["bce"]
    p = 1 / (1 + np.exp(-logits.numpy().ravel()))
    by_hand = -np.where(labels == 1, np.log(p), np.log(1 - p))
    np.testing.assert_allclose(loss(logits, labels), by_hand, rtol=1e-10)
    two = torch.stack([torch.zeros(40).double(), logits.flatten()], 1)
    torch.testing.assert_close(loss(logits, labels), cross_entropy(two, labels))
    assert metric.of(logits, labels).tolist() == ((p > 0.5) == labels.numpy()).tolist()


def test_bce_of_several_labels_is_the_mean_over_them() -> None:
    logits, labels = torch.randn(9, 4), torch.randint(0, 2, (9, 4))
    loss, metric = LOSSES["bce"]
    alone = torch.stack([loss(logits[:, j], labels[:, j]) for j in range(4)])
    torch.testing.assert_close(loss(logits, labels), alone.mean(0))
    right = torch.stack([metric.of(logits[:, j], labels[:, j]) for j in range(4)])
    torch.testing.assert_close(metric.of(logits, labels), right.mean(0))


def test_the_gradient_of_a_logistic_regression(padded: Helper, grads: Helper, around: Helper) -> None:
    torch.manual_seed(0)
    task = Task(nn.Linear(4, 1).double(), "bce")
    clients = [(torch.randn(n, 4).double(), torch.randint(0, 2, (n,))) for n in (9, 5, 1)]
    x = around(task.start(), 3)
    for execution in (Vmap(task), Loop(task)):
        gradients, _ = grads(execution, x, padded(clients))
        for k, (inputs, targets) in enumerate(clients):
            u, (w, b) = inputs.numpy(), np.split(x[k].numpy(), [4])
            excess = 1 / (1 + np.exp(-(u @ w + b))) - targets.numpy()  # p - y
            expected = np.concatenate([(u * excess[:, None]).mean(0), [excess.mean()]])
            np.testing.assert_allclose(gradients[k], expected, rtol=1e-10, atol=1e-12)


def test_bce_wants_one_logit_a_label() -> None:
    with pytest.raises(TaskError, match=r"'bce' needs one logit a label, .* shape \[2\] .*'cross_entropy' takes"):
        choose(Task(nn.Linear(4, 2), "bce"), torch.randn(3, 4), torch.tensor([0, 1, 1]))


@pytest.mark.parametrize(
    ("loss", "targets", "message"),
    [
        (
            "bce",
            np.array([0, 1, 2, 1]),
            "'Ulm': 1 train targets such as 2, .* 'bce' takes the labels 0 and 1;",
        ),
        ("bce", np.array([0, 0.5, -1, 1]), "client 'Ulm': 1 train targets such as -1.0, and the loss 'bce'"),
        ("hinge", np.array([0, 1, 2, 2]), "client 'Ulm': 2 train targets such as 2, .* 0 and 1, or -1 and 1"),
        (
            "hinge",
            np.array([-1.0, 1.0, 0.5, 1.0]),
            "'Ulm': 1 train targets such as 0.5, and the loss 'hinge'",
        ),
    ],
)
def test_labels_that_a_loss_would_misread_are_refused(loss: str, targets: Any, message: str) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    right = (targets > 0).astype(targets.dtype)
    data = dc.FederatedData.from_arrays({"Bonn": {"train": (x, right)}, "Ulm": {"train": (x, targets)}})
    with pytest.raises(TaskError, match=message):
        dc.simulate(Task(nn.Linear(3, 1), loss), data, dc.methods.Local(), rounds=1)


def test_labels_may_come_as_probabilities_and_as_signs() -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    for loss, targets in (("bce", [0, 0.25, 1, 1]), ("hinge", [-1, 1, 1, -1])):
        data = dc.FederatedData.from_arrays([(x, np.array(targets, dtype=np.float32))])
        run = dc.simulate(Task(nn.Linear(3, 1), loss), data, dc.methods.Local(), rounds=1)
        assert np.isfinite(run.summary()["personal.train_loss.mean@last"])


def test_hinge_wants_one_score_an_example() -> None:
    with pytest.raises(TaskError, match=r"'hinge' needs one score an example .* outputs are of shape \[3\]"):
        choose(Task(nn.Linear(4, 3), "hinge"), torch.randn(3, 4), torch.tensor([0, 1, 1]))


def test_the_mean_is_over_real_examples_only() -> None:
    values = torch.tensor([1.0, 5.0, float("inf"), float("nan")])
    assert float(masked_mean(values, torch.tensor([True, True, False, False]))) == 3.0


def test_the_gradient_of_a_regression(padded: Helper, plain: Helper, grads: Helper, around: Helper) -> None:
    torch.manual_seed(0)
    task = Task(nn.Linear(4, 2).double(), "squared_error")
    clients = [(torch.randn(n, 4).double(), torch.randn(n, 2).double()) for n in (6, 3, 1)]
    x = around(task.start(), 3)
    for execution in (Vmap(task), Loop(task)):
        gradients, _ = grads(execution, x, padded(clients))
        for k, examples in enumerate(clients):
            expected, _ = plain(task.model, x[k], examples, functional.mse_loss)
            torch.testing.assert_close(gradients[k], expected, rtol=1e-10, atol=1e-12)


def test_a_loss_and_a_metric_of_ones_own(plain: Helper) -> None:
    def absolute(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs[:, 0] - targets).abs()

    def twice(outputs: Tensor, targets: Tensor) -> Tensor:
        return 2 * absolute(outputs, targets)

    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    task = Task(model, absolute, Metric("twice", twice, higher_is_better=False))
    parts = {"train": (torch.randn(8, 3), torch.randn(8)), "test": (torch.randn(4, 3), torch.randn(4))}
    data = dc.FederatedData.from_arrays([parts, parts])
    run = dc.simulate(task, data, dc.methods.Local(lr=0.1, steps=1, batch=None), rounds=1)
    x = task.start()
    g, _ = plain(model, x, parts["train"], lambda o, t: absolute(o, t).mean())
    stepped = task.module(x - 0.1 * g)
    torch.testing.assert_close(run.personal(1, round="last").state_dict(), stepped.state_dict())
    test_loss = float(absolute(stepped(parts["test"][0]).detach(), parts["test"][1]).mean())
    assert run.summary()["personal.test_loss.mean@last"] == pytest.approx(test_loss, rel=1e-5)
    assert run.summary()["personal.test_twice.mean@last"] == pytest.approx(2 * test_loss, rel=1e-5)


def test_a_loss_of_ones_own_needs_a_metric() -> None:
    with pytest.raises(SettingError, match=r"Task\.metric is missing: a loss of your own needs a Metric"):
        Task(nn.Linear(2, 2), squared_error)


def test_a_typo_in_the_name_of_a_loss_suggests_the_nearest() -> None:
    with pytest.raises(SettingError, match="Did you mean 'cross_entropy'"):
        Task(nn.Linear(2, 2), "crossentropy")


def test_a_named_loss_can_have_another_metric() -> None:
    mine = Metric("loss_again", cross_entropy, higher_is_better=False)
    assert Task(nn.Linear(2, 2), metric=mine).metric is mine
    for loss, (_, own) in LOSSES.items():
        assert Task(nn.Linear(2, 2), loss, own.name).metric is own


@pytest.mark.parametrize(
    "wrong",
    [
        lambda outputs, targets: functional.cross_entropy(outputs, targets),
        lambda outputs, targets: outputs,
        lambda outputs, targets: functional.cross_entropy(outputs, targets, reduction="none")[:-1],
    ],
    ids=["a mean", "a number an output", "too few"],
)
@pytest.mark.parametrize("what", ["loss", "metric"])
def test_what_is_not_one_number_an_example_is_refused(wrong: Callable[..., Tensor], what: str) -> None:
    chosen = {"loss": cross_entropy, "metric": cross_entropy} | {what: wrong}
    task = Task(nn.Linear(4, 3), chosen["loss"], Metric("mine", chosen["metric"], higher_is_better=False))
    with pytest.raises(TaskError, match=f"the {what} must return one number an example"):
        choose(task, torch.randn(3, 4), torch.tensor([0, 1, 2]))


def test_the_targets_that_are_counted_are_the_named_clients() -> None:
    x = np.zeros((4, 3), np.float32)
    wrong = {name: {"train": (x, np.array([0, 1, 2, 2]))} for name in ("Bonn", "Ulm")}
    with pytest.raises(TaskError, match="client 'Bonn': 2 train targets"):
        dc.simulate(Task(nn.Linear(3, 1), "bce"), dc.FederatedData.from_arrays(wrong), dc.methods.Local(), rounds=1)
