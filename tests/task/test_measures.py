"""F1, balanced accuracy and AUC of every client at once are what scikit-learn says of each alone."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from torch import Tensor, nn

from descant.data import Part
from descant.engine import measure as measuring
from descant.engine.measure import measure, tallied
from descant.errors import SettingError, TaskError
from descant.execution import Loop, Vmap, choose
from descant.execution.batches import Rows
from descant.task import METRICS, Metric, Task
from descant.task.tallies import Confusion, Counts, Outputs

HALF = settings().max_examples // 2  # an example is a whole federation


def identity(width: int, **about: Any) -> Task:
    """A task whose model gives its inputs back: they are the scores."""
    model = nn.Linear(width, width, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.eye(width))
    return Task(model, **about)


@st.composite
def federations(draw: Any, classes: int) -> tuple[Part, int]:
    """Scores and labels of a few clients of any sizes, with ties, and with classes that a client does not hold."""
    sizes = draw(st.lists(st.integers(0, 12), min_size=1, max_size=6))
    seed, few = draw(st.integers(0, 2**31)), draw(st.integers(1, classes))
    random = np.random.default_rng(seed)
    pool = random.normal(size=(draw(st.sampled_from([1, 3, 1000])), classes))  # few rows make many ties
    scores = torch.from_numpy(pool[random.integers(len(pool), size=sum(sizes))])
    own = [random.choice(classes, few, replace=False) for _ in sizes]
    labels = torch.from_numpy(np.concatenate([random.choice(held, n) for held, n in zip(own, sizes, strict=True)]))
    offsets = torch.tensor([0, *np.cumsum(sizes)])
    return Part(scores, labels.long(), offsets), draw(st.sampled_from([1, 3, 10_000]))


def measured(task: Task, part: Part, block: int, width: int) -> Tensor:
    """The metric of every client, looked at in blocks of about so many examples."""
    clients = torch.arange(len(part))
    x, buffers = task.start().expand(len(part), -1), task.buffer_start().expand(len(part), -1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "_BLOCK", block * width * len(part))
        return measure(Vmap(task), x, buffers, Rows(part, clients))[1]


def each(part: Part, of: Any) -> list[float]:
    """What a function of one client's scores and labels says of each; NaN without examples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns where a class is missing
        pairs = [[values.numpy() for values in part.client(k)] for k in range(len(part))]
        return [float(of(scores, labels)) if len(labels) else np.nan for scores, labels in pairs]


def ovr(scores: Any, labels: Any) -> float:
    """The mean over classes of scikit-learn's AUC of one against the rest, where that is defined."""
    p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    areas = [sk.roc_auc_score(labels == c, p[:, c]) for c in range(scores.shape[1]) if 0 < (labels == c).mean() < 1]
    return float(np.mean(areas)) if areas else np.nan


