"""What travels between the server and the clients, and the server itself."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from descant.aggregators import Aggregator
from descant.codecs import Codec
from descant.methods import Messages, Method, PerClient, Tree
from descant.task import Layout, Task

STATISTICS = "statistics"  # the leaf that carries running statistics (BatchNorm) beside a method's own leaves


class Server:
    """The server's state, and the running statistics of the shared model, which methods need not know of."""

    def __init__(self, method: Method, task: Task, aggregator: Aggregator, x0: Tensor, clients: int) -> None:
        self.method, self.aggregator = method, aggregator
        self.state = method.server_start(x0, clients, task.layout)
        self.statistics = task.buffer_start().to(x0.device)  # [b]
        shares = method.has_shared and task.buffers == "shared" and len(self.statistics) > 0
        self.collects = shares  # running statistics, from its clients
        self.spreads = shares and "shared" in method.trains

    def broadcast(self) -> dict[str, Tensor | PerClient]:
        down = self.method.broadcast(self.state)
        return down | {STATISTICS: self.statistics} if self.spreads else down

    def message(self, leaves: Tree, buffers: Mapping[str, Tensor]) -> Tree:
        """A method's message, with the running statistics that go along."""
        if not self.collects:
            return leaves
        return leaves | {STATISTICS: buffers.get("shared", buffers.get("personal", self.statistics))}

    def receive(self, messages: Messages) -> dict[str, Tensor]:
        """One step of the method's server; return the figures that it and the aggregator report.

        The aggregator that combines the method's leaves combines the statistics too.
        """
        leaves = dict(messages)
        statistics = {STATISTICS: leaves.pop(STATISTICS)} if self.collects else {}
        received = Messages(leaves, messages.clients, messages.layout)

        def aggregate(leaves: Mapping[str, Tensor], weights: Tensor | None = None) -> Tree:
            if statistics and any(len(leaf) != len(messages.clients) for leaf in leaves.values()):
                # Rows that the server holds of all clients: who is chosen among them is not one of the senders.
                self.statistics = self.aggregator(statistics, record=received.record)[STATISTICS]
                return self.aggregator(leaves, weights, received.record)
            combined = self.aggregator({**leaves, **statistics}, weights, received.record)
            if statistics:
                self.statistics = combined.pop(STATISTICS)
            return combined

        before = self.statistics
        state = self.method.server(self.state, received, aggregate)
        if statistics and self.statistics is before:  # the method combined its leaves by itself
            aggregate({})
        # As it comes back from a file, too: products of tensors with other strides may differ in the last bit.
        self.state = {name: leaf.contiguous() for name, leaf in state.items()}
        return received.figures


def seen_by(who: Tensor, down: Mapping[str, Tensor | PerClient]) -> Tree:
    """A broadcast as the clients `who` [K] see it: every leaf [K, ...]."""
    return {
        name: leaf.rows[who] if isinstance(leaf, PerClient) else leaf.expand(len(who), *leaf.shape)
        for name, leaf in down.items()
    }


def size_of_one(codec: Codec, leaves: Tree) -> int:
    """The bytes of one client's share of leaves [K, ...]."""
    return codec.size({name: leaf[0] for name, leaf in leaves.items()})


class Inbox:
    """The messages of a round, as they come in."""

    def __init__(self, device: torch.device, layout: Layout) -> None:
        self.layout = layout
        self._leaves: dict[str, list[Tensor]] = {}
        self._clients: list[Tensor] = [torch.empty(0, dtype=torch.int64, device=device)]

    def put(self, leaves: Tree, clients: Tensor) -> None:
        for name, leaf in leaves.items():
            self._leaves.setdefault(name, []).append(leaf)
        self._clients.append(clients)

    def open(self, keep_nonfinite: bool) -> tuple[Messages, int]:
        """All messages, and how many were refused because a number in them was not finite."""
        leaves = {name: torch.cat(rows) for name, rows in self._leaves.items()}
        clients = torch.cat(self._clients)
        usable = torch.ones_like(clients, dtype=torch.bool)
        if not keep_nonfinite:
            for leaf in leaves.values():
                usable &= rows_finite(leaf)
        refused = int((~usable).sum())
        kept = {name: leaf[usable] for name, leaf in leaves.items()}
        return Messages(kept, clients[usable], self.layout), refused


def rows_finite(leaf: Tensor) -> Tensor:
    """Which rows [K] of a leaf [K, ...] hold finite numbers only."""
    return leaf.isfinite().unsqueeze(-1).flatten(1).all(1)


def not_finite(tree: Tree) -> str | None:
    """The name of a leaf that holds a number that is not finite, if there is one."""
    return next((name for name, leaf in tree.items() if not leaf.isfinite().all()), None)
