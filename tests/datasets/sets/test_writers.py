"""Pictures with clients of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from descant.data import DataError
from descant.datasets import DATASETS
from descant.errors import SettingError

RNG = np.random.default_rng(7)


def write_writers(root: Path, write_idx: Callable[..., Path], writers: list[int]) -> None:
    table = np.zeros((len(writers), 8), int)
    table[:, 2] = writers
    write_idx(root / "qmnist-labels" / "qmnist-train-labels-idx2-int.gz", table, "i4")


def test_a_writer_is_a_client_and_test_digits_are_not_used(
    tmp_path: Path, write_mnist: Callable[..., Path], write_idx: Callable[..., Path]
) -> None:
    writers = [(n * 7) % 20 * 100 for n in range(200)]
    write_writers(write_mnist(tmp_path), write_idx, writers)
    data = DATASETS["mnist-by-writer"](root=tmp_path)
    assert data.name == "mnist-by-writer" and data.clients == tuple(f"writer {100 * w}" for w in range(20))
    for k in range(20):
        own = [data.part(part).client(k)[0][:, 0, 0, 0] * 255 for part in ("train", "valid", "test")]
        numbers = sorted(int(n) for values in own for n in values.round().tolist())
        assert numbers == [n for n in range(200) if writers[n] == 100 * k]


def test_writers_are_grouped_in_their_order(
    tmp_path: Path, write_mnist: Callable[..., Path], write_idx: Callable[..., Path]
) -> None:
    writers = [n % 20 for n in range(200)]
    write_writers(write_mnist(tmp_path), write_idx, writers)
    data = DATASETS["mnist-by-writer"](clients=4, root=tmp_path)
    assert len(data) == 4
    first = {writers[int(n)] for n in (data.train.client(0)[0][:, 0, 0, 0] * 255).round().tolist()}
    assert first <= set(range(5))


def test_writers_train_on_a_few_of_their_digits(
    tmp_path: Path, write_mnist: Callable[..., Path], write_idx: Callable[..., Path]
) -> None:
    write_writers(write_mnist(tmp_path), write_idx, [n % 20 for n in range(200)])
    whole, few = (DATASETS["mnist-by-writer"](root=tmp_path, most=most) for most in (None, 3))
    assert few.train.sizes.tolist() == [3] * 20 and few.settings["most"] == 3
    assert few.test.inputs.equal(whole.test.inputs) and few.valid.inputs.equal(whole.valid.inputs)
    with pytest.raises(SettingError, match="most = 0: it must be a positive number"):
        DATASETS["mnist-by-writer"](root=tmp_path, most=0)


def test_some_of_the_writers_take_part_as_the_seed_draws_them(
    tmp_path: Path, write_mnist: Callable[..., Path], write_idx: Callable[..., Path]
) -> None:
    write_writers(write_mnist(tmp_path), write_idx, [n % 20 for n in range(200)])
    whole, few, others = (
        DATASETS["mnist-by-writer"](root=tmp_path, writers=writers, seed=seed)
        for writers, seed in ((None, 0), (7, 0), (7, 1))
    )
    assert len(few) == 7 and few.settings["writers"] == 7 and few.clients != others.clients
    for name in few.clients:  # all that they wrote, and nobody else's
        mine, its = (
            torch.cat([data.part(part).client(data.clients.index(name))[0] for part in ("train", "valid", "test")])
            for data in (few, whole)
        )
        assert mine.flatten(1).sort(0).values.equal(its.flatten(1).sort(0).values)
    for wrong in (0, 21):
        with pytest.raises(SettingError, match=f"writers = {wrong}: it must be from 1 to 20"):
            DATASETS["mnist-by-writer"](root=tmp_path, writers=wrong)


def test_writers_of_another_number_of_digits_are_refused(
    tmp_path: Path, write_mnist: Callable[..., Path], write_idx: Callable[..., Path]
) -> None:
    write_writers(write_mnist(tmp_path), write_idx, [0] * 199)
    with pytest.raises(DataError, match="199 writers' rows, and MNIST 200"):
        DATASETS["mnist-by-writer"](root=tmp_path)


def test_femnist_from_leaf(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    for part, count in (("train", 8), ("test", 2)):
        users = {
            f"f000{u}": (RNG.random((count, 784)).round(2).tolist(), RNG.integers(0, 62, count).tolist())
            for u in range(3)
        }
        write_leaf(tmp_path / "femnist" / part / "all_data_0.json", users)
    data = DATASETS["femnist"](root=tmp_path)
    assert data.clients == ("f0000", "f0001", "f0002") and data.classes == 62
    assert data.input_shape == (1, 28, 28) and data.test.sizes.tolist() == [2, 2, 2]
    torchless = users["f0001"][0]
    np.testing.assert_allclose(data.test.client(1)[0].flatten(1).numpy(), torchless, atol=1e-6)


def test_celeba_reads_the_pictures_that_the_list_names(tmp_path: Path, write_leaf: Callable[..., Path]) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    for i in range(6):
        flat = np.full((10, 8, 3), 40 * i, np.uint8)
        image.fromarray(flat).save(folder / "img_align_celeba" / f"{i}.jpg", quality=100)
    write_leaf(folder / "train" / "a.json", {"12": (["0.jpg", "1.jpg"], [0, 1]), "7": (["2.jpg"], [1])})
    write_leaf(folder / "test" / "a.json", {"12": (["4.jpg"], [1]), "7": (["5.jpg"], [0])})
    data = DATASETS["celeba"](size=4, valid=0.0, root=tmp_path)
    assert data.clients == ("12", "7") and data.input_shape == (3, 4, 4)
    shades = (data.train.inputs.flatten(1).mean(1) * 255 / 40).round().sort().values
    assert shades.tolist() == [0, 1, 2] and data.test.targets.tolist() == [1, 0]
    write_leaf(folder / "test" / "a.json", {"12": (["../secret.jpg"], [1])})
    with pytest.raises(DataError, match=r"img_align_celeba|not a picture"):
        DATASETS["celeba"](root=tmp_path)


@pytest.mark.slow
def test_the_real_mnist_by_writer(real: Callable[[str], Path]) -> None:
    real("mnist"), real("qmnist-labels")
    data = DATASETS["mnist-by-writer"]()
    sizes = data.train.sizes + data.valid.sizes + data.test.sizes
    assert len(data) == 539 and int(sizes.sum()) == 60_000
    assert int(sizes.min()) == 19 and int(sizes.max()) == 131
    assert len(DATASETS["mnist-by-writer"](clients=10)) == 10
