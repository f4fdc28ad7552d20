"""Numbers as they are, or in half precision."""

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
    """Every leaf's numbers, one leaf after the other, as this machine lays them out: no header, no loss."""

    name: ClassVar[str] = "native"
    exact: ClassVar[bool] = True

    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        return memory, raw(mail, len(mail.clients))

    def decode(self, ctx: Context, copies: Tree, payloads: list[bytes], blank: Mail) -> tuple[Tree, Mail]:
        return copies, replace(blank, leaves=rows_of(payloads, blank.form, blank.clients.device))

    def size(self, form: Form) -> int:
        return length_of(form)


@dataclass(frozen=True, kw_only=True)
class Float16(Codec):
    """Floating numbers in half precision (IEEE binary16), the others as they are.

    Numbers above 65,504 become infinite: a message that holds one is refused.
    """

    name: ClassVar[str] = "float16"

    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        halved = {name: leaf.half() if leaf.is_floating_point() else leaf for name, leaf in mail.items()}
        return memory, raw(halved, len(mail.clients))

    def decode(self, ctx: Context, copies: Tree, payloads: list[bytes], blank: Mail) -> tuple[Tree, Mail]:
        leaves = rows_of(payloads, _halved(blank.form), blank.clients.device)
        return copies, replace(blank, leaves={name: leaf.to(blank[name].dtype) for name, leaf in leaves.items()})

    def size(self, form: Form) -> int:
        return length_of(_halved(form))


def _halved(form: Form) -> Form:
    return form._replace(dtypes=tuple(torch.half if kind.is_floating_point else kind for kind in form.dtypes))
