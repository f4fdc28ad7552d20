"""What the server says of its broadcast: how it moved since everybody heard it, and what that takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import descant as dc
from descant import FederatedData, Task
from descant.codecs import DGC, LBGM, QSGD, Codec, RandomK, Sign, SparseTernary, TopK, Uniform
from descant.context import Context
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import METHODS, Ditto, FedAvg, FedAvgM, Method, Scaffold
from descant.trees import Tree
from tests import held
from tests.engine.points import PLAIN, N, close, cohort_of, pulled

MINI: dict[str, Any] = {"lr": 0.1, "steps": 3, "batch": 4}
UPDATES: list[Codec] = [  # but count sketches: of two numbers they are wrong
    *(TopK(share=0.2), RandomK(share=0.2), Sign(), SparseTernary(share=0.2), QSGD(bucket=16), Uniform(bits=5)),
    *(DGC(share=0.2, warmup=1), LBGM(delta=0.5)),
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
def test_a_server_that_stands_still_is_heard_better_and_better(
    run: Any, point: Task, points: FederatedData, codec: Codec
) -> None:
    """Everyone trains to the mean of all points. In the end all that was to be said has been said."""
    done = run(FedAvg(lr=1.0, steps=1, batch=None), task=point, data=points, rounds=80, downlink=codec)
    w = held.shared(done)
    close(w, points.train.targets.mean(0))
    assert float((held.personal(done)[0] - w).norm()) < 1e-2 * float((point.start() - w).norm())


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


def test_a_broadcast_that_overflows_is_a_collapse(run: Any) -> None:
    done = run(FedAvg(lr=1e200, steps=3, batch=4), rounds=9, nonfinite="keep", downlink=SparseTernary())
    assert done.collapse is not None and done.collapse.round <= 3


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [name for name in METHODS if name != "mocha"])  # which trains linear models
def test_every_method_says_how_its_broadcast_moved_or_is_refused_by_name(run: Any, name: str) -> None:
    method = METHODS[name](**MINI)
    refused = {
        "local": "broadcasts no vector",
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


def test_a_codec_whose_error_may_grow_is_refused(run: Any) -> None:
    said = r"downlink: 'qsgd' says how the broadcast 'w' moved .* max, 4 levels"
    with pytest.raises(SettingError, match=said):
        run(FedAvg(**MINI), downlink=QSGD(levels=2, norm="l2"))


def test_nothing_is_begun_where_it_is_refused(run: Any, tmp_path: Any) -> None:
    with pytest.raises(SettingError, match="broadcasts no vector"):
        run(METHODS["local"](**MINI), downlink=TopK(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
