"""FedAvg as one writes it first: a loop over clients, a copy of the model and an optimizer each; the average."""

from __future__ import annotations

from copy import deepcopy

import torch
from speed_shapes import Shape
from speed_turns import Job, Turns, serve
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


def train_client(model: nn.Module, inputs: Tensor, targets: Tensor, shape: Shape) -> None:
    """Local SGD in place: every epoch goes once through the examples, in a new order."""
    optimizer = torch.optim.SGD(model.parameters(), lr=shape.lr)
    for _ in range(shape.epochs):
        for index in torch.randperm(len(targets)).split(shape.batch):
            optimizer.zero_grad()
            cross_entropy(model(inputs[index]), targets[index]).backward()
            optimizer.step()


def train_round(model: nn.Module, inputs: Tensor, targets: Tensor, shape: Shape) -> None:
    """A round in place. All clients hold as many examples, so that the weighted average is the plain one."""
    total = [torch.zeros_like(parameter) for parameter in model.parameters()]
    for k in torch.randperm(shape.clients)[: shape.cohort].tolist():
        own, rows = deepcopy(model), slice(k * shape.samples, (k + 1) * shape.samples)
        train_client(own, inputs[rows], targets[rows], shape)
        for summed, parameter in zip(total, own.parameters(), strict=True):
            summed += parameter.detach()
    with torch.no_grad():
        for parameter, summed in zip(model.parameters(), total, strict=True):
            parameter.copy_(summed / shape.cohort)


def contender(job: Job, turns: Turns) -> None:
    model, (inputs, targets) = job.model(), job.data()
    turns.begin()
    while True:
        train_round(model, inputs, targets, job.shape)
        turns.trained()


if __name__ == "__main__":
    serve(contender)
