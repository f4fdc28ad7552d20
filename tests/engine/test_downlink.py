"""What the server says of its broadcast: how it moved since everybody heard it, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import descant as dc
from descant import FederatedData, Task
from descant.attacks import Attack
from descant.codecs import DGC, LBGM, QSGD, Codec, CountSketch, RandomK, Sign, SparseTernary, TopK, Uniform
from descant.context import Context
from descant.engine.downlink import Downlink
from descant.engine.records import CollapseError
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import METHODS, MRMTL, RSA, Ditto, FedAvg, FedAvgM, Method, Scaffold
from descant.trees import Tree
from tests import held
from tests.engine.points import PLAIN, N, close, cohort_of, pulled

MINI: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 4}
UPDATES: list[Codec] = [
    *(TopK(share=0.2), RandomK(share=0.2), Sign(), SparseTernary(share=0.2), QSGD(bucket=16), Uniform(bits=5)),
    *(DGC(share=0.2, warmup=1), CountSketch(share=0.2, columns=1.0)),
]


def larger(move: Tensor) -> Tensor:
    """The larger of the two numbers of a move in the plane, and zero for the other."""
    kept = torch.zeros_like(move)
    at = int(move.abs().argmax())
    kept[at] = move[at]
    return kept


def test_clients_start_from_what_was_said_and_the_server_from_where_it_is(
    run: Any, point: Task, points: FederatedData, means: Tensor
) -> None:
    """w and what everybody knows of it, u, by hand: one of its two numbers is said in each round."""
    w = u = point.start()
    for rounds in range(1, 8):
        cohort = cohort_of(rounds, 2)
        w = w + torch.stack([pulled(u, means[k]) for k in cohort]).mean(0)
        u = u + larger(w - u)
        done = run(PLAIN, task=point, data=points, rounds=rounds, cohort=2, downlink=TopK(share=0.5))
        close(held.shared(done), w)
        close(torch.stack([held.personal(done)[k] for k in range(N)]), u.expand(N, 2))
    assert not torch.equal(u, w)


def test_both_ways_by_hand(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    """The same with clients that send the larger number alone, and keep the other one until the next time."""
    w = u = point.start()
    owed = torch.zeros(N, 2, dtype=torch.float64)
    for rounds in range(1, 8):
        sent = []
        for k in cohort_of(rounds, 2):
            wanted = owed[k] + pulled(u, means[k])
            sent.append(larger(wanted))
            owed[k] = wanted - sent[-1]
        w = w + torch.stack(sent).mean(0)
        u = u + larger(w - u)
        both = {"codec": TopK(share=0.5), "downlink": TopK(share=0.5)}
        done = run(PLAIN, task=point, data=points, rounds=rounds, cohort=2, **both)
        close(held.shared(done), w)


@pytest.mark.few(2)
@pytest.mark.parametrize("codec", UPDATES, ids=lambda codec: codec.name)
def test_what_everybody_knows_comes_to_where_the_server_stands(codec: Codec) -> None:
    """Of a broadcast of 43 numbers that stands still from the first round on, all is said in the end."""
    task = Task(torch.nn.Linear(42, 1).double())
    ctx = Context(0, 5, 7, task.layout, task.start(), 3)
    downlink, w = Downlink(codec, ctx, {"w": task.start()}), task.start() + torch.linspace(-1, 2, 43).double()
    gaps = []
    for t in range(1, 81):
        downlink.say(ctx.at(t), {"w": w})
        gaps.append(float((downlink.heard(ctx, {"w": w})["w"] - w).norm()))
    assert gaps[-1] < 1e-2 * float((task.start() - w).norm())


@pytest.mark.parametrize(
    ("method", "near"),
    [(FedAvg(**MINI), 0.05), (Ditto(**MINI), 0.05), (MRMTL(**MINI), 0.1), (Scaffold(**MINI), 0.1)],
)
def test_many_rounds_end_near_those_with_whole_broadcasts(run: Any, method: Method, near: float) -> None:
    """A tenth of 43 numbers is said in each of 200 rounds: training losses of the shared model."""
    how: dict[str, Any] = {"rounds": 200, "evaluate": {"every": 200, "parts": ["train"], "models": ["shared"]}}
    losses = [
        run(method, **how, downlink=downlink).summary()["shared.train_loss.mean@last"]
        for downlink in ("native", SparseTernary(share=0.1))
    ]
    assert abs(losses[1] - losses[0]) < near


@pytest.mark.parametrize("method", [FedAvg(**MINI), Scaffold(**MINI), Ditto(**MINI)], ids=lambda m: m.name)
def test_all_of_it_said_is_the_whole_broadcast(run: Any, method: Method) -> None:
    plain, said = run(method, rounds=4, cohort=3), run(method, rounds=4, cohort=3, downlink=TopK(share=1.0))
    for k in range(7):
        close(held.personal(said)[k], held.personal(plain)[k])


def test_the_shared_model_of_ditto_is_its_solvers(run: Any) -> None:
    solver = FedAvgM(**MINI, beta=0.6)
    how: dict[str, Any] = {"rounds": 5, "cohort": 3, "codec": Sign(), "downlink": SparseTernary(share=0.1)}
    ditto, alone = run(Ditto(**MINI, solver=solver), **how), run(solver, **how)
    assert torch.equal(held.shared(ditto), held.shared(alone))
    assert ditto.rounds["bytes_down"].to_list() == alone.rounds["bytes_down"].to_list()


def test_results_do_not_depend_on_how_many_work_at_once(run: Any) -> None:
    how: dict[str, Any] = {"rounds": 4, "cohort": 5, "codec": SparseTernary(), "downlink": QSGD(levels=2)}
    whole, parts = run(Ditto(**MINI), **how), run(Ditto(**MINI), **how, chunk=2)
    for k in range(7):
        close(held.personal(whole)[k], held.personal(parts)[k])
    assert whole.rounds["bytes_down"].to_list() == parts.rounds["bytes_down"].to_list()


def said_by(monkeypatch: pytest.MonkeyPatch, codec: type[Codec]) -> list[int]:
    """The lengths of what the server says from now on."""
    lengths: list[int] = []
    plain = codec.encode

    def noted(self: Codec, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        memory, payloads = plain(self, ctx, memory, mail)
        lengths.extend(len(payload) for payload in payloads)
        return memory, payloads

    monkeypatch.setattr(codec, "encode", noted)
    return lengths


@pytest.mark.parametrize("share", [0.05, 0.9])
def test_a_client_fetches_what_it_missed_or_all_of_it(
    run: Any, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """43 numbers of eight bytes: two of them in each round are soon said; with most of them, all is shorter."""
    lengths, rounds = said_by(monkeypatch, TopK), 9
    done = run(FedAvg(**MINI), rounds=rounds, cohort=2, evaluate=1, downlink=TopK(share=share))
    heard, whole, expected, anew = [0] * 7, 8 * 43, [], 0
    clients = done.clients.filter(done.clients["model"] == "personal")
    spent = np.zeros(7, dtype=np.int64)
    for t in range(1, rounds + 1):
        now = clients.filter(clients["round"] == t).sort("client")["gradients"].to_numpy()
        cohort, spent = np.flatnonzero(now - spent), now
        missed = [sum(lengths[heard[k] : t - 1]) for k in cohort]
        anew += sum(bytes > whole for bytes in missed)
        expected.append(sum(min(bytes, whole) for bytes in missed))
        for k in cohort:
            heard[k] = t - 1
    assert len(lengths) == rounds and expected[0] == 0
    assert done.rounds["bytes_down"].to_list() == expected
    assert (anew > 0) == (share == 0.9)


def test_a_newcomer_pays_for_all_that_was_said(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = said_by(monkeypatch, SparseTernary)
    done = run(FedAvg(**MINI), rounds=4, newcomers=[2], downlink=SparseTernary(share=0.05), evaluate=4)
    last = done.clients.filter((done.clients["round"] == 4) & (done.clients["client"] == 2))
    assert last["bytes_down"].to_list() == [sum(lengths)]


def test_nothing_is_said_where_no_mail_arrives(run: Any) -> None:
    done = run(FedAvg(**MINI), rounds=4, lost=0.999999, downlink=SparseTernary())
    assert done.rounds["received"].to_list() == [0] * 4 and done.rounds["bytes_down"].to_list() == [0] * 4


def test_the_server_draws_other_numbers_than_any_client(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[Tensor]] = {}
    plain = RandomK._drawn

    def noted(self: RandomK, leaf: Any, rows: Tensor) -> Tensor:
        index = plain(self, leaf, rows)
        drawn.setdefault(leaf.name, []).append(index)
        return index

    monkeypatch.setattr(RandomK, "_drawn", noted)
    run(FedAvg(**MINI), rounds=1, codec=RandomK(share=0.3), downlink=RandomK(share=0.3))
    mine, clients = drawn.pop("broadcast w")[0], next(iter(drawn.values()))[0]
    assert mine.shape[1:] == clients.shape[1:] and len(clients) == 7
    assert not any(torch.equal(mine[0], row) for row in clients)


def test_running_statistics_travel_whole(federation: Any) -> None:
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 3)).double()
    how: dict[str, Any] = {"rounds": 1, "seed": 5, "mode": "loop", "downlink": SparseTernary()}
    done = dc.simulate(Task(net), federation((6, 8, 9)), FedAvg(lr=0.1, steps=2, batch=3), **how)
    assert done.rounds["bytes_down"].to_list() == [3 * 2 * 5 * 8], "means and variances"


def test_a_move_that_overflows_is_a_collapse() -> None:
    task = Task(torch.nn.Linear(2, 1).double())
    ctx = Context(1, 5, 7, task.layout, task.start(), 3)
    huge = torch.full((3,), 1.5e308, dtype=torch.float64)
    downlink = Downlink(SparseTernary(), ctx, {"w": -huge})
    with pytest.raises(
        CollapseError, match="broadcast cannot be encoded: the update of 'broadcast w' is not finite"
    ):
        downlink.say(ctx, {"w": huge})


@pytest.mark.parametrize(
    ("method", "settings", "why"),
    [
        (FedAvg(**MINI), {"own_start": True}, "with own_start every client begins with another"),
        (RSA(**MINI, overflow="local"), {"nonfinite": "keep"}, "lets its state overflow"),
        (FedAvg(**MINI), {"downlink": LBGM()}, "'lbgm' repeats what it said before"),
        (FedAvg(**MINI), {"downlink": Uniform(bits=1)}, "the broadcast 'w' moved .* use nearest: true, or two"),
        (FedAvg(**MINI), {"downlink": QSGD(levels=2, norm="l2")}, "the broadcast 'w' moved .* max, 4 levels"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(run: Any, method: Method, settings: Any, why: str) -> None:
    with pytest.raises(SettingError, match=f"downlink: .*{why}"):
        run(method, **{"downlink": SparseTernary()} | settings)


@dataclass(frozen=True, kw_only=True)
class Spy(Attack):
    """It notes the model that it looks at in each round."""

    name: ClassVar[str] = "spy"
    noted: ClassVar[list[Tensor]] = []

    def adapt(self, ctx: Context, memory: Tree, data: FederatedData, who: Tensor, sight: Any) -> None:
        self.noted.append(sight().x[0])


def test_attackers_look_at_the_model_that_clients_hear(run: Any) -> None:
    Spy.noted.clear()
    how: dict[str, Any] = {"downlink": TopK(share=0.1), "malicious": [1], "attacks": [Spy()]}
    heard = [held.personal(run(FedAvg(**MINI), rounds=rounds, **how))[0] for rounds in (1, 2)]
    assert len(Spy.noted) == 3 and torch.equal(Spy.noted[2], heard[0]) and not torch.equal(heard[0], heard[1])


def test_training_alone_may_stand_beside_the_others(run: Any) -> None:
    done = run(METHODS["local"](**MINI), downlink=SparseTernary())
    assert done.rounds["bytes_down"].sum() == 0


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("local", "mocha")])  # mocha trains linear models
def test_every_method_says_how_its_broadcast_moved_or_is_refused_by_name(run: Any, name: str) -> None:
    method = METHODS[name](**MINI)
    refused = {
        "l2sgd": "broadcasts no vector",
        "fedamp": "tells every client something of its own",
        "hush": "clients build the shared model",
        "one-projection": "clients build the shared model",
        "pfed1bs": "the server says bits",
        "pfedlms": "the server says bits",
    }
    if name in refused:
        with pytest.raises(SettingError, match=f"downlink: .*'{name}'.* {refused[name]}"):
            run(method, rounds=1, downlink=TopK(share=0.2))
        return
    done = run(method, rounds=3, cohort=4, downlink=TopK(share=0.2))
    whole = run(method, rounds=3, cohort=4)
    assert done.collapse is None
    assert done.rounds["bytes_up"].to_list() == whole.rounds["bytes_up"].to_list()
    assert done.rounds["bytes_down"].sum() < whole.rounds["bytes_down"].sum()


def test_nothing_is_begun_where_it_is_refused(run: Any, tmp_path: Any) -> None:
    with pytest.raises(SettingError, match="broadcasts no vector"):
        run(METHODS["l2sgd"](**MINI), downlink=TopK(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
