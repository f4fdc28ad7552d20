"""Clients that come later: they never take part in training, and are served by what the others have learned.

A newcomer hears the broadcast of the moment when it arrives. It then works for a few rounds on its own training
data, as the method's clients do, and sends nothing: the federation is the one that it would be without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from descant.context import Context
from descant.data import FederatedData
from descant.draws import uniform
from descant.engine.clients import Clients
from descant.engine.ledger import Ledger
from descant.engine.links import Broadcast
from descant.engine.returned import message_and_state, models_of
from descant.engine.server import Server
from descant.engine.view import View
from descant.errors import NotTogetherError, SettingError, unknown
from descant.methods import Method, PerClient
from descant.trees import Tree


class Newcomers(Clients):
    """Clients that arrive whenever models are evaluated, each time anew, and take `plan.newcomer_rounds` rounds.

    Nothing of them is kept but what they have spent since their arrival.
    """

    def arrive(self, server: Server) -> None:
        """Begin an evaluation."""
        self.ledger = Ledger(len(self.data))
        self._server = server
        self._adapted: dict[int, tuple[Tree, View]] = {}  # by the first of those who arrived, for several models

    def personal(self, ctx: Context, who: Tensor, down: Broadcast) -> tuple[Tensor, Tensor]:
        """The models [K, d] that newcomers deploy after their first rounds, with running statistics [K, b]."""
        state, local = self._adapt(ctx, who, down)
        seen, _, now = self._open(ctx, who, down, self._deployed)
        now.buffers, now.deploys = local.buffers, True
        given = self._watch("personal", self.method.personal, seen, state, now)
        x = models_of(self.method, "personal", given, (len(who), self.task.dim))
        self._note_deploying(who, now)
        return x, now.statistics("personal")

    def statistics(self, ctx: Context, who: Tensor, down: Broadcast) -> Tensor:
        """The newcomers' own running statistics [K, b] of the shared model, after their first rounds."""
        return self._adapt(ctx, who, down)[1].statistics("shared")

    def _adapt(self, ctx: Context, who: Tensor, down: Broadcast) -> tuple[Tree, View]:
        """The state of newcomers after their first rounds, and their view of the last."""
        if (first := int(who[0])) in self._adapted:
            return self._adapted[first]
        seen, state, local = self._open(ctx, who, down, self._deployed)
        fetched = self._watch("fetches", self.method.fetches, seen, state, local)
        self.ledger.add("bytes_down", self.data.places(who), self.travelled(who, down, seen, fetched))
        for later in range(self.plan.newcomer_rounds):
            now = ctx.at(max(1, ctx.round) + later)
            silent = self._server.silent(now) in (True, "down")
            local = View(self._deployed, now.of_parties(who), who, local.buffers)
            returned = self._watch("client", self.method.client, {} if silent else seen, state, local)
            _, state = message_and_state(self.method, returned, state, len(who))
            self._bill_work(who, local)
        self._adapted[first] = state, local
        return state, local


def check(method: Method, server: Server, ctx: Context) -> None:
    """Refuse newcomers where a client cannot be served before the server knows it."""
    refuse(method)
    if any(isinstance(leaf, PerClient) for leaf in server.broadcast(ctx).values()):
        why = "its server sends every client something of its own"
        raise NotTogetherError("newcomers", f"not with the method '{method.name}': {why}")


def refuse(method: Method) -> None:
    """Refuse newcomers where the method says that it cannot serve them."""
    if (why := method.refuses.get("newcomers")) is not None:
        raise NotTogetherError("newcomers", f"not with the method '{method.name}': {why}")


class Parties(NamedTuple):
    """Who takes part, numbered from 0, and who comes later, numbered after them."""

    data: FederatedData  # of those who take part
    newcomers: FederatedData | None
    everyone: FederatedData  # both, the newcomers last
    order: list[int]  # the numbers that everyone had


def apart(data: FederatedData, newcomers: int | float | Sequence[int | str] | None, seed: int) -> Parties:
    """Those who take part, and those who come later: so many or a share of all, or these, by number or by name.

    A number or a share is drawn by the seed, and a larger one of the same seed contains the smaller.
    """
    late = _numbers(data, newcomers or (), seed)
    if not late:
        return Parties(data, None, data, list(range(len(data))))
    if len(late) >= len(data):
        raise SettingError(f"newcomers = {newcomers!r}: nobody of the {len(data)} clients is left to take part")
    order = [*(k for k in range(len(data)) if k not in late), *sorted(late)]
    whole, first = replace(data.only(order), numbers=None), len(data) - len(late)
    taking_part = replace(whole.only(range(first)), numbers=None)
    return Parties(taking_part, whole.only(range(first, len(data))), whole, order)


def _numbers(data: FederatedData, newcomers: int | float | Sequence[int | str], seed: int) -> set[int]:
    if isinstance(newcomers, int | float):
        number = round(newcomers * len(data)) if isinstance(newcomers, float) else newcomers
        keys = uniform(seed, "newcomers", torch.arange(len(data)))
        return set(keys.argsort()[:number].tolist())
    found: dict[int, int | str] = {}
    for client in newcomers:
        if isinstance(client, str):
            if client not in data.clients:
                raise SettingError(f"newcomers: {unknown('client', client, data.clients)}")
            number = data.clients.index(client)
        elif 0 <= client < len(data):
            number = client
        else:
            raise SettingError(f"newcomers: there is no client {client}: numbers go from 0 to {len(data) - 1}")
        if (other := found.setdefault(number, client)) != client:
            raise SettingError(f"newcomers: {other!r} and {client!r} are the same client: name it once")
    return set(found)
