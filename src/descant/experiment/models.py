"""The models that a run kept, as modules: from memory, or from the run's folder alone."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from descant.engine import Simulation
from descant.engine.evaluation import MODELS
from descant.errors import NoModelError, NoSharedModelError, SettingError
from descant.experiment.folder import MODEL, RUN
from descant.experiment.history import History
from descant.experiment.identity import model_fingerprint
from descant.experiment.keeping import Kept, Round, about, kept_in, name_of
from descant.experiment.modules import built_of, check_module, fill, is_imported
from descant.files import make_folder
from descant.sealed import check_entry, damaged, read_tensors

Template = Callable[[nn.Module | None], nn.Module]  # a module to fill: the run's own, or one that was handed in
KINDS = MODELS


class Models:
    """The models of a run by kind and round. `template` makes the module that their numbers are put into, and
    `start` gives all its tensors as they were at first, those that are not trained too.

    `live` is the simulation, as long as there is one: it can still make the models of the last round.
    """

    def __init__(
        self,
        history: History,
        config: Mapping[str, Any],
        kept: Mapping[Round, Mapping[str, Kept]],
        template: Template,
        start: Callable[[], dict[str, Tensor]],
        *,
        has_shared: bool = True,
        deploys_shared: bool = False,
        live: Simulation | None = None,
    ) -> None:
        self.history, self.config, self.kept = history, config, kept
        self.template, self.start, self.live = template, start, live
        self.has_shared, self.deploys_shared = has_shared, deploys_shared

    @classmethod
    def none(cls, history: History, config: Mapping[str, Any]) -> Models:
        """No models, of a run of which nothing else is known either."""
        return cls(history, config, {"chosen": {}, "last": {}}, _refuse_template, dict)

    @classmethod
    def of_simulation(
        cls, simulation: Simulation, history: History, config: Mapping[str, Any], kept: Mapping[Round, Any]
    ) -> Models:
        """The models of a run that was just carried out."""
        task = simulation.task

        def template(model: nn.Module | None) -> nn.Module:
            if model is not None:
                check_module(model, task.state(), model_fingerprint(task.model))
            return deepcopy(task.model)

        method = simulation.method
        has, deploys = method.has_shared, method.has_shared and not method.personalizes
        start = task.state
        return cls(history, config, kept, template, start, has_shared=has, deploys_shared=deploys, live=simulation)

    @classmethod
    def of_folder(
        cls, folder: Path, said: Mapping[str, Any], history: History, *, allow_imports: bool = False
    ) -> Models:
        """The models in a run's folder, as its run.json (`said`) lists them."""
        listed, config = said.get("models"), said["config"]
        if listed is None:  # of a version that kept none
            return cls.none(history, config)
        prints = said.get("fingerprints", {})

        def start() -> dict[str, Tensor]:
            check_entry(folder / MODEL, said["files"].get(MODEL))
            return read_tensors(folder / MODEL)[0]

        def template(model: nn.Module | None) -> nn.Module:
            first = start()
            built = deepcopy(model) if model is not None else built_of(config, allow_imports=allow_imports)
            same = config["versions"].get("torch") == torch.__version__  # whose layers may change with versions
            others = model is not None or is_imported(config)  # a model of ours is as its name and settings say
            check_module(built, first, prints.get("model") if same and others else None)
            fill(built, first)
            return built

        try:
            kept: dict[Round, dict[str, Kept]] = {
                "chosen": kept_in(folder, listed["chosen"]),
                "last": kept_in(folder, listed["last"]),
            }
            has, deploys = bool(listed["has_shared"]), bool(listed["deploys_shared"])
            return cls(history, config, kept, template, start, has_shared=has, deploys_shared=deploys)
        except (LookupError, TypeError):
            raise damaged(folder / RUN, "does not say which models it keeps") from None

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the models into a run's folder; return what its run.json says of them."""
        said: dict[str, Any] = {"has_shared": self.has_shared, "deploys_shared": self.deploys_shared}
        written: dict[str, str] = {}
        for which, kinds in self.kept.items():
            said[which] = {}
            for kind, kept in kinds.items():
                name = name_of(kind, kept.round)
                if name not in written:
                    make_folder((folder / name).parent)
                    written[name] = kept.rows.write(folder / name, about(kind, kept.round))
                said[which][kind] = {"round": kept.round, "file": name, "checksum": written[name]}
        return said

    @property
    def files(self) -> list[str]:
        """The files of the models in a run's folder."""
        return sorted({name_of(kind, kept.round) for of in self.kept.values() for kind, kept in of.items()})

    def number(self, client: int | str) -> int:
        """The number of a client that took part, from its number or its name."""
        number, federation = self._number(client), self.history.federation
        if not federation.members("all")[number]:
            raise NoModelError(
                f"client {federation.names[number]!r} came later, and of newcomers no models are kept; "
                "run.history.federation.members('all') says who took part"
            )
        return number

    def _number(self, client: int | str) -> int:
        names = self.history.federation.names
        if isinstance(client, str):
            if client in names:
                return names.index(client)
            near = get_close_matches(client, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"the first one is called {names[0]!r}"
            raise SettingError(f"client = {client!r}: no client has this name; {hint}")
        try:
            number = operator.index(client)
        except TypeError:
            raise SettingError(f"client = {client!r}: it must be a client's name or its number") from None
        if isinstance(client, bool) or not 0 <= number < len(names):
            raise SettingError(f"client = {client!r}: it must be a name, or a number from 0 to {len(names) - 1}")
        return number

    def module(
        self, kind: str, client: int | str | None, round: Round = "chosen", model: nn.Module | None = None
    ) -> nn.Module:
        """A model, ready to predict. Without a `client` it must be one that all have in common."""
        if model is not None and not isinstance(model, nn.Module):
            raise SettingError(f"model is a {type(model).__name__}: it must be a torch.nn.Module like the run's")
        values = self.trained(kind, client, round)
        filled = self.template(model).eval()
        fill(filled, values)
        return filled

    def trained(self, kind: str, client: int | str | None, round: Round = "chosen") -> dict[str, Tensor]:
        """What training moved in a model, by name: its trained parameters and running statistics."""
        if client is None and kind != "shared":
            raise SettingError(
                f"client = None: say whose {kind} model, by name or by number, as in "
                f"run.{kind}({self.history.federation.names[0]!r})"
            )
        number = None if client is None else self.number(client)
        kept = self.find(kind, round)
        if kept is None:
            return self._made(kind, None if number is None else self.history.federation.place(number))
        if number is None and not kept.rows.common:
            raise SettingError(
                "every client predicts with its own running statistics (buffers='local'): say whose, as in "
                f"run.shared(client={self.history.federation.names[0]!r})"
            )
        return kept.rows.of(0 if number is None else self.history.federation.place(number))

    def find(self, kind: str, round: Round) -> Kept | None:
        """The models of a kind at a round; None where only the simulation can still make them."""
        if round not in ("chosen", "last"):
            raise SettingError(f"round = {round!r}: it must be 'chosen' or 'last'")
        if kind == "shared" and not self.has_shared:
            method = type(self.live.method).__name__ if self.live else self.config["method"]["name"]
            raise NoSharedModelError(f"{method} has no shared model: ask for a client's personal model")
        chosen = self.chosen_round(kind)
        if round == "chosen" and chosen is not None:
            for which in ("chosen", "last"):
                kept = self.kept[which].get(kind)
                if kept is not None and kept.round == chosen:
                    return kept
            self._refuse(kind, f"of round {chosen}, the one chosen on validation data,")
        if (collapse := self.history.collapse) is not None:
            raise NoModelError(
                f"the run collapsed in round {collapse.round}: it has no last models, and no round was chosen"
                if chosen is None
                else f"the run collapsed in round {collapse.round}: it has no last models; ask for round='chosen'"
            )
        if kind in self.kept["last"]:
            return self.kept["last"][kind]
        if self.live is None or kind == "selected":
            self._refuse(kind, "of the last round")
        return None

    def chosen_round(self, kind: str) -> int | None:
        """The round that the tables show for a kind of model; None where no validation data chose one."""
        # A shared model that clients deploy is evaluated as theirs.
        follows = kind == "shared" and self.deploys_shared and "personal" in self.history.evaluated
        of = "personal" if follows else kind
        return self.history.best_round(of, "valid", 0)

    def _made(self, kind: str, client: int | None) -> dict[str, Tensor]:
        """A model of the last round, made by the simulation, of a client by its place among those who take part."""
        assert self.live is not None
        task = self.live.task
        if kind == "personal":
            assert client is not None
            x, statistics = self.live.personal(torch.tensor([client], device=self.live.x0.device))
            x, statistics = x[0], statistics[0]
        else:
            x, statistics = self.live.shared()
        return task.layout.unflatten(x) | task.buffer_layout.unflatten(statistics)

    def _refuse(self, kind: str, which: str) -> NoReturn:
        keep = self.config.get("keep_models")
        if keep is None:
            why = "it was made by a version of descant that kept no models; state.safetensors has what is left"
        elif keep != "chosen":
            why = f"it was made with keep_models={keep!r}"
            why += "; ask for round='last'" if keep == "last" else ""
        elif kind not in self.history.evaluated:
            why = f"it did not evaluate them (evaluate: {{models: [{kind}, ...]}})"
        else:
            why = "they were too large for its memory, and it had no folder"
        raise NoModelError(f"the run has no {kind} models {which} because {why}")


def _refuse_template(model: nn.Module | None) -> nn.Module:
    raise NoModelError("the run has no models")
