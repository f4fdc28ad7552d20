"""Codecs that remember more than a residual, and one that spoils what it sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from descant.codecs import CodecError, Native, TopK, UpdateCodec
from descant.context import Context
from descant.mail import Mail
from descant.methods import Tree


@dataclass(frozen=True, kw_only=True)
class DGC(TopK):
    """Deep gradient compression (Lin et al., 2018), Algorithm 2: top-k with momentum correction.

    Momentum is gathered before the residual, and what was sent is cleared from both (factor masking).
    """

    name: ClassVar[str] = "dgc"

    beta: float = 0.9

    def memory(self, like: Tree) -> Tree:
        return {f"{n}.{of}": torch.zeros_like(leaf) for n, leaf in like.items() for of in ("momentum", "residual")}

    def pack(self, ctx: Context, memory: Tree, name: str, update: Tensor) -> tuple[Tree, list[bytes]]:
        momentum = self.beta * memory["momentum"].view_as(update) + update
        wanted = memory["residual"].view_as(update) + momentum
        plain = TopK(share=self.share, feedback=False)
        payloads = plain.pack(ctx, {}, name, wanted)[1]
        sent = plain.unpack(ctx, {}, name, payloads, wanted)[1] != 0
        kept = {"momentum": momentum.masked_fill(sent, 0.0), "residual": wanted.masked_fill(sent, 0.0)}
        return {n: leaf.view(memory[n].shape) for n, leaf in kept.items()}, payloads


@dataclass(frozen=True, kw_only=True)
class LBGM(UpdateCodec):
    """Look-back gradient multiplier (Azam et al., 2022), Algorithm 1.

    Where the update is close to the last one that was sent whole (the sine of the angle between them squared is at
    most `delta`), a multiple of that one is sent: one number. Both ends keep the last whole one.
    """

    name: ClassVar[str] = "lbgm"

    delta: float = 0.2

    def memory(self, like: Tree) -> Tree:
        return {f"{name}.whole": torch.zeros_like(leaf) for name, leaf in like.items()}

    def copies(self, like: Tree) -> Tree:
        return self.memory(like)

    def pack(self, ctx: Context, memory: Tree, name: str, update: Tensor) -> tuple[Tree, list[bytes]]:
        whole, payloads = memory["whole"].view_as(update).clone(), []
        for k, new in enumerate(update):
            along, length = new @ whole[k], whole[k] @ whole[k]
            if length > 0 and along**2 >= (1 - self.delta) * length * (new @ new):
                payloads.append(b"\0" + (along / length).cpu().numpy().tobytes())
            else:
                payloads.append(b"\1" + new.cpu().numpy().tobytes())
                whole[k] = new
        return {"whole": whole.view(memory["whole"].shape)}, payloads

    def unpack(
        self, ctx: Context, copies: Tree, name: str, payloads: list[bytes], like: Tensor
    ) -> tuple[Tree, Tensor]:
        whole, updates = copies["whole"].view_as(like).clone(), torch.zeros_like(like)
        for k, payload in enumerate(payloads):
            kind, numbers = payload[:1], bytearray(payload[1:])
            if len(numbers) != like.dtype.itemsize * {b"\0": 1, b"\1": like.shape[1]}.get(kind, -1):
                raise CodecError(f"a payload of {len(payload)} bytes is neither a multiple nor an update")
            sent = torch.frombuffer(numbers, dtype=like.dtype) if numbers else whole[k]
            if kind == b"\1":
                whole[k] = sent
            updates[k] = whole[k] if kind == b"\1" else sent * whole[k]
        return {"whole": whole.view(copies["whole"].shape)}, updates


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
