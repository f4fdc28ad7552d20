"""What `benchmarks/gpu.py` times: models, clients and methods, and the least that a step of them can take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from speed_shapes import lenet, logistic, mlp
from torch import Tensor, nn

import descant as dc
from descant.data import Part
from descant.execution import Mode
from descant.methods import Method


@dataclass(frozen=True, kw_only=True)
class Row:
    """Rounds of a method in which everyone takes part, or a cohort; each client holds as many examples."""

    key: str
    title: str
    model: Callable[[dc.FederatedData], nn.Module]
    inputs: tuple[int, ...]
    classes: int
    clients: int
    samples: int
    batch: int
    cohort: int | None = None  # clients that take part in a round, if not all
    steps: int = 20
    method: Callable[[int, int], Method] = lambda steps, batch: dc.methods.FedAvg(lr=0.01, steps=steps, batch=batch)
    rounds: int = 30  # that are timed, at most
    mode: Mode = "auto"
    beside: bool = False  # whether it is timed again with the clients' state in the processor's memory
    bare: bool = True  # whether a bare loop of compiled steps is timed beside it
    copies: int = 5  # of a model that a step reads or writes at least: x twice, the gradient twice, the new x

    @property
    def working(self) -> int:
        """The clients that take part in a round."""
        return self.clients if self.cohort is None else self.cohort

    def data(self) -> dc.FederatedData:
        """Random examples, a few of each client's for evaluation."""
        return self.drawn(tested=8)

    def drawn(self, tested: int) -> dc.FederatedData:
        """Random examples, so many of each client's to test with; a GPU, where there is one, draws them at once."""
        generator = torch.Generator("cuda" if torch.cuda.is_available() else "cpu").manual_seed(0)
        parts = [self._part(samples, generator) for samples in (self.samples, 0, tested)]
        return dc.FederatedData(*parts, classes=self.classes, name=self.key)

    def _part(self, samples: int, generator: torch.Generator) -> Part:
        examples, where = self.clients * samples, {"generator": generator, "device": generator.device}
        inputs = torch.randn(examples, *self.inputs, **where)  # type: ignore[call-overload]
        targets = torch.randint(0, self.classes, (examples,), **where)  # type: ignore[call-overload]
        return Part(inputs.cpu(), targets.cpu(), torch.arange(self.clients + 1) * samples)

    def least(self, task: dc.Task, operations: int) -> tuple[float, float]:
        """The bytes that a step of all clients moves at least, and its operations: forward and twice that back."""
        moved = self.copies * task.dim + 2 * self.batch * prod(self.inputs)
        return 4.0 * self.clients * moved, 3.0 * self.clients * operations


def operations(model: nn.Module, inputs: Tensor) -> int:
    """Floating-point operations of a forward pass: products and sums of its linear and convolutional layers."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(inputs)
    return counter.get_total_flops()


def group_norm(module: nn.Module) -> nn.Module:
    """The module with GroupNorm in the place of BatchNorm."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, nn.GroupNorm(8, child.num_features))
        else:
            group_norm(child)
    return module


