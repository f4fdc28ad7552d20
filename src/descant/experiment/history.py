"""What happened in a run, as arrays: collected from the engine, or read back from disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from descant.data import FederatedData
from descant.engine import Account, Collapse, Evaluated, Record, RoundRecord
from descant.metrics import across_clients, share_worse

Whose = Literal["benign", "malicious", "all", "newcomers"]
SUCCESS = "attack_success"  # how often a backdoor works: less is better, and not every client defines it
SPENT = ("gradients", "examples", "scored", "bytes_up", "bytes_down")


@dataclass(frozen=True)
class Federation:
    """Who takes part: names and sizes, and how many training labels of each class every client holds."""

    names: list[str]
    sizes: dict[str, NDArray[np.int64]]  # part -> [N]
    labels: NDArray[np.int64] | None = None  # [N, classes]
    malicious: NDArray[np.bool_] | None = None  # [N] who attacks; None where nobody does
    newcomers: NDArray[np.bool_] | None = None  # [N] who never took part in training; None where everyone does

    def members(self, whose: Whose) -> NDArray[np.bool_]:
        """Which clients [N] a figure is about."""
        nobody = np.zeros(len(self.names), dtype=bool)
        attacks = nobody if self.malicious is None else self.malicious
        late = nobody if self.newcomers is None else self.newcomers
        of: dict[Whose, NDArray[np.bool_]] = {
            "benign": ~attacks & ~late,
            "malicious": attacks,
            "all": ~late,
            "newcomers": late,
        }
        return of[whose]

    @classmethod
    def of(cls, data: FederatedData, malicious: Sequence[int] = (), taking_part: int | None = None) -> Self:
        """The federation of some data, of whose clients the first `taking_part` train, by default all."""
        sizes = {part: data.part(part).sizes.cpu().numpy() for part in ("train", "valid", "test")}
        labels = data.counts().cpu().numpy() if data.classes is not None else None
        attacks = np.isin(np.arange(len(data)), list(malicious)) if len(malicious) else None
        first = len(data) if taking_part is None else taking_part
        late = np.arange(len(data)) >= first if first < len(data) else None
        return cls(list(data.clients), sizes, labels, attacks, late)


@dataclass(frozen=True)
class Stopped:
    """A run that ended before its planned rounds, because a callback asked for it: after which round, and why."""

    round: int
    why: str


@dataclass
class History:
    """The rounds and the evaluations of a run. Columns of an evaluation are like 'test_accuracy', each [N]."""

    metric: str
    higher_is_better: bool
    federation: Federation
    rounds: list[dict[str, Any]] = field(default_factory=list)
    evaluated: dict[str, dict[int, dict[str, NDArray[np.float64]]]] = field(default_factory=dict)
    spent: dict[int, dict[str, NDArray[np.int64]]] = field(default_factory=dict)
    collapse: Collapse | None = None
    stopped: Stopped | None = None
    may_be_undefined: bool = False  # whether NaN in the metric is a client that it is not defined for
    _means: dict[tuple[str, str], dict[int, float]] = field(default_factory=dict, repr=False, compare=False)

    def add(self, record: Record) -> None:
        match record:
            case RoundRecord():
                row = {name: value for name, value in vars(record).items() if name != "figures"}
                self.rounds.append(row | record.figures)
            case Account():
                self.spent[record.round] = {name: getattr(record, name).numpy() for name in SPENT}
            case Evaluated():
                columns = {f"{part}_loss": values.cpu().numpy() for part, values in record.loss.items()}
                columns |= {f"{part}_{self.metric}": v.cpu().numpy() for part, v in record.metric.items()}
                columns |= {f"{part}_{SUCCESS}": v.cpu().numpy() for part, v in record.success.items()}
                self.evaluated.setdefault(record.model, {})[record.round] = columns
                for part in record.metric:
                    self._means.get((record.model, part), {}).pop(record.round, None)
            case Collapse():
                self.collapse = record

    def columns(self, model: str) -> list[str]:
        """What was evaluated of a model, by column."""
        return list(next(iter(self.evaluated.get(model, {}).values()), {}))

    def figure(self, model: str, round: int, column: str, whose: Whose = "benign") -> dict[str, float]:
        """One evaluated column in a few numbers across clients."""
        values = self.evaluated[model][round][column]
        return {name: float(value) for name, value in self._across(column, values, whose).items()}

    def curve(
        self, model: str, column: str, whose: Whose = "benign"
    ) -> tuple[list[int], dict[str, NDArray[np.float64]]]:
        """The evaluated rounds that have a column, and its numbers across clients at each of them."""
        found = {t: columns[column] for t, columns in self.evaluated.get(model, {}).items() if column in columns}
        if not found:
            return [], {}
        return list(found), self._across(column, np.stack(list(found.values())), whose)

    def _across(self, column: str, values: NDArray[np.float64], whose: Whose) -> dict[str, NDArray[np.float64]]:
        part, measure = column.split("_", 1)
        mine = measure == self.metric
        better = self.higher_is_better if mine else False
        members = self.federation.members(whose)
        undefined = measure == SUCCESS or (mine and self.may_be_undefined)
        sizes = self.federation.sizes[part][members]
        return across_clients(values[..., members], sizes, better, undefined=undefined)

    def best_round(self, model: str, part: str, first: int) -> int | None:
        """The round, from `first` on, with the best mean metric on `part`; the earliest where several are.

        Each round's mean is computed by itself. So it has the same bits while the run goes on, at its end, and when
        it is read back, and models that are kept on the way are those of the round that is chosen in the end.
        """
        column, means = f"{part}_{self.metric}", self._means.setdefault((model, part), {})
        counted = self.federation.members("benign") & (self.federation.sizes[part] > 0)
        for t, columns in self.evaluated.get(model, {}).items():
            if t not in means and column in columns:
                values = columns[column][counted]
                values = values[~np.isnan(values)] if self.may_be_undefined else values
                with np.errstate(all="ignore"):  # a run that diverges may overflow
                    means[t] = float(values.mean()) if len(values) else np.nan
        known = {t: mean for t, mean in means.items() if t >= first and not np.isnan(mean)}
        if not known:
            return None
        return (max if self.higher_is_better else min)(sorted(known), key=lambda t: known[t])

    def summary(self, first: int = 0) -> dict[str, Any]:
        """Every figure of the run by name, as in 'personal.test_accuracy.mean@last'.

        A name is MODEL.PART_MEASURE.STATISTIC@ROUND, and its figure is of the benign clients, which are all of them
        where nobody attacks. With attackers, 'all.' and 'malicious.' before a name are the figures of everyone and
        of the attackers; 'newcomers.' are those of clients that never took part in training, who are in no other
        figure. Rounds are chosen by the benign. `MODEL.collapsed_clients@ROUND` counts the benign clients whose
        model gives a loss that is not finite. `personal.worse_than_shared@ROUND` is the share of them whom the
        shared model of that round would serve better, on test data.

        The rounds are `last`; `chosen_on_valid`, the one with the best mean metric on validation data; and
        `best_on_test`, which looks at the test data to choose and is here because papers print it. The latter two
        look at rounds from `first` on. A collapsed run has no last model: its figures `@last` are NaN.
        """
        last, taking_part = max(self.spent, default=0), int(self.federation.members("all").sum())
        figures: dict[str, Any] = {
            "collapsed": self.collapse is not None,
            "collapsed_round": self.collapse.round if self.collapse else None,
            "collapsed_why": self.collapse.why if self.collapse else None,
            "stopped_round": self.stopped.round if self.stopped else None,
            "stopped_why": self.stopped.why if self.stopped else None,
            "rounds": len(self.rounds),
            "clients": taking_part,
            "malicious": int(self.federation.members("malicious").sum()),
            "newcomers": len(self.federation.names) - taking_part,
            "bytes_up": sum(row["bytes_up"] for row in self.rounds),
            "bytes_down": sum(row["bytes_down"] for row in self.rounds),
            "gradients_per_client": sum(row["gradients"] for row in self.rounds) / taking_part,
            "examples_per_client": sum(row["examples"] for row in self.rounds) / taking_part,
            "seconds": sum(row["seconds"] for row in self.rounds),
        }
        whoses: list[Whose] = ["benign"]
        whoses += ["malicious", "all"] if self.federation.malicious is not None else []
        whoses += ["newcomers"] if self.federation.newcomers is not None else []
        for model in self.evaluated:
            chosen = {
                "last": last,
                "chosen_on_valid": self.best_round(model, "valid", first),
                "best_on_test": self.best_round(model, "test", first),
            }
            for rule, round in chosen.items():
                if round is None:
                    continue
                figures[f"{model}.round@{rule}"] = round
                gone = rule == "last" and self.collapse is not None
                lost = float("nan") if gone else self._collapsed_clients(model, round)
                figures[f"{model}.collapsed_clients@{rule}"] = lost
                if model == "personal" and (harmed := self.worse_than_shared(round)) is not None:
                    figures[f"{model}.worse_than_shared@{rule}"] = float("nan") if gone else harmed
                for column in self.evaluated[model][round]:
                    for whose in whoses:
                        of = "" if whose == "benign" else f"{whose}."
                        for statistic, value in self.figure(model, round, column, whose).items():
                            figures[f"{of}{model}.{column}.{statistic}@{rule}"] = float("nan") if gone else value
        return figures

    def worse_than_shared(self, round: int) -> float | None:
        """The share of benign clients whom the shared model of a round serves better than their own, on test data.

        None where the two were not both evaluated then.
        """
        column = f"test_{self.metric}"
        own, common = (self.evaluated.get(m, {}).get(round, {}).get(column) for m in ("personal", "shared"))
        if own is None or common is None:
            return None
        members = self.federation.members("benign")
        return share_worse(own[members], common[members], self.higher_is_better)

    def _collapsed_clients(self, model: str, round: int) -> int:
        """How many benign clients have examples of some part, and a loss on them that is not finite."""
        bad = np.zeros(len(self.federation.names), dtype=bool)
        for column, values in self.evaluated[model][round].items():
            part, measure = column.split("_", 1)
            if measure == "loss":
                bad |= (self.federation.sizes[part] > 0) & ~np.isfinite(values)
        return int((bad & self.federation.members("benign")).sum())
