"""Models by name, sized to the data: the papers' own, and kinds to choose the sizes of."""

from collections.abc import Callable

from torch import nn

from descant.models.convolutional import (
    cnn,
    ditto_celeba,
    ditto_fashion,
    ditto_femnist,
    flame_cifar,
    flame_femnist,
    flame_medical,
    lpproj_cifar,
)
from descant.models.dense import flame_mlp, linear, lpproj_emnist, lpproj_mnist, mlp, svm
from descant.models.recurrent import fedplus_sent140, lstm, shakespeare_lstm
from descant.models.residual import lpproj_fashion, resnet18, resnet34

MODELS: dict[str, Callable[..., nn.Module]] = {
    "linear": linear,
    "mlp": mlp,
    "svm": svm,
    "cnn": cnn,
    "lstm": lstm,
    "resnet18": resnet18,
    "resnet34": resnet34,
    "lp-proj-mnist": lpproj_mnist,
    "lp-proj-emnist": lpproj_emnist,
    "lp-proj-cifar": lpproj_cifar,
    "lp-proj-fashion": lpproj_fashion,
    "flame-mlp": flame_mlp,
    "flame-cifar": flame_cifar,
    "flame-medical": flame_medical,
    "flame-femnist": flame_femnist,
    "ditto-fashion": ditto_fashion,
    "ditto-femnist": ditto_femnist,
    "ditto-celeba": ditto_celeba,
    "fedplus-sent140": fedplus_sent140,
    "shakespeare-lstm": shakespeare_lstm,
}

__all__ = [
    "MODELS",
    "cnn",
    "ditto_celeba",
    "ditto_fashion",
    "ditto_femnist",
    "fedplus_sent140",
    "flame_cifar",
    "flame_femnist",
    "flame_medical",
    "flame_mlp",
    "linear",
    "lpproj_cifar",
    "lpproj_emnist",
    "lpproj_fashion",
    "lpproj_mnist",
    "lstm",
    "mlp",
    "resnet18",
    "resnet34",
    "shakespeare_lstm",
    "svm",
]
