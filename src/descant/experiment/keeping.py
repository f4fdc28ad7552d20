"""Which models are kept while a run goes on: those of the best round so far on validation data, and of the last.

They are the very models that were evaluated; of a global model that a downlink changes it is the server's own. The
best round is found as `chosen_on_valid` is (`History.best_round`), so that in the end the models are those whose
figures the tables show. In a run's folder they lie in models/KIND-ROUND.safetensors. Those of a better round are
written at the next commit, before it, and the old ones are removed after it: a commit always finds the models that
it names.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from descant.engine import Evaluated, Record, Simulation
from descant.engine.evaluation import MODELS as MODEL_KINDS
from descant.engine.evaluation import Model, models_of, takes_shared
from descant.experiment.folder import MODELS, models_in
from descant.experiment.history import History
from descant.files import make_folder, temporary_of
from descant.sealed import damaged
from descant.state.modelrows import FiledRows, Frame, ModelRows, Rows, SpooledRows

Keep = Literal["chosen", "last", "none"]
Round = Literal["chosen", "last"]
_BLOCK = 1024  # clients whose models are put together in one go
_SHARE = 16  # of the machine's memory that the models of a round may take, or they go into a file


@dataclass(frozen=True)
class Kept:
    """The models of one kind after a round."""

    round: int
    rows: Rows


class Keeper:
    """Is shown every model that is evaluated, and keeps those of the best round so far and of the last.

    With a folder they go there at commits. `spools`: they go into files at once, and memory holds none of them.
    """

    def __init__(
        self, keep: Keep, simulation: Simulation, history: History, folder: Path | None, *, spools: bool
    ) -> None:
        plan, method = simulation.plan, simulation.method
        self._simulation, self._history, self._folder, self._spools = simulation, history, folder, spools
        self._keeps = keep != "none"
        valid = history.federation.sizes["valid"][history.federation.members("benign")]
        self._chooses = keep == "chosen" and "valid" in plan.evaluation.parts and bool((valid > 0).any())
        # What clients deploy is the shared model: it is evaluated once, and chosen with theirs.
        self._follows = method.has_shared and not method.personalizes and "personal" in plan.evaluation.models
        self._frames = frames(simulation)
        self._seen: dict[str, _Seen] = {}  # of the last round that was evaluated
        self._evaluated: dict[str, Evaluated] = {}
        self._written: dict[tuple[str, int], str] = {}  # kind and round -> the checksum of its file
        self._spare: dict[str, ModelRows] = {}  # places in memory that nobody needs, for the next round
        self._warned = False
        self.kept: dict[Round, dict[str, Kept]] = {"chosen": {}, "last": {}}
        if self._keeps:
            simulation.sees = self.see

    @property
    def _last(self) -> int:
        """The last round: as planned, or as whoever stopped the run said."""
        return self._simulation.last

    def see(self, round: int, model: str, who: Tensor, x: Tensor, statistics: Tensor) -> None:
        """Take the models of the clients `who` [K], neighbours, before it is known how good they are."""
        if not self._chooses and round != self._last:
            return
        start = int(who[0])
        if start == 0:
            self._open(model, round)
        if model in self._seen:
            self._seen[model].rows.put(start, x, statistics)

    def add(self, record: Record) -> None:
        """Keep the models that were just evaluated, if their round is the best so far, or the last.

        The history has the record already.
        """
        if not isinstance(record, Evaluated):
            return
        self._evaluated[record.model] = record
        best = self._chooses and self._history.best_round(record.model, "valid", 0) == record.round
        last = record.round == self._last
        if record.model == "selected" and (best or last):
            self._select(record.round)
        for kind in (record.model, "shared") if self._follows and record.model == "personal" else (record.model,):
            if best:
                self._keep("chosen", kind, record.round)
            if last:
                self._keep("last", kind, record.round)

    def commit(self) -> dict[str, Any]:
        """Make the models of the best round durable; return what a commit says of them."""
        assert self._folder is not None
        found: dict[str, Any] = {}
        for kind, kept in self.kept["chosen"].items():
            key, name = (kind, kept.round), name_of(kind, kept.round)
            if key not in self._written:
                make_folder(self._folder / MODELS)
                self._written[key] = self._write(kind, kept)
            found[kind] = {"round": kept.round, "file": name, "checksum": self._written[key]}
        return found

    def settle(self) -> None:
        """What was written last is durable: the models of other rounds can go."""
        if self._folder is None:
            return
        needed = {name_of(kind, kept.round) for of in self.kept.values() for kind, kept in of.items()}
        for file in models_in(self._folder):  # and no other file: somebody may save models of their own there
            if f"{MODELS}/{file.name}" not in needed:
                os.unlink(file)
        self._written = {key: checksum for key, checksum in self._written.items() if name_of(*key) in needed}

    def restore(self, committed: Any) -> None:
        """Go back to what a commit said; the history is what it was then."""
        assert self._folder is not None
        self.kept["chosen"] = kept_in(self._folder, committed)
        for kind, kept in self.kept["chosen"].items():
            assert isinstance(kept.rows, FiledRows)
            kept.rows.check()
            self._written[kind, kept.round] = committed[kind]["checksum"]
        for kind in self._history.evaluated if self._chooses else ():
            best, found = self._history.best_round(kind, "valid", 0), self.kept["chosen"].get(kind)
            if best is not None and (found is None or found.round != best):
                raise damaged(self._folder / MODELS, f"lacks the {kind} models of round {best}")
        self.settle()

    def finish(self) -> None:
        """The run is over: files that were kept get their names, and what was not kept goes."""
        if self._keeps and self._history.stopped is not None and not self.kept["last"]:
            self._look_again()
        for kind in list(self._seen):
            self._release(kind)
        self._spare.clear()
        for of in self.kept.values():
            for kind, kept in list(of.items()):
                if isinstance(kept.rows, SpooledRows):
                    self._write(kind, kept)

    def _look_again(self) -> None:
        """Keep the models of the round after which the run was stopped: it was not known to be the last."""
        simulation = self._simulation
        ctx = simulation.context(simulation.round)
        kinds: tuple[Model, ...] = ("personal", "shared")
        for kind in kinds:
            if kind not in self._frames or (kind == "shared" and not simulation.method.has_shared):
                continue
            if self._is_chosen(kind):
                continue
            who, at_once = simulation.clients.here, simulation.evaluated_at_once
            for some in models_of(ctx, simulation.clients, simulation.server, kind, who, at_once):
                self.see(simulation.round, kind, *some)
            self._keep("last", kind, simulation.round)
        asked = "selected" in self._frames and {"personal", "shared"} <= set(self._evaluated)
        if asked and not self._is_chosen("selected"):
            self._select(simulation.round)
            self._keep("last", "selected", simulation.round)

    def _is_chosen(self, kind: str) -> bool:
        """Whether the last models of a kind are those of the best round, which have one place for both."""
        chosen = self.kept["chosen"].get(kind)
        if chosen is None or chosen.round != self._simulation.round:
            return False
        self.kept["last"][kind] = chosen
        return True

    def _write(self, kind: str, kept: Kept) -> str:
        assert self._folder is not None
        path = self._folder / name_of(kind, kept.round)
        checksum = kept.rows.write(path, about(kind, kept.round))
        if isinstance(kept.rows, SpooledRows):
            for of in self.kept.values():
                if of.get(kind) == kept:
                    of[kind] = Kept(kept.round, FiledRows(path, checksum))
        return checksum

    def _keep(self, which: Round, kind: str, round: int) -> None:
        seen, old = self._seen.get(kind), self.kept[which].get(kind)
        if seen is None or seen.round != round:
            return
        self.kept[which][kind] = Kept(round, seen.rows)
        if old is not None and isinstance(old.rows, SpooledRows):
            old.rows.close()
        if old is not None and isinstance(old.rows, ModelRows):
            self._spare[kind] = old.rows

    def _open(self, kind: str, round: int) -> None:
        """Make a place for the models of a round."""
        frame = self._frames[kind]
        self._release(kind)
        large = frame.bytes > _memory() // _SHARE
        if not self._spools and not large:
            self._seen[kind] = _Seen(round, self._spare.pop(kind) if kind in self._spare else ModelRows(frame))
        elif self._folder is not None:
            make_folder(self._folder / MODELS)
            temporary = temporary_of(self._folder / name_of(kind, round))
            self._seen[kind] = _Seen(round, SpooledRows(frame, temporary, about(kind, round)))
        elif not self._warned:
            self._warned = True
            warnings.warn(
                f"the {kind} models of a round take {frame.bytes / 2**30:.1f} GiB, too much for memory: they are "
                "not kept; give the run a folder (out=...), or say keep_models='none'",
                stacklevel=2,
            )

    def _release(self, kind: str) -> None:
        """Forget what was seen of a kind, and was not kept."""
        seen = self._seen.pop(kind, None)
        if seen is None or any(of[kind].rows is seen.rows for of in self.kept.values() if kind in of):
            return
        if isinstance(seen.rows, ModelRows):
            self._spare[kind] = seen.rows
        else:
            seen.rows.close()

    def _select(self, round: int) -> None:
        """Put together what each client selected, of the two models that were just evaluated."""
        if not {"personal", "shared"} <= set(self._seen):
            return
        higher = self._history.higher_is_better
        takes = takes_shared(self._evaluated["personal"], self._evaluated["shared"], higher).cpu()[:, None]
        takes = takes[self._history.federation.members("all")]  # of newcomers nothing is kept
        self._open("selected", round)
        for start in range(0, len(takes), _BLOCK) if "selected" in self._seen else ():
            stop = min(start + _BLOCK, len(takes))
            both = zip(*(self._seen[kind].rows.some(start, stop) for kind in ("shared", "personal")), strict=True)
            x, statistics = (torch.where(takes[start:stop], theirs, own) for theirs, own in both)
            self._seen["selected"].rows.put(start, x, statistics)


class _Seen(NamedTuple):
    round: int
    rows: ModelRows | SpooledRows


def kept_in(folder: Path, said: Any) -> dict[str, Kept]:
    """The models in a run's folder, as a commit or the run's own file lists them."""
    found = {}
    try:
        for kind, entry in dict(said).items():
            if kind not in MODEL_KINDS or entry["file"] != name_of(kind, int(entry["round"])):
                raise ValueError(kind)  # among others, a file outside the folder
            found[kind] = Kept(int(entry["round"]), FiledRows(folder / entry["file"], str(entry["checksum"])))
    except (LookupError, TypeError, ValueError):
        raise damaged(folder, "does not say which models it keeps") from None
    return found


def frames(simulation: Simulation) -> dict[str, Frame]:
    """How many rows the models of each kind have: where all clients have the same, one is enough."""
    task, method, clients = simulation.task, simulation.method, len(simulation.everyone)
    own = method.personalizes or not method.has_shared
    # Running statistics travel with the shared model, or each client has its own.
    common = task.buffers == "shared" and method.has_shared and "shared" in method.trains
    rows = {
        "personal": (clients if own else 1, 1 if common and not own else clients),
        "shared": (1, 1 if task.buffers == "shared" else clients),
        "selected": (clients, clients),
    }
    return {
        kind: Frame(task.layout, task.buffer_layout, task.dtype, some, other if task.buffer_layout.names else 1)
        for kind, (some, other) in rows.items()
    }


def name_of(kind: str, round: int) -> str:
    """The file of a kind's models after a round, in a run's folder."""
    return f"{MODELS}/{kind}-{round:08d}.safetensors"


def about(kind: str, round: int) -> dict[str, Any]:
    return {"model": kind, "round": round}


def _memory() -> int:
    """The machine's memory in bytes."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # not on this system
        return 2**34