def ditto(steps: int, batch: int) -> Method:
    half = dc.methods.FedAvg(lr=0.01, steps=steps // 2, batch=batch)
    return dc.methods.Ditto(lam=0.1, lr=0.01, steps=steps // 2, batch=batch, solver=half)


def flame(steps: int, batch: int) -> Method:
    return dc.methods.FLAME(lam=0.1, lr=0.01, steps=steps, batch=batch)


def lp_proj(steps: int, batch: int) -> Method:
    return dc.methods.LpProj(dim=600, lam=0.1, lr=0.01, steps=steps, batch=batch)


def _mlp(**more: object) -> Row:
    about = {"inputs": (784,), "classes": 62, "samples": 200, "batch": 64, "clients": 248}
    return Row(model=lambda data: mlp(), **{**about, **more})  # type: ignore[arg-type]


ROWS = [
    _mlp(key="mlp-248", title="MLP 784-100-100-62, batch 64, 248 clients"),
    _mlp(key="mlp-25", title="the same, 25 clients", clients=25),
    Row(
        key="logistic",
        title="logistic 60-10, batch 10, 10,000 clients",
        model=lambda data: logistic(),
        inputs=(60,),
        classes=10,
        clients=10_000,
        samples=160,
        batch=10,
    ),
    Row(
        key="lenet",
        title="LeNet 3x32x32, batch 64, 200 clients",
        model=lambda data: lenet(),
        inputs=(3, 32, 32),
        classes=10,
        clients=200,
        samples=192,
        batch=64,
    ),
    _mlp(key="ditto", title="Ditto on the MLP, 248 clients", method=ditto, bare=False, beside=True),
    _mlp(
        key="ditto-cohort",
        title="Ditto on the MLP, 248 of 992 clients a round",
        method=ditto,
        clients=992,
        cohort=248,
        samples=64,
        bare=False,
        beside=True,
    ),
    _mlp(key="flame", title="FLAME on the MLP, 248 clients", method=flame, bare=False),
    Row(
        key="lp-proj",
        title="lp-proj (600) on the Fashion-MNIST ResNet, batch 32, 20 clients",
        model=dc.models.lpproj_fashion,
        inputs=(1, 28, 28),
        classes=10,
        clients=20,
        samples=160,
        batch=32,
        steps=10,
        rounds=10,
        method=lp_proj,
        bare=False,
    ),
    Row(
        key="resnet18",
        title="ResNet-18 with GroupNorm, 3x32x32, batch 32, 20 clients",
        model=lambda data: group_norm(dc.models.resnet18(data, small_images=True)),
        inputs=(3, 32, 32),
        classes=10,
        clients=20,
        samples=160,
        batch=32,
        steps=10,
        rounds=5,
        bare=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A whole run as another project times it: a cohort, epochs, and evaluation every so many rounds."""

    key: str
    title: str
    model: Callable[[dc.FederatedData], nn.Module]
    clients: int
    samples: int
    cohort: int
    epochs: int
    batch: int
    rounds: int  # that are run, two at least
    of: int  # that the other project runs
    every: int = 10
    mode: Mode = "auto"
    part: int | None = None  # clients of the cohort that work in a round here, where all would take too long
    tested: int = 10  # test images of each client
    inputs: tuple[int, ...] = (3, 32, 32)
    classes: int = 10

    @property
    def row(self) -> Row:
        """Rounds of the same clients, for what is timed beside it."""
        shared = ("key", "title", "model", "inputs", "classes", "clients", "samples", "batch")
        return Row(**{name: getattr(self, name) for name in shared})

    def data(self) -> dc.FederatedData:
        return self.row.drawn(self.tested)

    def extrapolated(self, marks: list[float], began: float, ended: float, evaluation: float) -> float:
        """The seconds of the whole run, from those of some of its rounds: of when each ended.

        If but a part of the cohort worked in them, a round of all takes as much longer as there are more of them;
        an `evaluation` is of everyone.
        """
        started = marks[0] - began
        if self.part is None:
            return started + (ended - marks[0]) / (self.rounds - 1) * (self.of - 1)
        rounds = self.of * self.cohort / self.part  # as long as those that were timed; the first is in the start
        seconds = (marks[-1] - marks[0]) / (self.rounds - 1)
        return started + seconds * (rounds - 1) + evaluation * (self.of // self.every)

    @property
    def means(self) -> str:
        """What the whole run's seconds are."""
        if self.part is not None:
            more = f"{self.cohort / self.part:g} times as many clients"
            return f"extrapolated from {self.rounds - 1} rounds after the first to {more} and {self.of} rounds"
        return "measured" if self.rounds == self.of else f"extrapolated from {self.rounds} rounds"


def pfl_cnn(data: dc.FederatedData) -> nn.Module:
    """pfl's CNN for CIFAR-10: two 3 x 3 convolutions of 32 and 64 channels, then 128; 1.6 million parameters."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(12544, 128), nn.ReLU(), nn.Linear(128, 10)),
    )


SETUPS = [
    Setup(
        key="pfl",
        title="pfl's CIFAR-10 IID: 50 of 1,000 clients, 50 images, CNN of 1.6 million",
        model=pfl_cnn,
        clients=1000,
        samples=50,
        cohort=50,
        epochs=1,
        batch=10,
        rounds=150,
        of=1500,
    ),
    Setup(
        key="blazefl-cnn",
        title="BlazeFL's CIFAR-10: 100 clients, 500 images, 5 epochs of batch 50, small CNN",
        model=dc.models.lpproj_cifar,
        clients=100,
        samples=500,
        cohort=100,
        epochs=5,
        batch=50,
        rounds=5,
        of=5,
        every=5,
        tested=100,
    ),
    Setup(
        key="blazefl-resnet18",
        title="the same with ResNet-18 (BatchNorm), its 5 rounds of 5 epochs as 25 of one, uncompiled",
        model=lambda data: dc.models.resnet18(data, small_images=True),
        clients=100,
        samples=500,
        cohort=100,
        epochs=1,
        batch=50,
        rounds=4,
        of=25,
        every=5,
        part=10,
        mode="loop",  # faster than vmap here; to find whether compiling pays takes longer than all that is timed
        tested=100,
    ),
]
