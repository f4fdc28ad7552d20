"""What a run was asked for, checked and made before anything is trained or written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch

from descant.attacks import malicious_clients
from descant.data import FederatedData
from descant.engine import Plan, cohort_size
from descant.engine.newcomers import Parties, apart
from descant.engine.plan import carrier
from descant.errors import SettingError
from descant.execution.device import resolve
from descant.experiment.allowed import refusal
from descant.experiment.declaration import Settings
from descant.experiment.history import Federation, History
from descant.experiment.parts import PartOf
from descant.experiment.together import check_together, data_of, task_of
from descant.methods import Method
from descant.saying import check_said
from descant.task import Task
from descant.task.targets import check_targets


class Ready(NamedTuple):
    """A run that can begin."""

    task: Task
    data: FederatedData  # all of it, as it was handed in
    method: Method
    parties: Parties
    plan: Plan


def ready(task: Any, data: Any, method: Any, settings: Settings) -> Ready:
    """The parts of a run; what is none, or does not go with the others, is refused by name."""
    task, data = task_of(task), data_of(data)
    check_targets(task, data)
    data = replace(data, numbers=None)  # whoever is here is the whole federation, numbered from 0
    learns: Method = PartOf("methods").check("method", method)
    check_said(learns, Method)
    try:
        torch.empty(0, device=resolve(settings.device))
    except Exception as error:  # every build of torch has its own for a device that it does not know
        why = f"{error}".split("\n")[0] or type(error).__name__
        raise SettingError(f"device = '{settings.device}': there is no such device here ({why})") from error
    parties = apart(data, settings.newcomers, settings.seed)
    plan = plan_of(settings, parties)
    plan = replace(plan, codec=carrier(plan.codec, learns))
    check_together(task, parties, learns, plan)
    return Ready(task, data, learns, parties, plan)


def history_of(run: Ready) -> History:
    """The history of a run that has not begun, under the numbers that everyone had in the data."""
    parties, metric = run.parties, run.task.metric
    attackers = [parties.order[k] for k in run.plan.malicious.tolist()]
    federation = Federation.of(run.data, attackers, newcomers=parties.order[len(parties.data) :])
    return History(metric.name, metric.higher_is_better, federation, may_be_undefined=metric.may_be_undefined)


def plan_of(settings: Settings, parties: Parties) -> Plan:
    """What the engine needs to know of the settings."""
    clients, malicious = len(parties.data), settings.malicious or 0
    if isinstance(malicious, tuple):  # those who take part are numbered anew where others come later
        if late := set(malicious) & set(parties.order[clients:]):
            raise SettingError(f"malicious: the clients {sorted(late)} come later, and send nothing to forge")
        malicious = tuple(parties.order.index(k) if k in parties.order else k for k in malicious)
    if settings.attacks and settings.malicious is None:
        raise SettingError("attacks: nobody carries them out; say who attacks, as in malicious=0.2 (0 is nobody)")
    if settings.sampling == "size" and settings.cohort is None:
        raise refusal("sampling", settings.sampling, "'uniform' where everyone takes part: give a cohort, too")
    return Plan(
        rounds=settings.rounds,
        cohort=cohort_size(settings.cohort, clients),
        seed=settings.seed,
        sampling=settings.sampling,
        trainers=settings.trainers,
        own_start=settings.own_start,
        stragglers=settings.stragglers,
        drop_last=settings.drop_last,
        keep_nonfinite=settings.nonfinite == "keep",
        chunk=settings.chunk,
        evaluation=settings.evaluate,
        health=settings.health,
        aggregator=settings.aggregator,
        codec=settings.codec,
        downlink=settings.downlink,
        attacks=settings.attacks,
        malicious=malicious_clients(malicious, clients, settings.seed),
        newcomer_rounds=settings.newcomer_rounds,
        lost=settings.lost,
        secret=settings.secret,
    )
