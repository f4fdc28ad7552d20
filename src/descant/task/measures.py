"""Metrics by name: figures of whole clients, from counts by class or from all scores.

A client may hold no example of some class. Its figure is then the mean over the classes for which it is defined, as
in scikit-learn, and NaN where it is for none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from descant.errors import SettingError, TaskError, shown, unknown
from descant.task.metric import Metric
from descant.task.objectives import LOSSES, Named, squared_error
from descant.task.tallies import Counts, Outputs, PerExample


def accuracy() -> Metric:
    """The share of examples whose predicted class is the right one."""
    return LOSSES["cross_entropy"].metric


def f1() -> Metric:
    """F1, macro: the mean over classes of 2 hits / (predicted + actual).

    It is over the classes that a client holds or that were predicted for it, as in scikit-learn.
    """
    return Metric("f1", lambda counts: _mean(_f1(counts)), higher_is_better=True, over="counts")


def binary_f1() -> Metric:
    """F1 of class 1, the positive one, of two: 2 hits / (predicted + actual).

    Clients that hold no positive example, and for which none was predicted, have no figure and are left out.
    """
    return Metric("binary-f1", lambda counts: _f1(_of_two(counts))[:, 1], higher_is_better=True, over="counts")


def balanced_accuracy() -> Metric:
    """The share of a class's examples that was recognised: the mean over the classes that a client holds."""
    return Metric("balanced-accuracy", lambda counts: _mean(_recall(counts)), higher_is_better=True, over="counts")


def auc() -> Metric:
    """The area under the ROC curve: how often a positive example scores higher than another, ties counting half.

    With more than two classes it is the mean over classes of one against the rest, by their probabilities. A class
    counts where a client holds examples of it and of others; clients of a single class have no figure and are left
    out. The scores of all examples are kept until a part is evaluated.
    """
    return Metric("auc", _auc, higher_is_better=True, over="outputs")


METRICS: dict[str, Callable[[], Metric]] = {
    "accuracy": accuracy,
    "f1": f1,
    "binary-f1": binary_f1,
    "balanced-accuracy": balanced_accuracy,
    "auc": auc,
}


def resolve(loss: str | PerExample, metric: str | Metric | None) -> Named:
    """The loss and the metric that a task was asked for; a named loss brings its own metric."""
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise _unknown("loss", loss, LOSSES)
        own = LOSSES[loss]
        if metric is None or metric == own.metric.name:
            return own
        loss = own.loss
    if not callable(loss):
        raise SettingError(f"Task.loss = {shown(loss)}: it must be a name, or a function of (outputs, targets)")
    if metric is None:
        what = "a loss of your own needs a Metric(name, of, higher_is_better), or the name of one"
        raise SettingError(f"Task.metric is missing: {what}")
    if isinstance(metric, Metric):
        return Named(loss, metric)
    if not isinstance(metric, str):
        what = "a Metric(name, of, higher_is_better), or the name of one"
        raise SettingError(f"Task.metric = {shown(metric)}: it must be {what}")
    if metric not in METRICS:
        raise _unknown("metric", metric, METRICS)
    if loss is squared_error:
        raise SettingError(f"Task.metric = {metric!r}: it is of classes, and the loss 'squared_error' of numbers")
    return Named(loss, METRICS[metric]())


def _unknown(kind: str, name: str, known: Iterable[str]) -> SettingError:
    own = f"; a {kind} of your own has no import path, and is handed to descant.Task in Python"
    return SettingError(f"{unknown(kind, name, known)}{own if ':' in name else ''}")


def _f1(counts: Counts) -> Tensor:  # [K, C], NaN for a class that is neither there nor predicted
    return 2 * counts.hits / (counts.predicted + counts.actual)


def _recall(counts: Counts) -> Tensor:  # [K, C], NaN for a class that is not there
    return counts.hits / counts.actual


def _mean(by_class: Tensor) -> Tensor:
    """The mean [K] over the classes for which a figure [K, C] is defined."""
    return by_class.nanmean(1)


def _of_two(counts: Counts) -> Counts:
    if counts.hits.shape[1] != 2:
        raise TaskError(
            f"the metric 'binary-f1' is of two classes, and the outputs are of {counts.hits.shape[1]}: use 'f1'"
        )
    return counts


def _auc(given: Outputs) -> Tensor:
    scores, classes = given.outputs.double(), given.outputs.shape[1]
    if classes == 1:
        found = {1: scores[:, 0]}
    elif classes == 2:  # the area of one class is that of the other
        found = {1: scores[:, 1] - scores[:, 0]}
    else:
        found = dict(enumerate(_log_odds(scores).T.contiguous()))
    areas = scores.new_full((given.clients, len(found)), torch.nan)
    for clients, rows, real in _rows_by_client(given):
        labels = given.labels[rows]
        for place, (label, score) in enumerate(found.items()):
            areas[clients, place] = _area(score[rows], labels == label, real)
    return _mean(areas)


def _rows_by_client(given: Outputs) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some clients [k] at a time: the rows of each [k, w], and which of them are real and no padding.

    Clients of about the same size come together, so that nobody is padded to more than twice its size.
    """
    order = given.owner.argsort(stable=True)
    sizes = torch.bincount(given.owner, minlength=given.clients)
    first, doublings = sizes.cumsum(0) - sizes, sizes.double().log2().ceil()
    for each in sorted(set(doublings[sizes > 0].tolist())):
        clients = (doublings == each).nonzero()[:, 0]
        place = torch.arange(int(sizes[clients].max()), device=order.device)
        real = place < sizes[clients, None]
        yield clients, order[torch.where(real, first[clients, None] + place, 0)], real


def _log_odds(scores: Tensor) -> Tensor:
    """log p_c / (1 - p_c) of the classes' probabilities: in the same order, and apart where these round to 1."""
    logarithms = scores.log_softmax(1)
    likeliest = scores.argmax(1, keepdim=True)
    others = logarithms.scatter(1, likeliest, -torch.inf).logsumexp(1, keepdim=True)  # log(1 - p) of the likeliest
    odds = logarithms - (-logarithms.exp()).log1p()
    return odds.scatter(1, likeliest, logarithms.gather(1, likeliest) - others)


def _area(score: Tensor, positive: Tensor, real: Tensor) -> Tensor:
    """The area [k] under every client's ROC curve, from the ranks of its positive examples (Mann and Whitney).

    With P positive and Q other examples it is (sum of the positive ranks - P (P + 1) / 2) / (P Q); equal scores
    share the mean of their ranks. A score that is NaN ranks on the wrong side.
    """
    score = torch.where(score.isnan(), torch.where(positive, -torch.inf, torch.inf), score)
    score, order = torch.where(real, score, torch.inf).sort(dim=1, stable=True)  # padding stays behind what is real
    positive = positive.gather(1, order) & real
    new = torch.ones_like(real)  # whether an example begins a group of equals; padding is none of them
    new[:, 1:] = (score[:, 1:] != score[:, :-1]) | (real[:, 1:] != real[:, :-1])
    place = torch.arange(score.shape[1], device=score.device).expand_as(score)
    group = new.flatten().cumsum(0) - 1
    rank = place[new].double()[group] + (torch.bincount(group)[group] + 1) / 2
    P, Q = (held.sum(1).double() for held in (positive, real & ~positive))
    ranks = torch.where(positive, rank.view_as(score), 0).sum(1)
    return (ranks - P * (P + 1) / 2) / (P * Q)