BY_SKLEARN = {
    "f1": lambda s, y: sk.f1_score(y, s.argmax(1), average="macro"),
    "balanced-accuracy": lambda s, y: sk.balanced_accuracy_score(y, s.argmax(1)),
    "accuracy": lambda s, y: sk.accuracy_score(y, s.argmax(1)),
    "auc": ovr,
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", BY_SKLEARN)
@settings(max_examples=HALF)
@given(case=federations(4))
def test_figures_of_many_classes(name: str, case: tuple[Part, int]) -> None:
    part, block = case
    found = measured(identity(4, metric=name), part, block, 4)
    np.testing.assert_allclose(found, each(part, BY_SKLEARN[name]), rtol=1e-12)


@settings(max_examples=HALF)
@given(case=federations(2))
def test_figures_of_two_classes(case: tuple[Part, int]) -> None:
    part, block = case

    def area(s: Any, y: Any) -> float:
        return sk.roc_auc_score(y, s[:, 1] - s[:, 0]) if 0 < y.mean() < 1 else np.nan

    f1 = each(part, lambda s, y: sk.f1_score(y, s.argmax(1), zero_division=np.nan))
    np.testing.assert_allclose(measured(identity(2, metric="binary-f1"), part, block, 2), f1, rtol=1e-12)
    np.testing.assert_allclose(measured(identity(2, metric="auc"), part, block, 2), each(part, area), rtol=1e-12)


@pytest.mark.few(1)
@pytest.mark.parametrize("loss", ["bce", "hinge"])
@settings(max_examples=HALF)
@given(case=federations(2))
def test_figures_of_one_score(loss: str, case: tuple[Part, int]) -> None:
    whole, block = case
    part = Part(whole.inputs[:, :1], whole.targets, whole.offsets)
    expected = {
        "accuracy": lambda s, y: sk.accuracy_score(y, s[:, 0] > 0),
        "f1": lambda s, y: sk.f1_score(y, s[:, 0] > 0, average="macro"),
        "binary-f1": lambda s, y: sk.f1_score(y, s[:, 0] > 0, zero_division=np.nan),
        "balanced-accuracy": lambda s, y: sk.balanced_accuracy_score(y, s[:, 0] > 0),
        "auc": lambda s, y: sk.roc_auc_score(y, s[:, 0]) if 0 < y.mean() < 1 else np.nan,
    }
    assert set(expected) == set(METRICS)
    for name, of in expected.items():
        found = measured(identity(1, loss=loss, metric=name), part, block, 1)
        np.testing.assert_allclose(found, each(part, of), rtol=1e-12)


@settings(max_examples=HALF)
@given(case=federations(3))
def test_the_confusion_matrix_of_every_client(case: tuple[Part, int]) -> None:
    part, _ = case
    task, clients = identity(3), torch.arange(len(part))
    x, buffers = task.start().expand(len(part), -1), task.buffer_start().expand(len(part), -1)
    [found] = tallied(Vmap(task), x, buffers, Rows(part, clients), Confusion(len(part)))
    for k in range(len(part)):
        scores, labels = part.client(k)
        if len(labels):
            expected = sk.confusion_matrix(labels, scores.argmax(1), labels=[0, 1, 2])
            assert np.array_equal(found[k], expected)
        else:
            assert not found[k].any()


def test_the_positions_of_a_sequence_are_examples() -> None:
    scores, labels = torch.randn(2, 5, 7, 3).double(), torch.randint(0, 3, (2, 5, 7))
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, 3:] = False
    tally = METRICS["f1"]().tally(2, scores.device)
    tally.add(scores, labels, mask)
    for k, n in enumerate((5, 3)):
        expected = sk.f1_score(labels[k, :n].flatten(), scores[k, :n].argmax(-1).flatten(), average="macro")
        assert float(tally.result(torch.tensor([5, 3]))[k]) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", METRICS)
def test_a_model_that_has_diverged_has_no_right_answer(name: str) -> None:
    """To torch NaN is the highest of all scores."""
    part = Part(torch.full((6, 2), torch.nan).double(), torch.tensor([0, 1, 0, 1, 0, 1]), torch.tensor([0, 6]))
    assert measured(identity(2, metric=name), part, 10_000, 2).tolist() == [0]


def test_an_answer_that_is_not_a_number_is_a_prediction_of_no_class() -> None:
    scores = torch.tensor([[[1.0, 0.0], [torch.nan, 0.0], [0.0, 1.0]]]).double()
    labels, mask = torch.tensor([[0, 1, 1]]), torch.ones(1, 3, dtype=torch.bool)
    # class 0: one there, one predicted, right; class 1: two there, one predicted, right
    for name, expected in (("f1", (1 + 2 / 3) / 2), ("binary-f1", 2 / 3), ("balanced-accuracy", (1 + 1 / 2) / 2)):
        tally = METRICS[name]().tally(1, scores.device)
        tally.add(scores, labels, mask)
        assert float(tally.result(torch.tensor([3]))) == pytest.approx(expected, rel=1e-12)


def test_an_answer_that_is_not_a_number_is_in_no_column() -> None:
    tally = Confusion(1)
    scores = torch.tensor([[[1.0, 0.0], [torch.nan, 0.0], [0.0, 1.0]]])
    tally.add(scores, torch.tensor([[0, 0, 1]]), torch.ones(1, 3, dtype=torch.bool))
    assert tally.result(torch.tensor([3])).tolist() == [[[1, 0], [0, 1]]]


def test_scores_beyond_what_a_probability_can_tell_apart() -> None:
    """All these probabilities of class 1 round to 1, and the order of the scores still counts."""
    scores = torch.tensor([[0.0, 100.0, 0.0], [0.0, 200.0, 0.0], [0.0, 300.0, 0.0], [0.0, 400.0, 0.0]]).double()
    labels = torch.tensor([0, 1, 0, 1])
    given = Outputs(scores, labels, torch.zeros(4, dtype=torch.int64), 1)
    # class 0 ranks 4 > 3 > 2 > 1 (its examples are 0 and 2), class 1 the other way round; both have 3 of 4 pairs
    assert METRICS["auc"]().of(given).tolist() == [0.75]


