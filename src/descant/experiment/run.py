"""A run: its figures, its tables and its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from descant.engine import Collapse, Simulation
from descant.errors import SettingError, shown
from descant.experiment.best import Best, best, run_text
from descant.experiment.folder import MODEL, RUN, START, headless, mark, refuse_foreign, replaced
from descant.experiment.goingon import resume_call
from descant.experiment.history import History, Stopped
from descant.experiment.journal import FORMAT, finished, unfinished
from descant.experiment.keeping import Round
from descant.experiment.models import Models
from descant.files import plain, write_json
from descant.sealed import damaged, entry_of, read_json, write_tensors
from descant.sealed import write_json as write_sealed
from descant.state.store import MappedStore

if TYPE_CHECKING:  # tables and charts are imported where they are used
    import altair as alt
    import polars as pl

    from descant.report import Report

_TABLES = ("federation", "rounds", "clients")
_HEALTH = "health.parquet"  # a table of runs that look at it


class Run:
    """What a simulation left behind, in memory or on disk (`Run.load`)."""

    def __init__(
        self,
        config: dict[str, Any],
        history: History,
        simulation: Simulation | None = None,
        models: Models | None = None,
        fingerprints: Mapping[str, str] | None = None,
        ended: int | None = None,
    ) -> None:
        self.config, self.history, self._simulation = config, history, simulation
        self.ended = time_ns() if ended is None else ended
        self.fingerprints = fingerprints or {}  # of what it followed from, where it is read from a folder
        self.models = models or Models.none(history, config)

    @property
    def rounds(self) -> pl.DataFrame:
        """One row a round: cohort, messages, bytes, gradients, seconds."""
        from descant.experiment.frames import rounds_frame

        return rounds_frame(self.history)

    @property
    def clients(self) -> pl.DataFrame:
        """One row a client, model and evaluated round: losses and metrics by part, bytes and gradients so far."""
        from descant.experiment.frames import clients_frame

        return clients_frame(self.history, self.config.get("evaluate", {}).get("parts", ()))

    @property
    def health(self) -> pl.DataFrame:
        """One row a client and round that `health` asked for: what the aggregation did to the client's model.

        `jump` is how far its own model was moved, and `distance` how far it was from the aggregate. `loss_began` is
        the loss of what its work began with, and `loss_at_0` to `loss_at_1` those on the line from its local model
        to the aggregate. `descant.Health` says what these are.
        """
        from descant.experiment.frames import health_frame

        return health_frame(self.history, (self.config.get("health") or {}).get("points", ()))

    @property
    def collapse(self) -> Collapse | None:
        """The round in which the federation collapsed, and why; None where it did not."""
        return self.history.collapse

    @property
    def stopped(self) -> Stopped | None:
        """The round that a callback stopped the run after, and why; None where none did."""
        return self.history.stopped

    def best(self, model: str | None = None, first: int = 0) -> Best:
        """The round to report, and its figures: that chosen on validation data, or the last where there are none.

        Its figures are those of `summary`, and what was spent up to this round. `model` is "personal" by default,
        and "shared" where nothing else was evaluated; rounds are chosen from `first` on.
        """
        return best(self.history, model, first)

    def __repr__(self) -> str:
        return run_text(self.config, self.history)

    def summary(self, first: int = 0) -> dict[str, Any]:
        return self.history.summary(first)

    summary.__doc__ = History.summary.__doc__

    def report(self, path: str | Path | None = None) -> Report:
        """The run's charts and tables as a page, which a notebook shows; with a `path` it is written there too."""
        from descant.report import Report

        report = Report([self])
        if path is not None:
            report.save(path)
        return report

    def plot(self, name: str | None = None) -> alt.ConcatChart:
        """One chart of the report by name: "accuracy", "loss", "bytes", ...; a wrong name lists them."""
        return self.report().plot(name)

    def personal(self, client: int | str, *, round: Round = "chosen", model: nn.Module | None = None) -> nn.Module:
        """The model that a client deploys, by its name or its number in the data, ready to predict.

        `round` is "chosen", the one that the tables show: chosen on validation data, or the last one where there
        are none; or "last". A run from a folder builds its module anew if its settings name a model, and by an
        import path if that was allowed (`load`). A module that was made in Python is not in the folder: hand in one
        like it as `model`; it is checked, and not changed.
        """
        return self.models.module("personal", client, round, model)

    def shared(
        self, *, round: Round = "chosen", model: nn.Module | None = None, client: int | str | None = None
    ) -> nn.Module:
        """The global model; an error where the method has none.

        Its running statistics are the shared ones. Where every client keeps its own (`buffers="local"`), `client`
        says whose.
        """
        return self.models.module("shared", client, round, model)

    def selected(self, client: int | str, *, round: Round = "chosen", model: nn.Module | None = None) -> nn.Module:
        """The better of a client's personal and shared model on its validation data, where that was evaluated."""
        return self.models.module("selected", client, round, model)

    def export(
        self,
        folder: str | Path,
        *,
        round: Round = "chosen",
        models: Sequence[str] | None = None,
        clients: Sequence[int | str] | None = None,
        onnx: bool = False,
        programs: bool = True,
        model: nn.Module | None = None,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write models for use without descant: weights (safetensors), programs (torch.export), an index (JSON).

        `models` are "personal", "shared" and "selected"; by default what clients deploy and, unless `clients` are
        named, the shared model where there is one. With `programs=False` there are weights alone, which need no
        module. Files of an earlier export are replaced only with `overwrite`, which also removes those that this
        one does not write; files that descant did not write never are. Returns what was written, the index last.
        """
        from descant.experiment.export import export

        return export(
            self,
            Path(folder),
            round=round,
            models=models,
            clients=clients,
            onnx=onnx,
            programs=programs,
            model=model,
            overwrite=overwrite,
        )

    def confusion(
        self, client: int | str | None = None, model: Literal["personal", "shared"] = "personal", part: str = "test"
    ) -> NDArray[np.int64]:
        """How many examples of each class were predicted as each: a row a true class, a column a predicted one.

        It is [C, C] for a client, given by number or name, and [N, C, C] for all that take part; of the models as
        they are after the run. An example for which a model gives NaN is in no column. A run that was read from a
        folder, as those of a comparison by a settings file are, has neither these models nor the data at hand.
        """
        from descant.experiment.confusion import confusion

        if self._simulation is None:
            raise LookupError(
                "a run that was read from a folder has no live models and no data: "
                "predict with the modules of run.personal(client, round='last') on data of yours"
            )
        place = None if client is None else self.history.federation.place(self.models.number(client))
        return confusion(self._simulation, place, model, part)

    def save(self, folder: Path) -> None:
        """Write the run into a folder: tables as Parquet, settings and figures as JSON, models as safetensors.

        A folder with a file of somebody else's by the name of one of these is refused.
        """
        from descant.experiment.frames import federation_frame, write_table

        if not (folder / START).exists():  # a journal has looked at the folder, and marked it
            refuse_foreign(folder)
            folder.mkdir(parents=True, exist_ok=True)
            mark(folder)
        looks = self.config.get("health") is not None
        tables = (federation_frame(self.history.federation), self.rounds, self.clients)
        for name, table in zip(_TABLES, tables, strict=True):
            write_table(folder / f"{name}.parquet", table)
        if looks:
            write_table(folder / _HEALTH, self.health)
        mapped = self._mapped(folder)
        write_tensors(folder / "state.safetensors", self._state(clients=not mapped), {})
        write_json(folder / "summary.json", self.summary())
        collapse = vars(self.collapse) if self.collapse else None
        stopped = vars(self.stopped) if self.stopped else None
        models = self.models.save(folder)
        if not (folder / START).exists():  # no journal has written it
            write_tensors(folder / MODEL, self._live().task.state(), {})
        history = {name: getattr(self.history, name) for name in ("metric", "higher_is_better", "may_be_undefined")}
        # Where the clients' rows are. In a folder of leaves, who is not `touched` still has its first state.
        where = "clients/leaves.json" if mapped else "state.safetensors"
        names = [*(f"{name}.parquet" for name in _TABLES), "state.safetensors", "summary.json", MODEL, where]
        names += [*self.models.files, *([_HEALTH] if looks else [])]
        files = {name: entry_of(folder / name) for name in dict.fromkeys(names) if (folder / name).exists()}
        about = {"format": FORMAT, "ended": self.ended, "collapse": collapse} | history
        about |= {"clients": where, "files": files, "models": models}
        about |= {"stopped": stopped} if stopped else {}
        if (folder / START).exists():  # what the run followed from, and that the commits were of
            start, begun = read_json(folder / START)
            about |= {"begun": begun, "fingerprints": start["fingerprints"]}
        # Last, so that a folder with this file is a finished run.
        write_sealed(folder / RUN, about | {"config": plain(self.config)})
        replaced(folder)

    @classmethod
    def load(cls, folder: str | Path, *, allow_imports: bool = False) -> Run:
        """Read a finished run back: figures, tables and the models that it kept.

        Where its settings name the model by an import path (`model: mine:net`), that is followed only if
        `allow_imports`: it runs code.

        A file that is not what was written is a `DamagedError` that names it; a folder without a finished run is a
        `FileNotFoundError`.
        """
        from descant.experiment.frames import federation_of, fill, fill_health, read_table

        if not isinstance(folder, str | Path):
            raise SettingError(f"folder = {shown(folder)}: it must be the path of a run's folder")
        folder = Path(folder)
        if not finished(folder):
            if (lost := headless(folder)) is not None:
                raise lost
            begun = f"; it is unfinished: go on with {resume_call(folder)}" if unfinished(folder) else ""
            raise FileNotFoundError(f"{folder} holds no finished run: there is no {RUN} of descant's in it{begun}")
        about, _ = read_json(folder / RUN)
        if about.get("format") not in (1, FORMAT):
            raise SettingError(f"{folder} was written in format {about.get('format')}; this version reads {FORMAT}")
        files = about.get("files", {})
        if about["format"] == FORMAT and not ("files" in about and "metric" in about):
            raise damaged(folder / RUN, "is not what a finished run says of itself")
        prints = about.get("fingerprints", {})
        if not isinstance(prints, dict) or not all(isinstance(value, str) for value in prints.values()):
            raise damaged(folder / RUN, "does not say what the run followed from")
        if not isinstance(about.get("ended", 0), int):
            raise damaged(folder / RUN, "does not say when the run ended")
        federation, rounds, clients = (
            read_table(folder / name, files.get(name), sealed=about["format"] == FORMAT)
            for name in (f"{name}.parquet" for name in _TABLES)
        )
        health = read_table(folder / _HEALTH, files[_HEALTH], sealed=True) if _HEALTH in files else None
        try:
            history = History(about["metric"], about["higher_is_better"], federation_of(federation))
            history.may_be_undefined = about.get("may_be_undefined", False)  # which the first runs did not say
            fill(history, rounds, clients)
            if health is not None:
                fill_health(history, health)
            history.collapse = Collapse(**about["collapse"]) if about["collapse"] else None
            history.stopped = Stopped(**about["stopped"]) if about.get("stopped") else None
            config = about["config"]
        except (LookupError, TypeError, ValueError, AttributeError):
            raise damaged(folder / RUN, "does not fit the tables beside it") from None
        models = Models.of_folder(folder, about, history, allow_imports=allow_imports)
        ended = about.get("ended", (folder / RUN).stat().st_mtime_ns)  # which the first runs did not say
        return cls(config, history, None, models, prints, ended)

    def _live(self) -> Simulation:
        if self._simulation is None:
            raise LookupError("a run that was read from a folder is saved there already")
        return self._simulation

    def _mapped(self, folder: Path) -> bool:
        """Whether the clients' state lies in the run's folder already; if so it is durable then."""
        store = self._live().store
        store.flush(self._live().round)
        return isinstance(store, MappedStore) and store.files.folder == folder / "clients"

    def _state(self, clients: bool) -> dict[str, Tensor]:
        simulation = self._live()
        state = {f"server.{name}": leaf for name, leaf in simulation.server.state.items()}
        state["server.statistics"] = simulation.server.statistics
        if clients:
            state |= {f"clients.{name}": leaf for name, leaf in simulation.store.leaves.items()}
        return state
