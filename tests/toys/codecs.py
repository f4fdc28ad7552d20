"""A codec that spoils what it sends, and one that cannot encode everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from descant.codecs import CodecError, Native, TopK
from descant.context import Context
from descant.mail import Mail
from descant.methods import Tree


@dataclass(frozen=True, kw_only=True)
class Spoiled(TopK):
    """Top-k whose payloads from the clients in `bad` arrive a byte short."""

    name: ClassVar[str] = "spoiled"

    bad: tuple[int, ...] = (1,)

    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        memory, payloads = super().encode(ctx, memory, mail)
        senders = mail.clients.tolist()
        return memory, [p[:-1] if k in self.bad else p for k, p in zip(senders, payloads, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Unable(Native):
    """Numbers as they are with a secret noise, of all clients but those in `bad`, who cannot encode theirs."""

    name: ClassVar[str] = "unable"
    exact: ClassVar[bool] = False

    bad: tuple[int, ...] = (1,)

    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        if set(self.bad) & set(mail.clients.tolist()):
            raise CodecError("a message that cannot be encoded")
        noise = {name: ctx.private.normal(name, tuple(leaf.shape[1:])) for name, leaf in mail.items()}
        return super().encode(ctx, memory, mail.with_leaves({n: leaf + noise[n] for n, leaf in mail.items()}))
