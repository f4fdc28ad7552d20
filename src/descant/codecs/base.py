"""The contract of a codec: how the messages of clients become bytes, and messages again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from descant.codecs.raw import check_lengths, flat, length_of, pieces, raw, rows_of
from descant.context import Context
from descant.fields import Checked
from descant.mail import Form, Mail
from descant.trees import Tree, under, within


@dataclass(frozen=True, kw_only=True)
class Codec(Checked, ABC):
    """Messages as bytes on the wire, in two halves: `encode` runs where the clients are, `decode` on the server.

    Neither sees the other's state, and only bytes pass between them; names, shapes and types are known to both
    ends. What a client remembers between rounds is its `memory`, what the server remembers of a client its
    `copies`; the engine keeps both, and only once a message has arrived: a lost one leaves both ends as they were.
    What cannot be encoded or decoded raises `CodecError`, and the engine refuses that message alone.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = False  # decoding gives the same bits, and nothing is remembered
    updates: ClassVar[bool] = False  # it acts on leaves that say what they are (`descant.mail.Sent`)

    def memory(self, like: Tree) -> Tree:
        """What K clients remember before their first message, for updates like these [K, ...]."""
        return {}

    def copies(self, like: Tree) -> Tree:
        """What the server remembers of K clients before their first message."""
        return {}

    @abstractmethod
    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        """The clients' new memory [S, ...], and a payload for each message."""

    @abstractmethod
    def decode(self, ctx: Context, copies: Tree, payloads: list[bytes], blank: Mail) -> tuple[Tree, Mail]:
        """The server's new copies [S, ...], and the mail.

        `blank` is mail of the form that is expected, from these senders, with the references that the server holds.
        """

    def unsettled(self, n: int) -> str | None:
        """Why readings of n numbers that stand still, each sent as the change since the last one, need not settle.

        None where the error of a reading shrinks, does so on the average, or stays within a bound that was given.
        """
        return None

    def size(self, form: Form) -> int | None:
        """The length of every payload of a form; None where it depends on the message."""
        return None


def blocks(n: int, size: int = 1 << 16) -> list[slice]:
    """n entries, a few at a time: what is worked on then stays in the processor's cache."""
    return [slice(start, min(n, start + size)) for start in range(0, n, size)]


class Leaf(NamedTuple):
    """Which leaf of whose messages it is: what both ends know of it."""

    ctx: Context
    name: str
    who: Tensor  # [S] the senders' numbers
    since_last: bool = False  # the update is from what the server read last: it holds all that was left out before

    def bits(self, name: str, entries: slice) -> Tensor:
        """64 random bits for each entry of a block, other ones for each sender [S, .]: both ends draw the same."""
        return self.ctx.each(self.who).bits(self._at(name, entries), (entries.stop - entries.start,))

    def uniform(self, name: str, entries: slice) -> Tensor:
        """Draws from (0, 1) in float64 for each entry of a block [S, .], of 32 random bits each: right to 2^-33."""
        size = entries.stop - entries.start
        halves = slice(entries.start, entries.start + -(-size // 2))
        drawn = self.bits(name, halves).view(torch.int32)[:, :size]
        return (drawn.double() + (2.0**31 + 0.5)) * 2.0**-32

    def common_bits(self, name: str, entries: slice) -> Tensor:
        """As `bits`, but the same for all senders [.]."""
        return self.ctx.bits(self._at(name, entries), (entries.stop - entries.start,))

    def _at(self, name: str, entries: slice) -> str:
        return f"{name} {self.name} {entries.start}"

    def only(self, which: slice) -> Leaf:
        """The same leaf of some of the senders."""
        return self._replace(who=self.who[which])


@dataclass(frozen=True, kw_only=True)
class UpdateCodec(Codec):
    """A codec of updates: leaves that are differences, or positions less their reference.

    Subclasses `pack` and `unpack` one leaf. Leaves of another kind (a number of examples, a loss) travel as they
    are.
    """

    updates: ClassVar[bool] = True

    @abstractmethod
    def pack(self, leaf: Leaf, memory: Tree, update: Tensor) -> tuple[Tree, list[bytes]]:
        """The clients' new memory of a leaf, and a payload for each of its flat updates [S, n]."""

    @abstractmethod
    def unpack(self, leaf: Leaf, copies: Tree, payloads: list[bytes], like: Tensor) -> tuple[Tree, Tensor]:
        """The server's new copies, and the flat updates [S, n] of a leaf; `like` [S, n] has their type."""

    def encode(self, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        plain, updates = _plain(mail), mail.updates()
        payloads = raw(plain, len(mail.clients))
        for name, update in updates.items():
            leaf = Leaf(ctx, name, mail.clients, name in mail.since_last)
            new, packed = self.pack(leaf, within(name, memory), flat(update))
            memory = memory | under(name, new)
            last = name == next(reversed(updates))
            payloads = [
                before + (b"" if last else len(piece).to_bytes(4, "little")) + piece
                for before, piece in zip(payloads, packed, strict=True)
            ]
        return memory, payloads

    def decode(self, ctx: Context, copies: Tree, payloads: list[bytes], blank: Mail) -> tuple[Tree, Mail]:
        plain = _plain(blank)
        start = length_of(Form.of(plain))
        leaves = rows_of([payload[:start] for payload in payloads], Form.of(plain), blank.clients.device)
        rest = [payload[start:] for payload in payloads]
        updates = {}
        for name in blank.references:
            last = name == next(reversed(blank.references))
            packed, rest = (rest, []) if last else pieces(rest)
            leaf = Leaf(ctx, name, blank.clients, name in blank.since_last)
            new, update = self.unpack(leaf, within(name, copies), packed, flat(blank[name]))
            copies = copies | under(name, new)
            updates[name] = update.view(blank[name].shape)
        if not updates:
            check_lengths(rest, 0)
        return copies, replace(blank, leaves=blank.leaves | leaves).moved(updates)


def _plain(mail: Mail) -> Mapping[str, Tensor]:
    return {name: leaf for name, leaf in mail.items() if name not in mail.references}