def test_an_infinite_score_is_higher_than_all_others_and_equal_to_no_padding() -> None:
    scores = torch.tensor([torch.inf, 0.0, 1.0, 1.0, 2.0, 3.0, 4.0]).double()[:, None]
    labels, owner = torch.tensor([1, 0, 0, 0, 1, 0, 1]), torch.tensor([0, 0, 0, 1, 1, 1, 1])
    assert METRICS["auc"]().of(Outputs(scores, labels, owner, 3))[:2].tolist() == [1.0, 0.75]
    shuffled = torch.tensor([4, 0, 3, 6, 1, 5, 2])  # rows of clients need not lie together
    assert METRICS["auc"]().of(Outputs(scores[shuffled], labels[shuffled], owner[shuffled], 2)).tolist() == [
        1.0,
        0.75,
    ]


def test_metrics_of_ones_own_from_counts_and_from_outputs() -> None:
    def specificity(counts: Counts) -> Tensor:
        others = counts.actual.sum(1) - counts.actual[:, 1]
        return 1 - (counts.predicted - counts.hits)[:, 1] / others

    def highest(given: Outputs) -> Tensor:
        start = torch.full((given.clients,), -torch.inf, dtype=given.outputs.dtype)
        return start.scatter_reduce(0, given.owner, given.outputs[:, 0], "amax")

    part = Part(torch.randn(20, 2).double(), torch.arange(20) % 2, torch.tensor([0, 13, 20]))
    found = measured(identity(2, metric=Metric("specificity", specificity, True, over="counts")), part, 4, 2)
    expected = each(part, lambda s, y: (s.argmax(1)[y == 0] == 0).mean())
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    found = measured(identity(2, metric=Metric("highest", highest, True, over="outputs")), part, 4, 2)
    np.testing.assert_allclose(found, each(part, lambda s, y: s[:, 0].max()), rtol=1e-12)


@pytest.mark.parametrize(
    ("of", "over"),
    [(lambda counts: counts.hits, "counts"), (lambda given: given.outputs.mean(), "outputs")],
    ids=["a number a class", "one number for all"],
)
def test_what_is_not_one_number_a_client_is_refused(of: Any, over: Any) -> None:
    task = Task(nn.Linear(4, 3), metric=Metric("mine", of, True, over))
    with pytest.raises(TaskError, match="the metric 'mine' must return one number a client"):
        choose(task, torch.randn(3, 4), torch.tensor([0, 1, 2]))


def test_a_metric_has_to_fit_what_it_is_of() -> None:
    with pytest.raises(SettingError, match=r"there is no metric called 'f2'\. Did you mean 'f1'"):
        Task(nn.Linear(2, 2), metric="f2")
    with pytest.raises(SettingError, match="'auc': it is of classes, and the loss 'squared_error' of numbers"):
        Task(nn.Linear(2, 1), "squared_error", "auc")
    with pytest.raises(SettingError, match=r"Metric\.over = 'rows': it must be one of examples, counts, outputs"):
        Metric("mine", lambda counts: counts.hits, True, over="rows")  # type: ignore[arg-type]
    with pytest.raises(TaskError, match="'binary-f1' is of two classes, and the outputs are of 3: use 'f1'"):
        choose(Task(nn.Linear(4, 3), metric="binary-f1"), torch.randn(3, 4), torch.tensor([0, 1, 2]))
    with pytest.raises(TaskError, match=r"'f1' needs one label an example, .* shape \[4\] for .* shape \[4\]"):
        choose(Task(nn.Linear(4, 4), "bce", "f1"), torch.randn(3, 4), torch.ones(3, 4, dtype=torch.int64))


def test_modes_agree() -> None:
    torch.manual_seed(0)
    part = Part(torch.randn(60, 3), torch.randint(0, 4, (60,)), torch.tensor([0, 25, 25 + 30, 60]))
    task, clients = Task(nn.Linear(3, 4), metric="auc"), torch.arange(3)
    x, buffers = torch.randn(3, task.dim), task.buffer_start().expand(3, -1)
    found = [measure(mode, x, buffers, Rows(part, clients))[1] for mode in (Vmap(task), Loop(task))]
    torch.testing.assert_close(found[0], found[1])


def test_a_name_in_other_letters_is_known_by_them() -> None:
    with pytest.raises(SettingError, match=r"Did you mean 'auc'\?"):
        Task(nn.Linear(4, 2), metric="AUC")
