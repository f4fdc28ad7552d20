"""Numbers as they are, or rounded to a narrower type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from descant.codecs.base import Codec
from descant.codecs.raw import length_of, raw, rows_of
from descant.context import Context
from descant.mail import Form, Mail
from descant.trees import Tree


@dataclass(frozen=True, kw_only=True)
class Native(Codec):
    """Every leaf's numbers, one leaf after the other, as this machine lays them out: no header, no loss.

    Of a method that sends its updates in few bits (`Method.rounding`: Hush), a run takes it to mean `uniform`.
    """

    name: ClassVar[str] = "native"
    exact: ClassVar[bool] = True

    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        return memory, raw(mail, len(mail.clients))

    def decode(self, ctx: Context, copies: Tree, payloads: list[bytes], blank: Mail) -> tuple[Tree, Mail]:
        return copies, replace(blank, leaves=rows_of(payloads, blank.form, blank.clients.device))

    def size(self, form: Form) -> int:
        return length_of(form)


@dataclass(frozen=True, kw_only=True)
class Rounded(Codec):
    """Floating numbers in another type where it is narrower than their own, the others as they are."""

    dtype: ClassVar[torch.dtype]

    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        rounded = {name: leaf.to(self._sent(leaf.dtype)) for name, leaf in mail.items()}
        return memory, raw(rounded, len(mail.clients))

    def decode(self, ctx: Context, copies: Tree, payloads: list[bytes], blank: Mail) -> tuple[Tree, Mail]:
        leaves = rows_of(payloads, self._form(blank.form), blank.clients.device)
        return copies, replace(blank, leaves={name: leaf.to(blank[name].dtype) for name, leaf in leaves.items()})

    def size(self, form: Form) -> int:
        return length_of(self._form(form))

    def _form(self, form: Form) -> Form:
        return form._replace(dtypes=tuple(map(self._sent, form.dtypes)))

    def _sent(self, kind: torch.dtype) -> torch.dtype:
        """The type in which numbers of a kind travel."""
        return self.dtype if kind.is_floating_point and kind.itemsize > self.dtype.itemsize else kind


@dataclass(frozen=True, kw_only=True)
class Float32(Rounded):
    """Floating numbers in single precision (IEEE binary32) where they are wider, the others as they are.

    Numbers above 3.4e38 become infinite: a message that holds one is refused.
    """

    name: ClassVar[str] = "float32"
    dtype: ClassVar[torch.dtype] = torch.float32


@dataclass(frozen=True, kw_only=True)
class Float16(Rounded):
    """Floating numbers in half precision (IEEE binary16) where they are wider, the others as they are.

    Numbers above 65,504 become infinite: a message that holds one is refused.
    """

    name: ClassVar[str] = "float16"
    dtype: ClassVar[torch.dtype] = torch.float16


@dataclass(frozen=True, kw_only=True)
class BFloat16(Rounded):
    """Floating numbers in bfloat16 where they are wider, the others as they are: two bytes, 8 bits of precision.

    The range is that of single precision, where `float16` has three more bits and ends at 65,504. Numbers above
    3.4e38 become infinite: a message that holds one is refused.
    """

    name: ClassVar[str] = "bfloat16"
    dtype: ClassVar[torch.dtype] = torch.bfloat16
