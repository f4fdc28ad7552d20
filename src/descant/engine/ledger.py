"""The accounts of a run: what every client, and every round, has cost."""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from descant.engine.records import TAKEN, RoundRecord
from descant.mirrors import host
from descant.state.leaves import Leaves, Shapes

KINDS = ("bytes_up", "bytes_down", "gradients", "examples", "scored")
ACCOUNTS: Shapes = {"spent": ((len(KINDS),), torch.int64)}  # what a store on disk keeps for the ledger


class Ledger:
    """Bytes and gradients per client, cumulative, and the totals of the current round.

    `kept` holds the amounts [N, kinds] on disk, if anything does: they come from there, and go there by `settle`.
    """

    def __init__(self, clients: int, kept: Leaves | None = None) -> None:
        self._kept = kept
        self._table = torch.zeros(clients, len(KINDS), dtype=torch.int64)
        if kept is not None:
            self._table.copy_(kept["spent"])
        self.spent = {kind: self._table[:, i] for i, kind in enumerate(KINDS)}  # [N] each
        self.open()

    def open(self) -> None:
        """Start a round."""
        self._round = dict.fromkeys(KINDS, 0)
        self._figures: dict[str, float] = {}
        self.late = 0  # messages of stragglers
        self._began = perf_counter()

    def add(self, kind: str, who: Tensor, amount: Tensor | int) -> None:
        """Charge the clients `who` [K] an amount each."""
        amounts = host(torch.as_tensor(amount)).expand(len(who))
        self.spent[kind].index_add_(0, host(who), amounts)
        self._round[kind] += int(amounts.sum())

    def report(self, figures: dict[str, Tensor]) -> None:
        for name, values in figures.items():
            if name in TAKEN:
                raise ValueError(f"a figure cannot be called '{name}': that is a column of every round's row")
            self._figures[name] = self._figures.get(name, 0.0) + float(values.sum())

    def close(self, round: int, cohort: int, received: int, lost: int, refused: int) -> RoundRecord:
        return RoundRecord(
            round=round,
            cohort=cohort,
            received=received,
            lost=lost,
            refused=refused,
            seconds=perf_counter() - self._began,
            figures=self._figures,
            **self._round,
        )

    def of(self, who: Tensor) -> Tensor:
        """What the clients `who` [K] have spent so far [K, kinds]."""
        return self._table[host(who)]

    def restore(self, who: Tensor, spent: Tensor) -> None:
        """Let the clients `who` [K] have spent so much [K, kinds], as a commit says."""
        self._table[who] = spent
        self.settle(who)

    def settle(self, who: Tensor) -> None:
        """What the clients `who` have spent is durable: it may go to the disk."""
        if self._kept is not None:
            self._kept.write("spent", host(who), self.of(who))
