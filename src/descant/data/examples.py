"""Examples as a data set's files hold them, before anybody holds them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from descant.data.errors import DataError


@dataclass(frozen=True, eq=False)
class Examples:
    """All examples of a data set, with the natural client of each where there is one.

    Pictures stay the bytes that they are on disk, a quarter of their floats, until `rows` takes some.
    """

    name: str
    inputs: Tensor  # [M, ...]; uint8: pixels
    targets: Tensor  # [M, ...]; integers: labels
    classes: int | None = None
    owners: Tensor | None = None  # [M] int64: the writer, role, device, subject or hospital of each, 0..n-1
    owner_names: tuple[str, ...] = ()
    test_from: int | None = None  # rows from here on are the official test part
    mean: float = 0.0  # pixels become (x / 255 - mean) / std
    std: float = 1.0
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fields = {"targets": self.targets} | ({} if self.owners is None else {"owners": self.owners})
        for field, values in fields.items():
            if len(values) != len(self.inputs):
                raise DataError(f"{self.name}: {len(self.inputs)} inputs but {len(values)} {field}")
        if self.owners is not None and len(self.owners) and int(self.owners.max()) >= len(self.owner_names):
            raise DataError(f"{self.name}: owner {int(self.owners.max())} has no name")

    def __len__(self) -> int:
        return len(self.inputs)

    def rows(self, index: Tensor) -> Tensor:
        """The inputs of some examples as a model sees them: pixels as float32, all else as it is."""
        taken = self.inputs[index]
        if taken.dtype != torch.uint8:
            return taken
        return taken.to(torch.float32).div_(255).sub_(self.mean).div_(self.std)

    def where(self, kept: Tensor) -> Examples:
        """The examples where `kept` [M] is true, in their order."""
        return replace(
            self,
            inputs=self.inputs[kept],
            targets=self.targets[kept],
            owners=None if self.owners is None else self.owners[kept],
            test_from=None if self.test_from is None else int(kept[: self.test_from].sum()),
        )


def joined(train: Examples, test: Examples) -> Examples:
    """Two files' examples as one data set, of which the second is the official test part.

    Owners are matched by name.
    """
    names = tuple(dict.fromkeys(train.owner_names + test.owner_names))
    place = {name: k for k, name in enumerate(names)}
    owners = [
        torch.tensor([place[name] for name in part.owner_names])[part.owners]
        for part in (train, test)
        if part.owners is not None
    ]
    return replace(
        train,
        inputs=torch.cat([train.inputs, test.inputs]),
        targets=torch.cat([train.targets, test.targets]),
        owners=torch.cat(owners) if len(owners) == 2 else None,
        owner_names=names if len(owners) == 2 else (),
        test_from=len(train),
    )
