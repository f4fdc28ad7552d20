"""Checksums of files that everybody has the same: (size, sha256) of the contents, decompressed.

QMNIST's compressed files have the md5 that torchvision prints. The others are those of complete copies that every
reader here was tested with; none of them is published in this form by the data's authors.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from descant.data.errors import DataError

KNOWN: dict[str, tuple[int, str]] = {
    "mnist/t10k-images-idx3-ubyte": (7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "mnist/t10k-labels-idx1-ubyte": (10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    "mnist/train-images-idx3-ubyte": (47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "mnist/train-labels-idx1-ubyte": (60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "fashion-mnist/t10k-images-idx3-ubyte": (
        7840016,
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    ),
    "fashion-mnist/t10k-labels-idx1-ubyte": (
        10008,
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    "fashion-mnist/train-images-idx3-ubyte": (
        47040016,
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    ),
    "fashion-mnist/train-labels-idx1-ubyte": (
        60008,
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    ),
    "qmnist-labels/qmnist-test-labels-idx2-int": (
        1920012,
        "92d0ccb8c25f9c6534270fb4be7e1d24a1c6d315edfc8a638bfbd31c70f362dd",
    ),
    "qmnist-labels/qmnist-train-labels-idx2-int": (
        1920012,
        "bb1b6e1ec7b04fd5696f1ed50b5f58f8ef195118edd5c93c81783df9740b8ac5",
    ),
    "cifar10/data_batch_1.bin": (30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    "cifar10/data_batch_2.bin": (30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    "cifar10/data_batch_3.bin": (30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    "cifar10/data_batch_4.bin": (30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    "cifar10/data_batch_5.bin": (30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    "cifar10/test_batch.bin": (30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    "vehicle/mytrain.json": (3879378, "a8c8b22a89ea64e5a563cffe94352b48c1f44a02100fd3256adfc09dc43d9ddc"),
    "heart-disease/processed.cleveland.data": (
        18461,
        "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
    ),
    "heart-disease/processed.hungarian.data": (
        10263,
        "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
    ),
    "heart-disease/processed.switzerland.data": (
        4109,
        "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
    ),
    "heart-disease/processed.va.data": (6737, "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f"),
    "shakespeare-tff/shakespeare_test.h5": (
        2745814,
        "55d3a635bffe5c4f71610a8d0cf86c1b369bfd7793e0635b5a83cde1f195689e",
    ),
    "shakespeare-tff/shakespeare_train.h5": (
        4035752,
        "67100f52adfb6d5ece73c1a942b6863731a477bf09421a3c79c9937612895344",
    ),
}


REMEDY = "remove it and fetch it again"


def check_known(file: Path, contents: bytes | memoryview, published: bool = False, remedy: str = REMEDY) -> None:
    """Refuse contents with the name and the size of a well-known file, but not its checksum.

    A file of another size is other data in the same format, and no business of this check, unless it has to be the
    `published` one. Files may lie one folder below the set's own, as an archive leaves them.
    """
    name = file.name.removesuffix(".gz")
    folders = (file.parent.name, file.parent.parent.name)
    size, expected = next((KNOWN[key] for f in folders if (key := f"{f}/{name}") in KNOWN), (-1, ""))
    if published and size >= 0 and len(contents) != size:
        raise DataError(f"it has {len(contents):,} bytes, and the published file {size:,}: {remedy}", file=file)
    if len(contents) == size and sha256(contents).hexdigest() != expected:
        raise DataError(f"its checksum is not that of the published file: {remedy}", file=file)
