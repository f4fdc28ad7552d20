"""What a module can do, found out once by trying it on a few real examples."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from descant.errors import SettingError, TaskError
from descant.execution.base import Execution, Vmap
from descant.execution.loop import Loop
from descant.task.batch import Batch
from descant.task.purity import refuse_hidden_state
from descant.task.task import Task

Mode = Literal["auto", "compile", "vmap", "loop"]
_NO_GRADIENT = "does not require grad"  # what torch says of a number that no parameter leads to
_LOOPS = "There is a performance drop"  # what torch warns of where it has no vectorised kernel, and loops
MODES: tuple[Mode, ...] = ("auto", "compile", "vmap", "loop")


class _Found(NamedTuple):
    """What trying a module on examples of one kind showed."""

    unfit: str  # why vmap cannot run it; nothing where it can
    mixes: bool  # whether a row that only pads changes the others' gradient


# A module is tried once on every kind of examples, however many runs it trains in.
_FOUND: WeakKeyDictionary[Task, dict[tuple[object, ...], _Found]] = WeakKeyDictionary()


def choose(task: Task, inputs: Tensor, targets: Tensor, mode: Mode = "auto") -> tuple[Execution, str]:
    """The way to execute `task`, and a word on why; `inputs` and `targets` are a few examples of one client.

    vmap must give the loop's gradient **and** its predictions (a GRU passes the first and fails the
    second); where it does not, "auto" takes the loop, and "vmap" and "compile" are refused.
    """
    if mode not in MODES:
        raise SettingError(f"mode = {mode!r}: it must be one of {', '.join(MODES)}")
    task.to(inputs.device)
    if len(inputs) == 1:  # another one, or nothing could be said of batches
        inputs, targets = torch.cat([inputs, inputs.flip(-1)]), torch.cat([targets, targets])
    vectorise, found = mode != "loop", _FOUND.setdefault(task, {})
    kind = (vectorise, *((t.shape, t.dtype, t.device) for t in (inputs, targets)))
    try:
        if kind in found:  # of the same shapes; whether the loss and the metric take them is seen anew
            x, buffers, batch = _two_clients(task, inputs, targets)
            _check_figures(task, Loop(task).outputs(x, buffers, batch.inputs), targets)
        else:
            found[kind] = _tried(task, inputs, targets, vectorise)
    except (TaskError, SettingError):
        raise
    except Exception as error:
        shape = tuple(inputs.shape[1:])
        whole = "" if inputs.is_floating_point() else f"; the inputs are {inputs.dtype}: should they be float32?"
        raise TaskError(f"the model cannot be trained on examples of shape {shape}: {error}{whole}") from error
    unfit, mixes = found[kind]
    if not vectorise:
        return Loop(task), "asked for"
    if not unfit:
        return Vmap(task, mixes=mixes), "vectorises" if mode == "auto" else "asked for"
    if mode == "auto":
        return Loop(task), f"vmap cannot run this model: {unfit}"
    raise TaskError(f"the model does not run under vmap ({unfit}): use mode='auto' or 'loop'")


def _tried(task: Task, inputs: Tensor, targets: Tensor, vectorise: bool) -> _Found:
    """Try the loop, and vmap beside it."""
    x, buffers, batch = _two_clients(task, inputs, targets)
    loop, vmapped = Loop(task), Vmap(task)
    _check_outputs(task.apply(x[0], buffers[0], inputs.clone())[0], inputs)
    refuse_hidden_state(task._training, inputs)
    predicted = loop.outputs(x, buffers, batch.inputs)
    _check_figures(task, predicted, targets)
    _check_examples(predicted, loop.outputs(x, buffers, batch.inputs[:, -1:].expand_as(batch.inputs)))
    expected = _first_grads(loop, x, buffers, batch)
    if not vectorise:
        return _Found("", False)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=_LOOPS)
            agree = _close(_grads(vmapped, x, buffers, batch), expected)
            agree &= _close(vmapped.outputs(x, buffers, batch.inputs), predicted)
        unfit = (
            "" if agree or _agree_in_double(task, inputs, targets) else "its results differ from the plain loop's"
        )
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # torch raises many kinds where a module does not vectorise
        unfit = _why(error)
    return _Found(unfit, not unfit and _mixes(task, vmapped, inputs, targets))


def _why(error: Exception) -> str:
    """Why vmap cannot run a module, in a few words."""
    if operation := re.match(rf"{_LOOPS}.* batching rule for (\S+)\.", str(error)):
        return f"torch cannot compute {operation[1]} for all clients at once, and would take one after the other"
    return str(error).split("\n")[0].split(". ")[0] or type(error).__name__


def _agree_in_double(task: Task, inputs: Tensor, targets: Tensor) -> bool:
    """Whether vmap and the loop agree in double precision.

    In single precision a rounding error can decide which of two nearly equal activations a max-pooling layer takes,
    and so move the gradient by more than rounding does.
    """
    twin = Task(deepcopy(task.model).double(), task.loss, task.metric)
    twin.to(inputs.device)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    x, buffers, batch = _two_clients(twin, inputs, targets)
    looped, vmapped = (_grads(execution, x, buffers, batch) for execution in (Loop(twin), Vmap(twin)))
    return _close(vmapped, looped)


def _two_clients(task: Task, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Batch]:
    start = task.start().to(inputs.device)
    x = torch.stack([start, start * 1.01])
    buffers = task.buffer_start().to(inputs.device).expand(2, -1)
    mask = torch.ones(2, len(inputs), dtype=torch.bool, device=inputs.device)
    inputs, targets = (tensor.expand(2, *tensor.shape) for tensor in (inputs, targets))
    return x, buffers, Batch(inputs, targets, mask, key=torch.tensor([1, 2], device=inputs.device))


def _check_outputs(outputs: Any, inputs: Tensor) -> None:
    """A model predicts with one tensor, a row an example."""
    if not isinstance(outputs, Tensor):
        raise TaskError(f"the model returned a {type(outputs).__name__}: let its forward return one tensor")
    if outputs.dim() == 0 or len(outputs) != len(inputs):
        given = f"{len(inputs)} examples of shape {tuple(inputs.shape[1:])}"
        raise TaskError(f"the model returned a tensor of shape {tuple(outputs.shape)} for {given}: give each a row")


def _check_figures(task: Task, predicted: Tensor, targets: Tensor) -> None:
    """An example has a loss and a figure of its own, which follow from the model's outputs and its target."""
    outputs = predicted[0]
    losses = [_figure(lambda: task.loss(outputs, targets), "loss", outputs, targets) for _ in range(2)]
    if not isinstance(losses[0], Tensor) or losses[0].shape != targets.shape[:1]:
        raise TaskError("the loss must return one number an example, a vector of the batch's length")
    if bool(losses[0].isnan().all()):
        what = "the model's outputs are" if bool(outputs.isnan().all()) else "the loss is"
        first = f"the first {len(targets)} examples of a client"
        raise TaskError(f"{what} not a number (NaN) on {first}, before any training: give it finite numbers")
    if not torch.equal(losses[0].nan_to_num(), losses[1].nan_to_num()):
        said = "the loss gives different numbers for the same outputs and targets"
        raise TaskError(f"{said}: it must neither draw random numbers nor count its calls")
    _figure(lambda: task.metric.check(outputs, targets), "metric", outputs, targets)


