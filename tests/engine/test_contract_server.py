"""The contract of a method carries servers that hold, tell and choose more than one model.

Each toy is a few lines; the plane's points make its rounds a hand calculation (client k's gradient is x - mean_k).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from descant import FederatedData, Task
from descant.context import Context
from descant.engine.cohort import sample
from descant.methods import (
    Aggregate,
    Gradient,
    LocalView,
    Messages,
    Method,
    PerClient,
    ServerView,
    Tree,
    Work,
)
from tests import held
from tests.engine.points import close

N, LR, STEPS = 4, 0.1, 3
FULL = Work(steps=STEPS)


@dataclass(frozen=True, kw_only=True)
class Toy(Method):
    name: ClassVar[str] = "toy"
    paper: ClassVar[str] = "none"
    trains: ClassVar[tuple[str, ...]] = ("personal",)
    has_shared: ClassVar[bool] = False
    personalizes: ClassVar[bool] = True

    def client_start(self, local: LocalView) -> Tree:
        return {"v": local.start}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return state["v"]

    def step(self, x: Tensor, grad: Gradient) -> Tensor:
        return x - LR * grad(x)


class Scaffold(Toy):
    """Karimireddy et al. 2020, option II: the server holds more than it tells, a message has two leaves."""

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0, "c": torch.zeros_like(ctx.x0), "clients": torch.tensor(ctx.clients)}

    def client_start(self, local: LocalView) -> Tree:
        return {"c_k": torch.zeros_like(local.start)}

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"], "c": server["c"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        w, correction = down["w"], down["c"] - state["c_k"]
        x = local.run(self.corrected, w, correction, work=FULL, role="personal")
        c_k = state["c_k"] - down["c"] + (w - x) / (STEPS * LR)
        return {"dw": x - w, "dc": c_k - state["c_k"]}, {"c_k": c_k}

    def corrected(self, x: Tensor, grad: Gradient, correction: Tensor) -> Tensor:
        return x - LR * (grad(x) + correction)

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        mean = aggregate(messages)
        share = len(messages.clients) / server["clients"]
        return server | {"w": server["w"] + mean["dw"], "c": server["c"] + share * mean["dc"]}

    def personal(self, down: Tree, state: Tree, local: LocalView) -> Tensor:
        return down["w"]


@pytest.mark.few(1)
@pytest.mark.parametrize("cohort", [2, 4])
@pytest.mark.parametrize("chunk", [1, 4])
def test_a_server_with_a_control_variate(
    run: Any, point: Task, points: FederatedData, means: Tensor, cohort: int, chunk: int
) -> None:
    done = run(Scaffold(), task=point, data=points, rounds=5, cohort=cohort, chunk=chunk)
    w, c, c_k = point.start(), torch.zeros(2).double(), torch.zeros(N, 2).double()
    for t in range(1, 6):
        dw, dc = torch.zeros(2).double(), torch.zeros(2).double()
        for k in sample(5, t, cohort, torch.ones(N)).tolist():
            x = w
            for _ in range(STEPS):
                x = x - LR * (x - means[k] + c - c_k[k])
            new = c_k[k] - c + (w - x) / (STEPS * LR)
            dw, dc = dw + (x - w) / cohort, dc + (new - c_k[k]) / N
            c_k[k] = new
        w, c = w + dw, c + dc
    close(held.by_server(done)["w"], w)
    close(held.by_server(done)["c"], c)
    close(held.by_clients(done)["c_k"], c_k)
    assert done.history.rounds[0]["bytes_up"] == done.history.rounds[0]["bytes_down"] == cohort * 2 * 2 * 8


class ToldApart(Toy):
    """Every client is told a number of its own beside one that all are told, and adds both to its model."""

    def server_start(self, ctx: Context) -> Tree:
        return {"own": 10.0 * torch.arange(ctx.clients).double(), "all": torch.tensor(0.5, dtype=torch.float64)}

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return {"own": PerClient(server["own"]), "all": server["all"]}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        return {}, {"v": state["v"] + (down["own"] + down["all"])[:, None]}


@pytest.mark.parametrize("chunk", [1, 3, 4])
def test_a_broadcast_with_a_row_for_every_client(run: Any, point: Task, points: FederatedData, chunk: int) -> None:
    done = run(ToldApart(), task=point, data=points, rounds=2, chunk=chunk)
    told = 2 * (10.0 * torch.arange(N).double() + 0.5)
    close(held.by_clients(done)["v"], point.start() + told[:, None])
    assert done.history.rounds[0]["bytes_down"] == N * 2 * 8  # a client hears its row, not all rows


class Stale(Toy):
    """The server averages what it last heard of every client, as Fed+ and FLAME do."""

    @property
    def held(self) -> tuple[str, ...]:
        return ("u",)

    def server_start(self, ctx: Context) -> Tree:
        return {"u": ctx.x0.expand(ctx.clients, -1), "w": ctx.x0}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        v = local.run(self.step, state["v"], work=FULL, role="personal")
        return {"v": v}, {"v": v}

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        u = messages.into(server["u"], "v")
        return {"u": u, "w": u.mean(0)}


def test_a_server_that_remembers_those_who_are_silent(
    run: Any, point: Task, points: FederatedData, means: Tensor
) -> None:
    done = run(Stale(), task=point, data=points, rounds=2, cohort=2, trainers="everyone")
    heard = torch.zeros(N, dtype=torch.int64)
    for t in (1, 2):
        heard[sample(5, t, 2, torch.ones(N))] = t
    assert set(heard.tolist()) == {0, 1, 2}  # never, once and lately
    u = means + (1 - LR) ** (STEPS * heard.double())[:, None] * (point.start() - means)
    close(held.by_server(done)["u"], u)
    close(held.by_server(done)["w"], u.mean(0))
    close(held.by_clients(done)["v"], means + (1 - LR) ** (2 * STEPS) * (point.start() - means))


class Quiet(Toy):
    """Odd rounds are local steps, even rounds pull towards the mean (L2SGD without its coin)."""

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0}

    def broadcast(self, server: Tree) -> dict[str, Tensor | PerClient]:
        return {"w": server["w"]}

    def silent(self, server: ServerView) -> bool:
        return server.ctx.round % 2 == 1

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        v = state["v"]
        v = 0.5 * (v + down["w"]) if down else local.run(self.step, v, work=FULL, role="personal")
        return {"v": v}, {"v": v}

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"w": aggregate({"v": messages["v"]})["v"]}


def test_a_silent_round_costs_no_bytes(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    done = run(Quiet(), task=point, data=points, rounds=4)
    v, w = point.start().expand(N, -1), point.start()
    for t in range(1, 5):
        v = means + (1 - LR) ** STEPS * (v - means) if t % 2 else 0.5 * (v + w)
        w = w if t % 2 else v.mean(0)
    close(held.by_clients(done)["v"], v)
    close(held.by_server(done)["w"], w)
    rows = done.history.rounds
    assert [row["bytes_up"] for row in rows] == [row["bytes_down"] for row in rows] == [0, 64, 0, 64]
    assert [row["received"] for row in rows] == [0, N, 0, N]
    assert [row["gradients"] for row in rows] == [N * STEPS, 0, N * STEPS, 0]


class InTurn(Toy):
    """The server draws only clients that it has not heard yet."""

    def server_start(self, ctx: Context) -> Tree:
        return {"waiting": torch.ones(ctx.clients)}

    def cohort_weights(self, server: Tree) -> Tensor | None:
        return server["waiting"]

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        heard = torch.zeros(len(local.clients))
        return {"heard": heard}, {"v": state["v"] + 1}

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"waiting": messages.into(server["waiting"], "heard")}


def test_a_method_may_choose_its_cohort(run: Any, point: Task, points: FederatedData) -> None:
    one_each = run(InTurn(), task=point, data=points, rounds=2, cohort=2)
    close(held.by_clients(one_each)["v"], (point.start() + 1).expand(N, -1))
    assert held.by_server(one_each)["waiting"].tolist() == [0] * N
    more = run(InTurn(), task=point, data=points, rounds=3, cohort=2)  # nobody is left: an empty cohort is a round
    assert torch.equal(held.by_clients(more)["v"], held.by_clients(one_each)["v"])
    assert [more.history.rounds[2][name] for name in ("cohort", "received", "bytes_up")] == [0, 0, 0]


class Tossing(Toy):
    """Every client reports the coin and the round that it sees."""

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        local.record("coin", torch.full((len(local.clients),), local.coin, dtype=torch.float64))
        local.record("rounds", torch.full((len(local.clients),), local.round))
        return {}, state


def test_all_parties_of_a_round_see_one_coin(run: Any, point: Task, points: FederatedData) -> None:
    T = 100
    done = run(Tossing(), task=point, data=points, rounds=T, chunk=1)
    coins = [row["coin"] / N for row in done.history.rounds]
    alone = run(Tossing(), task=point, data=points, rounds=T, cohort=1)
    assert coins == [row["coin"] for row in alone.history.rounds]
    assert [row["rounds"] for row in done.history.rounds] == [N * t for t in range(1, T + 1)]
    assert len(set(coins)) == T and all(0 < coin < 1 for coin in coins)
    assert abs(sum(coins) / T - 0.5) <= 4 * (1 / 12 / T) ** 0.5


class Reporting(Toy):
    """The server reports what it finds: a figure of its own, and one in two parts."""

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        local.record("both", torch.ones(len(local.clients)))
        return {"v": state["v"]}, state

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        messages.record("senders", len(messages.clients))
        for part in (1e-17, 0.25):
            messages.record("both", part)
        return server


@pytest.mark.parametrize("chunk", [1, 4])
def test_a_server_reports_figures_of_the_round(run: Any, point: Task, points: FederatedData, chunk: int) -> None:
    done = run(Reporting(), task=point, data=points, rounds=3, cohort=3, chunk=chunk)
    assert [row["senders"] for row in done.history.rounds] == [3.0] * 3
    assert [row["both"] for row in done.history.rounds] == [3.25] * 3, "added to what the clients report"


class OnItsOwn(Toy):
    """The server combines models by itself, without the run's aggregator."""

    has_shared: ClassVar[bool] = True

    def server_start(self, ctx: Context) -> Tree:
        return {"w": ctx.x0}

    def client(self, down: Tree, state: Tree, local: LocalView) -> tuple[Tree, Tree]:
        v = local.run(self.step, state["v"], work=FULL, role="personal")
        return {"v": v}, {"v": v}

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"w": messages["v"].mean(0)}

    def shared(self, server: Tree) -> Tensor:
        return server["w"]


class Asking(OnItsOwn):
    """The same by the run's aggregator."""

    def server(self, server: Tree, messages: Messages, aggregate: Aggregate) -> Tree:
        return {"w": aggregate({"v": messages["v"]})["v"]}


def test_running_statistics_are_combined_even_if_the_method_combines_by_itself(run: Any, federation: Any) -> None:
    torch.manual_seed(0)
    task = Task(torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)).double())
    alone, asking = (run(method, task=task, data=federation((6, 3, 9))) for method in (OnItsOwn(), Asking()))
    close(held.by_server(alone)["w"], held.by_server(asking)["w"])
    statistics, expected = (held.simulation(done).server.statistics for done in (alone, asking))
    close(statistics, expected)
    assert float((statistics - task.buffer_start()).abs().max()) > 1e-2
