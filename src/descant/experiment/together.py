"""Whether a task, data, a method and a plan go together: said before anything is trained."""

from __future__ import annotations

import warnings
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from descant.attacks import Attack
from descant.context import Context
from descant.data import FederatedData, Part
from descant.engine import Health, Plan
from descant.engine.downlink import check as check_downlink
from descant.engine.newcomers import Parties, refuse
from descant.engine.statistics import refuse_statistics
from descant.errors import NoFiguresWarning, NotTogetherError, SettingError, TaskError, renamed
from descant.experiment.tokens import check_tokens
from descant.mail import LAST
from descant.methods import Method
from descant.task import Task
from descant.task.objectives import cross_entropy, squared_error

_PARTS = ("train", "valid", "test")


def task_of(task: Any) -> Task:
    """The task that was handed in; a module becomes one with the loss that a task has by default."""
    if isinstance(task, nn.Module):
        return Task(task)
    if not isinstance(task, Task):
        given = task.__name__ if isinstance(task, type) else type(task).__name__
        what = f"the class {given}; make an object of it" if isinstance(task, type) else f"a {given}"
        raise SettingError(f"task is {what}: it must be a task, descant.Task(module), or a torch.nn.Module")
    return task


def data_of(data: Any) -> FederatedData:
    """The data that was handed in, or how to make some."""
    if not isinstance(data, FederatedData):
        raise SettingError(
            f"data is a {type(data).__name__}: it must be a descant.FederatedData, "
            "such as descant.FederatedData.from_arrays(...) or descant.datasets.digits()"
        )
    return data


def check_together(task: Task, parties: Parties, method: Method, plan: Plan) -> None:
    """Refuse what cannot be trained, and what a run would ignore; warn of figures that would say nothing."""
    data = parties.data
    plan.check(method)
    refuse_statistics(task, method)
    if parties.newcomers is not None:
        refuse(method)
    try:
        method.check_run(plan.rounds, task.layout)
    except SettingError as error:
        raise renamed(error, "method", [field.name for field in fields(method)]) from None
    for i, attack in enumerate(plan.attacks):
        try:
            attack.check(data)
        except SettingError as error:
            told = [field.name for field in fields(attack)]
            raise renamed(error, f"attacks[{i}] ({attack.name})", told) from None
    _check_readings(task, len(data), method, plan)
    check_downlink(plan.downlink, method, Context(0, plan.seed, len(data), task.layout, task.start(), 0))
    check_tokens(task, parties.everyone)
    _check_outputs(task, parties.everyone, method)
    opens = [attack.name for attack in plan.attacks if type(attack).probe is not Attack.probe]
    if opens and "test" not in plan.evaluation.parts:
        _warn(
            f"attacks: how often '{opens[0]}' works is measured on test data, and evaluate.parts = "
            f"{list(plan.evaluation.parts)} leaves them out: name 'test' there, too"
        )
    if "test" in plan.evaluation.parts and not len(data.test.targets):
        _warn(
            f"data '{data.name}': no client has test examples, and figures on test will be NaN: set some aside "
            "(test=0.2), or leave 'test' out of the evaluation's parts"
        )
    if plan.health is not None:
        _check_health(plan.health, plan.rounds, data)
    if len(plan.malicious) == len(data):
        _warn("malicious: all clients attack, and figures of benign clients will be NaN: leave one benign at least")


def _check_health(health: Health, rounds: int, data: FederatedData) -> None:
    late = [t for t in health.rounds if t > rounds] if isinstance(health.rounds, tuple) else []
    if late or not any(health.due(t) for t in range(1, rounds + 1)):
        what = f"the round {late[0]} is" if late else f"every {health.rounds} rounds are"
        raise SettingError(f"health: {what} beyond the run's {rounds} rounds: name rounds of the run")
    if not len(data.part(health.part).targets):
        raise SettingError(f"health.part = '{health.part}': no client of data '{data.name}' has such examples")


def _warn(text: str) -> None:
    warnings.warn(NoFiguresWarning(text), stacklevel=5)  # where `simulate` was called


def _check_readings(task: Task, clients: int, method: Method, plan: Plan) -> None:
    """Refuse a codec by which the server need not come to know what clients send as changes since the last time."""
    since_last = [name for name, sent in method.sends.items() if sent.of == LAST]
    ctx = Context(0, plan.seed, clients, task.layout, task.start(), 0)
    first = method.first_sent(ctx) if since_last and plan.codec.updates else {}
    for name, leaf in first.items():
        if name in since_last and (why := plan.codec.unsettled(leaf.numel())) is not None:
            raise NotTogetherError(
                "codec",
                f"the method '{method.name}' sends '{name}' as what changed since the server last read it, and by "
                f"'{plan.codec.name}' the error of a reading may grow from round to round: {why}",
            )


def _check_outputs(task: Task, data: FederatedData, method: Method) -> None:
    """Refuse a model whose outputs do not go with the targets or the method; one that does not run, elsewhere."""
    outputs, targets = _outputs_of_one(task, data), data.train.targets
    if outputs is None:
        return
    why = method.refuses.get("one_output")
    if why is not None and (outputs.dim() < 2 or outputs.shape[-1] < 2):
        said = f"it gives one number an example, and the method '{method.name}' cannot train it: {why}"
        raise NotTogetherError("model", said)
    floating = targets.is_floating_point()
    if task.loss is cross_entropy:
        if floating:
            raise TaskError(
                f"the loss 'cross_entropy' needs labels, and the targets of data '{data.name}' are numbers "
                f"({_type(targets)}): use the loss 'squared_error', or give integer labels"
            )
        _check_labels(outputs.shape[-1] if outputs.dim() > 1 else 1, data)
    if task.loss is squared_error and outputs[0].numel() != targets[0].numel():
        remedy = "give the model as many" if floating else "use the loss 'cross_entropy', or give floating targets"
        raise TaskError(
            f"the loss 'squared_error' needs an output for each target, and the model gives {outputs[0].numel()} "
            f"an example of data '{data.name}', for {targets[0].numel()}: {remedy}"
        )


def _outputs_of_one(task: Task, data: FederatedData) -> Tensor | None:
    """What the first model predicts for one example [1, ...]."""
    inputs = data.train.inputs[:1]
    inputs = inputs.to(task.dtype) if inputs.is_floating_point() else inputs
    try:
        task.to(inputs.device)
        with torch.no_grad():
            start, buffers = task.start().to(inputs.device), task.buffer_start().to(inputs.device)
            outputs = task.apply(start, buffers, inputs)[0]
    except Exception:  # the probe says why
        return None
    return outputs if isinstance(outputs, Tensor) and outputs.dim() and len(outputs) == 1 else None


def _check_labels(outputs: int, data: FederatedData) -> None:
    for name in _PARTS:
        part: Part = data.part(name)
        if part.targets.numel() and (highest := int(part.targets.max())) >= outputs:
            of_example = part.targets.reshape(len(part.targets), -1).amax(1)
            client = data.clients[int(part.owners[int(of_example.argmax())])]
            raise TaskError(
                f"labels reach {highest} (client '{client}', {name}), and the model gives {outputs} "
                f"output{'' if outputs == 1 else 's'}: give it {highest + 1} or more, one for each class from 0 on"
            )


def _type(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")