def _figure(compute: Callable[[], Any], what: str, outputs: Tensor, targets: Tensor) -> Any:
    """What a loss or a metric makes of a few outputs; an error of its own says whose it is."""
    try:
        return compute()
    except (TaskError, SettingError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        of = f"outputs of shape {tuple(outputs.shape)} and targets of shape {tuple(targets.shape)}"
        raise TaskError(f"the {what} fails on {of}: {type(error).__name__}: {error}") from error


def _first_grads(execution: Execution, x: Tensor, buffers: Tensor, batch: Batch) -> Tensor:
    """The gradients; an error says what to do where the loss does not hang together with the parameters."""
    try:
        return _grads(execution, x, buffers, batch)
    except RuntimeError as error:
        if _NO_GRADIENT not in str(error):
            raise
        raise TaskError(
            "the loss has no gradient at the model's parameters: compute it by torch from what forward returns, "
            "without detach(), item(), numpy() or a choice such as argmax"
        ) from error


def _check_examples(predicted: Tensor, repeated: Tensor) -> None:
    """An example has a prediction of its own, whoever else is in the batch: `repeated` are the predictions where
    all are the last example."""
    if not _close(repeated[:, -1:], predicted[:, -1:]):
        raise TaskError(
            "the model's prediction for an example changes with the other examples of the batch: "
            "let BatchNorm keep running statistics, and let examples lie on the first axis throughout"
        )


def _grads(execution: Execution, x: Tensor, buffers: Tensor, batch: Batch) -> Tensor:
    everyone = torch.ones(len(x), dtype=torch.bool, device=x.device)
    return execution.grads(x, buffers, batch, everyone, execution.task.objective, ())[0]


def _close(got: Tensor, expected: Tensor) -> bool:
    """Equal but for rounding: a module that vmap mistreats, or that mixes examples, is far off this.

    NaN and infinity equal themselves: an example may have no finite loss.
    """
    same = (got == expected) | (got.isnan() & expected.isnan())
    finite = expected.abs().nan_to_num(nan=0.0, posinf=0.0)
    scale = finite.max().clamp(min=torch.finfo(expected.dtype).tiny)
    return bool(torch.where(same, 0.0, got - expected).abs().max() <= 1e-3 * scale)


def _mixes(task: Task, execution: Execution, inputs: Tensor, targets: Tensor) -> bool:
    """Whether a padded row changes the gradient or the running statistics, as it does where a layer computes
    over the batch: BatchNorm, which we know, or a layer of the user's own, which we try."""
    known = any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in task.model.modules())
    if known or task.buffer_layout.names:
        return True
    x, buffers, batch = _two_clients(task, inputs, targets)
    real = len(inputs) - 1
    alone = Batch(batch.inputs[:, :real], batch.targets[:, :real], batch.mask[:, :real], batch.key)
    mask = batch.mask.clone()
    mask[:, real:] = False
    try:
        unpadded = _grads(execution, x, buffers, alone)
    except ValueError:  # a layer that refuses a batch of one computes over the batch
        return True
    return not _close(_grads(execution, x, buffers, batch._replace(mask=mask)), unpadded)
