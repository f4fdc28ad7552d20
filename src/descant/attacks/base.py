"""The contract of an attack: poisoned data before the run, forged messages in each round."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from descant.context import Context
from descant.data import FederatedData, Part
from descant.draws import uniform
from descant.errors import SettingError
from descant.fields import Checked
from descant.mail import Mail
from descant.task import Task
from descant.trees import Tree

# What the server's aggregator would make, leaf by leaf, of what attackers mean to send in a round, together with
# the messages of the others. It may be asked any number of times: nothing is kept of the answers.
Defence = Callable[[Mail], Tree]


class Seen(NamedTuple):
    """The models that attackers can look at before a round: the shared one, or their own where there is none."""

    task: Task
    x: Tensor  # [K, d]
    buffers: Tensor  # [K, b]
    batched: bool = True  # whether the module runs for several clients in one program

    def outputs(self, inputs: Tensor) -> Tensor:
        """What all the models say of the same inputs [B, ...]: [K, B, ...], with a gradient in the inputs."""

        def one(x: Tensor, buffers: Tensor) -> Tensor:
            return self.task.apply(x, buffers, inputs)[0]

        if self.batched:
            return vmap(one)(self.x, self.buffers)
        return torch.stack([one(x, buffers) for x, buffers in zip(self.x, self.buffers, strict=True)])


Sight = Callable[[], Seen]


@dataclass(frozen=True, kw_only=True)
class Attack(Checked, ABC):
    """What malicious clients do. They are the same ones throughout a run, and in every method that is compared."""

    name: ClassVar[str]

    @property
    def updates(self) -> bool:
        """Whether it forges how messages move, and needs leaves that say what they are (`descant.mail.Sent`)."""
        return False

    def check(self, data: FederatedData) -> None:
        """Refuse data on which the attack cannot be carried out; asked before anything is trained."""

    def first(self, ctx: Context, data: FederatedData, who: Tensor) -> Tree:
        """The memory of the malicious clients `who` [M] before the first round, from the data before `poison`."""
        return {}

    def poison(self, ctx: Context, data: FederatedData, who: Tensor) -> FederatedData:
        """The data as the malicious clients `who` [M] train on it; called once, before the first round."""
        return data

    def adapt(self, ctx: Context, state: Tree, data: FederatedData, who: Tensor, sight: Sight) -> Tree | None:
        """The attackers' memory before the work of a round, for those that look at the model; None is as it was."""
        return None

    def recall(self, ctx: Context, state: Tree, data: FederatedData, who: Tensor) -> FederatedData:
        """The poisoned data as attackers with this memory train on it: after `adapt`, and when a run is resumed."""
        return data

    def probe(self, state: Tree, part: Part) -> Part | None:
        """Examples that every model is to answer as the attackers say (the targets), made of a part's: a backdoor.

        How often it does is a figure of evaluations. They are of the same clients as the part's, or None.
        """
        return None

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        """The attackers' new memory, and what they send in the place of their own honest `mail`.

        `benign` is what the others send in this round, for attackers that know it.
        """
        return state, mail

    def against(self, ctx: Context, state: Tree, mail: Mail, benign: Mail, defence: Defence) -> tuple[Tree, Mail]:
        """As `forge`, for attackers that also know how the server combines messages: they can try what they send.

        `defence(mail)` is what would come out, before any codec. The engine calls this one; by default it is
        `forge`, which does not ask.
        """
        return self.forge(ctx, state, mail, benign)


def malicious_clients(malicious: int | float | tuple[int, ...], clients: int, seed: int) -> Tensor:
    """The numbers [M] of the clients that attack, in ascending order: a number of them, a share of all, or these.

    A number or a share is drawn by the seed, and a larger one of the same seed contains the smaller.
    """
    if isinstance(malicious, tuple):
        if len(set(malicious)) < len(malicious) or not all(0 <= k < clients for k in malicious):
            raise SettingError(
                f"malicious = {list(malicious)}: it must be different numbers from 0 to {clients - 1}, "
                "a number of clients, or a share of them"
            )
        return torch.tensor(sorted(malicious), dtype=torch.int64)
    share = isinstance(malicious, float)
    if isinstance(malicious, bool) or not 0 <= malicious <= (1 if share else clients):
        raise SettingError(
            f"malicious = {malicious!r}: it must be a number of clients from 0 to {clients}, a share of them from "
            "0.0 to 1.0, or a list of their numbers"
        )
    number = round(malicious * clients) if share else int(malicious)
    keys = uniform(seed, "malicious", torch.arange(clients))
    return keys.argsort()[:number].sort().values
