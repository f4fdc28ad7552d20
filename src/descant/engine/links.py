"""The way of a message: what it refers to, its bytes up, and the broadcast's bytes down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from descant.codecs import Codec
from descant.context import Context
from descant.errors import SettingError
from descant.mail import LAST, Form, Mail
from descant.methods import Method, PerClient
from descant.mirrors import spread
from descant.trees import Tree

if TYPE_CHECKING:
    from descant.engine.plan import Plan

Broadcast = Mapping[str, Tensor | PerClient]
# What a codec may raise because of a message. A mistake in its own code (a TypeError, say) is no message's fault.
REFUSED = (ValueError, ArithmeticError, LookupError, RuntimeError)


@dataclass(frozen=True, eq=False)
class Parcels:
    """What passes from clients to the server: bytes, with who sent them and when they started."""

    payloads: list[bytes]
    clients: Tensor  # [S]
    started: Tensor  # [S]
    form: Form  # names, shapes and types, which both ends know

    def only(self, which: list[int]) -> Parcels:
        at = torch.tensor(which, dtype=torch.int64, device=self.clients.device)
        return Parcels([self.payloads[i] for i in which], self.clients[at], self.started[at], self.form)


def seen_by(who: Tensor, down: Broadcast) -> Tree:
    """A broadcast as the clients `who` [K] see it: every leaf [K, ...]."""
    return {
        name: leaf.rows[who] if isinstance(leaf, PerClient) else _their_own(spread(leaf, len(who)))
        for name, leaf in down.items()
    }


def _their_own(rows: Tensor) -> Tensor:
    """Rows [K, ...] apart from the server's leaf: those of one client would lie in its memory."""
    return rows.clone() if len(rows) == 1 and rows.is_floating_point() else rows


def through(codec: Codec, ctx: Context, down: Broadcast) -> dict[str, Tensor | PerClient]:
    """A broadcast as it arrives: encoded and decoded."""
    if codec.exact:
        return dict(down)
    arrived: dict[str, Tensor | PerClient] = {}
    for name, leaf in down.items():
        rows = leaf.rows if isinstance(leaf, PerClient) else leaf[None]
        mail = Mail.of({name: rows}, torch.arange(len(rows), device=rows.device), ctx)
        _, payloads = codec.encode(ctx, {}, mail)
        decoded = codec.decode(ctx, {}, payloads, replace(mail, leaves=mail.form.blank(len(rows), rows.device)))[1]
        arrived[name] = PerClient(decoded[name]) if isinstance(leaf, PerClient) else decoded[name][0]
    return arrived


def references(method: Method, mail: Mail, down: Broadcast, last: Tree) -> Tree:
    """What the leaves of some mail moved away from; `last` [S, ...] is what the senders sent last, if kept."""
    found: Tree = {}
    for name, sent in method.sends.items():
        if name not in mail:
            continue
        if sent.what == "difference":
            found[name] = torch.zeros_like(mail[name][:1])
        elif sent.of != LAST and sent.of in down:
            leaf = down[sent.of]
            found[name] = leaf.rows[mail.clients] if isinstance(leaf, PerClient) else leaf[None]
        elif name in last:
            found[name] = last[name]
    return found


def as_heard(method: Method, mail: Mail, down: Broadcast) -> Mail:
    """Some mail with the broadcast's points beside its leaves, for those who forge where messages stand."""
    heard: Tree = {}
    for name, sent in method.sends.items():
        beside = sent.beside if sent.of == LAST else sent.of
        if name in mail and beside in down:
            leaf = down[beside]
            heard[name] = leaf.rows[mail.clients] if isinstance(leaf, PerClient) else leaf[None]
    differences = tuple(name for name in heard if method.sends[name].what == "difference")
    return replace(mail, heard=heard, differences=differences)


def sent_like(method: Method, ctx: Context, down: Broadcast) -> Tree:
    """The shapes of the leaves that say what they are, without running the method: one row [1, ...] each, zero."""
    first = method.first_sent(ctx)
    rows: Tree = {}
    for name, sent in method.sends.items():
        if sent.of == LAST and name not in first:
            raise SettingError(
                f"`sends` of {type(method).__name__} says that '{name}' moved away from what a client sent last, "
                f"and the hook first_sent has no '{name}': let it return what that is before the first message"
            )
        of = first[name] if sent.of == LAST else down[sent.of]
        rows[name] = torch.zeros_like(of.rows[:1] if isinstance(of, PerClient) else of[None])
    return rows


def encode(codec: Codec, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, Parcels, int]:
    """The clients' new memory, the parcels of the messages that could be encoded, and how many could not."""
    try:
        memory, payloads = codec.encode(ctx, memory, mail)
        return memory, Parcels(payloads, mail.clients, mail.started, mail.form), 0
    except torch.OutOfMemoryError:
        raise
    except REFUSED:
        if len(mail.clients) == 1:
            none = torch.zeros(1, dtype=torch.bool, device=mail.clients.device)
            return _rows(memory, none), Parcels([], mail.clients[none], mail.started[none], mail.form), 1
    lots = [encode(codec, _of(ctx, one), _rows(memory, one), mail.only(one)) for one in _singles(mail.clients)]
    return (
        _joined([lot[0] for lot in lots]),
        Parcels(
            [payload for lot in lots for payload in lot[1].payloads],
            torch.cat([lot[1].clients for lot in lots]),
            torch.cat([lot[1].started for lot in lots]),
            mail.form,
        ),
        sum(lot[2] for lot in lots),
    )


def decode(codec: Codec, ctx: Context, copies: Tree, parcels: Parcels, blank: Mail) -> tuple[Tree, Mail, int]:
    """The server's new copies, the messages that could be decoded, and how many could not."""
    try:
        copies, mail = codec.decode(ctx, copies, parcels.payloads, blank)
        return copies, mail, 0
    except torch.OutOfMemoryError:
        raise
    except REFUSED:
        if len(blank.clients) == 1:
            none = torch.zeros(1, dtype=torch.bool, device=blank.clients.device)
            return _rows(copies, none), blank.only(none), 1
    lots = [
        decode(codec, _of(ctx, one), _rows(copies, one), parcels.only(one.tolist()), blank.only(one))
        for one in _singles(blank.clients)
    ]
    mail = Mail.join([lot[1] for lot in lots])
    kept = torch.isin(blank.clients, mail.clients)
    return (
        _joined([lot[0] for lot in lots]),
        replace(mail, references=blank.only(kept).references),
        sum(lot[2] for lot in lots),
    )


def _of(ctx: Context, which: Tensor) -> Context:
    """The context of some of the K clients whose context it is, or of the server."""
    return replace(ctx, party=ctx.party[which]) if isinstance(ctx.party, Tensor) else ctx


def _singles(clients: Tensor) -> list[Tensor]:
    return list(torch.split(torch.arange(len(clients), device=clients.device), 1))


def _rows(tree: Tree, which: Tensor) -> Tree:
    return {name: leaf[which] for name, leaf in tree.items()}


def _joined(trees: list[Tree]) -> Tree:
    return {name: torch.cat([tree[name] for tree in trees]) for name in trees[0]}


def keeps_sent(method: Method, plan: Plan) -> bool:
    """Whether both ends keep what a client sent last: where messages refer to it, and somebody asks for updates."""
    asked = plan.codec.updates or plan.aggregator.updates or bool(plan.attacks)
    return asked and any(sent.of == LAST for sent in method.sends.values())
