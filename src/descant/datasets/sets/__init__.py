"""Data sets by name: what is read from standard files, and the papers' own federations."""

from __future__ import annotations

from collections.abc import Callable

from descant.data.federated import FederatedData
from descant.datasets.sets.ditto import ditto_fashion, point_estimation
from descant.datasets.sets.fedplus import (
    fedplus_emnist,
    fedplus_mnist,
    fedplus_regression,
    mnist_personal,
    mnist_robust,
)
from descant.datasets.sets.images import cifar10, emnist, fashion_mnist, imagenet, medical_mnist, mnist
from descant.datasets.sets.tables import hapt, heart_disease, vehicle
from descant.datasets.sets.text import sent140, shakespeare, shakespeare_tff
from descant.datasets.sets.writers import celeba, chars74k, femnist, mnist_by_writer

SETS: dict[str, Callable[..., FederatedData]] = {
    "mnist": mnist,
    "fashion-mnist": fashion_mnist,
    "emnist": emnist,
    "cifar10": cifar10,
    "medical-mnist": medical_mnist,
    "imagenet": imagenet,
    "mnist-by-writer": mnist_by_writer,
    "femnist": femnist,
    "celeba": celeba,
    "chars74k": chars74k,
    "shakespeare": shakespeare,
    "shakespeare-tff": shakespeare_tff,
    "sent140": sent140,
    "vehicle": vehicle,
    "hapt": hapt,
    "heart-disease": heart_disease,
    "mnist-robust": mnist_robust,
    "mnist-personal": mnist_personal,
    "fedplus-mnist": fedplus_mnist,
    "fedplus-emnist": fedplus_emnist,
    "fedplus-regression": fedplus_regression,
    "ditto-fashion": ditto_fashion,
    "point-estimation": point_estimation,
}
