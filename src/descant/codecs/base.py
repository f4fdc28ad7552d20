"""The contract of a codec."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Codec(ABC):
    """One party's message as bytes on the wire, and back. Names, shapes and types are known to both ends."""

    name: ClassVar[str]

    @abstractmethod
    def encode(self, message: Mapping[str, Tensor]) -> bytes: ...

    @abstractmethod
    def decode(self, payload: bytes, like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The message, with the names, shapes and types of `like`."""

    @abstractmethod
    def size(self, message: Mapping[str, Tensor]) -> int:
        """The length of `encode(message)`, without encoding."""
