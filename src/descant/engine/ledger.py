"""The accounts of a run: what every client, and every round, has cost."""

from __future__ import annotations

from time import perf_counter

import torch
from torch import Tensor

from descant.engine.records import Account, RoundRecord


class Ledger:
    """Bytes and gradients per client, cumulative, and the totals of the current round."""

    def __init__(self, clients: int) -> None:
        self.spent = {name: torch.zeros(clients, dtype=torch.int64) for name in _KINDS}
        self.open()

    def open(self) -> None:
        """Start a round."""
        self._round = dict.fromkeys(_KINDS, 0)
        self._figures: dict[str, float] = {}
        self._began = perf_counter()

    def add(self, kind: str, who: Tensor, amount: Tensor | int) -> None:
        """Charge the clients `who` [K] an amount each."""
        amounts = torch.as_tensor(amount).cpu().expand(len(who))
        self.spent[kind].index_add_(0, who.cpu(), amounts)
        self._round[kind] += int(amounts.sum())

    def report(self, figures: dict[str, Tensor]) -> None:
        for name, values in figures.items():
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

    def account(self, round: int) -> Account:
        return Account(round=round, **{kind: amounts.clone() for kind, amounts in self.spent.items()})


_KINDS = ("bytes_up", "bytes_down", "gradients", "examples")
