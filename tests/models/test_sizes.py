"""The papers' models have the papers' sizes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from descant.catalog import build
from descant.data import FederatedData
from descant.models import MODELS
from descant.task import Task

Make = Callable[..., Any]

# name, shape of an example, classes, parameters
PRINTED = [
    ("linear", (60,), 10, 610),  # lp-proj, section C.1, as the next four
    ("lp-proj-mnist", (784,), 10, 79_510),
    ("lp-proj-emnist", (784,), 62, 94_862),
    ("lp-proj-cifar", (3, 32, 32), 10, 62_006),
    ("lp-proj-fashion", (1, 28, 28), 10, 678_794),
    ("linear", (784,), 10, 7_850),  # FLAME, Table II, as the next three
    ("flame-cifar", (3, 32, 32), 10, 268_650),
    ("flame-medical", (3, 64, 64), 6, 206_678),
    ("flame-femnist", (1, 28, 28), 62, 214_590),
    ("flame-mlp", (784,), 10, 109_386),  # what FLAME's accuracies on MNIST need
    ("resnet18", (3, 224, 224), 1000, 11_689_512),
    ("resnet34", (3, 224, 224), 1000, 21_797_672),
]


@pytest.mark.parametrize(("name", "shape", "classes", "parameters"), PRINTED)
def test_printed_sizes(make: Make, name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    data = make(shape, classes, examples=1)
    assert Task(build("models", name, data)).dim == parameters


def conv(before: int, after: int, kernel: int) -> int:
    return before * after * kernel**2 + after


def dense(before: int, after: int) -> int:
    return before * after + after


def lstm(before: int, hidden: int) -> int:
    return 4 * hidden * (before + hidden + 2)  # torch has two biases a gate


BY_LAYER = {
    "ditto-fashion": conv(1, 32, 5) + conv(32, 64, 5) + dense(7 * 7 * 64, 1024) + dense(1024, 10),
    "ditto-femnist": conv(1, 16, 5) + conv(16, 32, 5) + dense(7 * 7 * 32, 128) + dense(128, 62),
    "ditto-celeba": conv(3, 32, 3) + 3 * conv(32, 32, 3) + 4 * 64 + dense(6 * 6 * 32, 2),
    "fedplus-sent140": lstm(300, 256) + lstm(256, 256) + dense(256, 2),
    "cnn": conv(1, 32, 5) + conv(32, 64, 5) + dense(7 * 7 * 64, 128) + dense(128, 10),
}


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("ditto-fashion", (28, 28), 10, BY_LAYER["ditto-fashion"]),
        ("ditto-femnist", (28, 28), 62, BY_LAYER["ditto-femnist"]),
        ("ditto-celeba", (3, 84, 84), 2, BY_LAYER["ditto-celeba"]),
        ("svm", (100,), 2, dense(100, 1)),
        ("fedplus-sent140", (25, 300), 2, BY_LAYER["fedplus-sent140"]),
        ("flame-medical", (64, 64), 6, 206_678 - 2 * 32 * 9),  # grey
        ("cnn", (28, 28), 10, BY_LAYER["cnn"]),
    ],
)
def test_sizes_by_layer(make: Make, name: str, shape: tuple[int, ...], classes: int, parameters: int) -> None:
    data = make(shape, classes, examples=1)
    assert Task(build("models", name, data)).dim == parameters


def test_a_resnet_for_small_images(make: Make) -> None:
    data = make((3, 32, 32), 10, examples=1)
    assert Task(build("models", {"name": "resnet18", "small_images": True}, data)).dim == 11_173_962


def test_fedplus_linear_model_of_a_regression() -> None:
    data = FederatedData.from_arrays([(np.zeros((9, 1000), dtype=np.float32), np.zeros(9, dtype=np.float32))])
    assert Task(build("models", "linear", data), "squared_error").dim == 1001


@pytest.mark.parametrize(("each", "tokens", "vocabulary", "held"), [(False, 90, None, 90), (True, 80, 95, 95)])
def test_shakespeares_lstm(make: Make, each: bool, tokens: int, vocabulary: int | None, held: int) -> None:
    data = make((20,), 90, tokens=tokens, each=each, examples=30)
    model = build("models", {"name": "shakespeare-lstm", "vocabulary": vocabulary}, data)
    assert Task(model).dim == 8 * held + lstm(8, 256) + lstm(256, 256) + dense(256, 90)
    outputs = model(data.train.inputs[:3])
    assert outputs.shape == ((3, 20, 90) if each else (3, 90))


def test_every_model_says_what_it_is() -> None:
    assert all((make.__doc__ or "").strip() for make in MODELS.values())
