"""What the parties of a run hold in the end.

A run shows its models and its figures. What a method keeps besides them, such as duals, control variates or
residuals, has no public way: the tests of methods and of the engine ask for it here, and nowhere else.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from descant import Run
from descant.engine import Simulation


def personal(run: Run) -> Tensor:
    """What every client deploys after the last round, [N, d]."""
    return torch.stack([_flat(run.personal(name, round="last")) for name in run.history.federation.names])


def shared(run: Run) -> Tensor:
    """The shared model after the last round, [d]."""
    return _flat(run.shared(round="last"))


def by_server(run: Run) -> dict[str, Tensor]:
    """The state of the server, by the names that the method gives it."""
    return simulation(run).server.state


def by_clients(run: Run) -> dict[str, Tensor]:
    """The state of the clients, a row a client, by the names that the method and its codecs give it."""
    return simulation(run).store.leaves


def everything(run: Run) -> dict[str, Tensor]:
    """All that the parties hold, by who holds it, and, unless the run collapsed, the models that clients deploy.

    The server holds its state, that of its aggregator, running statistics, and copies of what clients sent last.
    """
    live = simulation(run)
    parties = {
        "server": live.server.tree() | live.server.state,
        "copies": live.server.copies.leaves,
        "clients": live.store.leaves,
        "attackers": live.attackers.memory,
    }
    leaves = {f"{party} {name}": leaf for party, tree in parties.items() for name, leaf in tree.items()}
    return leaves if run.collapse else leaves | {"personal": live.personal(live.everyone)[0]}


def simulation(run: Run) -> Simulation:
    """What a run was carried out by, for what is not among the above."""
    assert run._simulation is not None, "a run from a folder has no simulation"
    return run._simulation


def _flat(model: torch.nn.Module) -> Tensor:
    return parameters_to_vector(model.parameters()).detach()
