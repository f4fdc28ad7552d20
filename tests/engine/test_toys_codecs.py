"""Codecs with memory in whole runs: DGC and LBGM against plain loops, top-k at both ends, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from toys.codecs import Spoiled, Unable

from descant import FederatedData, Task
from descant.codecs import DGC, LBGM, QSGD, Float16, TopK
from descant.draws import uniform
from descant.errors import SettingError
from descant.mail import Sent
from descant.methods import FLAME, FedADMM, FedAvg, FedPlus, LpProj, Method, Scaffold
from tests import held
from tests.engine.points import LR, PLAIN, SEED, N, close, cohort_of, pulled


def test_dgc_gathers_momentum_and_clears_what_was_sent(
    run: Any, point: Task, points: FederatedData, means: Tensor
) -> None:
    done = run(PLAIN, task=point, data=points, rounds=8, cohort=3, codec=DGC(share=0.5, beta=0.8, warmup=0))
    w, momentum, residual = point.start(), np.zeros((N, 2)), np.zeros((N, 2))
    for t in range(1, 9):
        total = torch.zeros(2).double()
        for k in cohort_of(t, 3):
            momentum[k] = 0.8 * momentum[k] + pulled(w, means[k]).numpy()
            residual[k] += momentum[k]
            i = int(np.argmax(np.abs(residual[k])))
            total[i] += residual[k, i]
            residual[k, i] = momentum[k, i] = 0.0
        w = w + total / 3
    close(held.shared(done), w)
    kept = held.by_clients(done)
    close(kept["codec.delta.momentum"], torch.tensor(momentum))
    close(kept["codec.delta.residual"], torch.tensor(residual))
    assert [row["bytes_up"] for row in done.history.rounds] == [3 * (1 + 8)] * 8


@pytest.mark.few(1)
@pytest.mark.parametrize("lost", [0.0, 0.4])
def test_lbgm_sends_a_number_where_the_direction_is_an_old_one(
    run: Any, point: Task, points: FederatedData, means: Tensor, lost: float
) -> None:
    codec = LBGM(delta=0.02)
    done = run(PLAIN, task=point, data=points, rounds=12, cohort=3, codec=codec, lost=lost)
    w, whole, spent, scalars = point.start(), np.zeros((N, 2)), [0] * N, 0
    for t in range(1, 13):
        read = []
        for k in cohort_of(t, 3):
            new = pulled(w, means[k]).numpy()
            cosine = new @ whole[k] / max(np.linalg.norm(new) * np.linalg.norm(whole[k]), 1e-300)
            same = 1 - cosine**2 <= 0.02
            sent = (new @ whole[k]) / (whole[k] @ whole[k]) * whole[k] if same else new
            spent[k] += 1 + 8 * (1 if same else 2)
            if float(uniform(SEED, "lost", t, k)) < lost:
                continue  # neither end remembers what was lost
            scalars += same
            read.append(sent)
            whole[k] = whole[k] if same else new
        w = w + torch.tensor(np.mean(read, 0)) if read else w
    assert scalars >= 3
    close(held.shared(done), w)
    close(held.by_clients(done)["codec.delta.whole"], torch.tensor(whole))
    close(held.simulation(done).server.copies.leaves["codec.delta.whole"], torch.tensor(whole))
    assert done.history.spent[12]["bytes_up"].tolist() == spent, "everyone pays for the length of its own payloads"


SENDERS: list[Method] = [
    FLAME(lr=LR, steps=3, batch=4, rho=0.5),
    FedADMM(lr=LR, steps=3, batch=4),
    FedPlus(lr=LR, steps=3, batch=4),
]


@pytest.mark.few(1)
@pytest.mark.parametrize("method", SENDERS, ids=lambda m: m.name)
@pytest.mark.parametrize(
    "codec", [TopK(share=0.1), LBGM(delta=0.3), QSGD(levels=2, bucket=9)], ids=lambda c: c.name
)
def test_both_ends_keep_the_same_copy_of_what_was_sent_last(run: Any, method: Method, codec: Any) -> None:
    done = run(method, rounds=12, cohort=3, lost=0.3, codec=codec)
    (name,) = method.sends
    mine = held.by_clients(done)[f"sent.{name}"]
    copies = held.simulation(done).server.copies.leaves[f"sent.{name}"]
    assert torch.equal(mine, copies)
    assert torch.equal(copies, held.by_server(done)[method.held[0]]), "and the method's server holds it too"
    assert 0 < sum(row["lost"] for row in done.history.rounds) < 36
    assert len(torch.unique(mine, dim=0)) > 5


def test_sparse_flame_is_a_plain_loop(run: Any, point: Task, points: FederatedData, means: Tensor) -> None:
    """One of two entries travels, of what u_i moved by since what the server holds: what was not sent is in it."""
    lam, rho, alpha = 0.7, 0.5, 1 / N
    method = FLAME(lr=LR, steps=3, batch=None, lam=lam, rho=rho)
    done = run(method, task=point, data=points, rounds=10, cohort=3, codec=TopK(share=0.5), lost=0.3)
    x0 = point.start()
    w, u, theta, w_i = x0.clone(), x0.repeat(N, 1), x0.repeat(N, 1), x0.repeat(N, 1)
    pi = torch.zeros(N, 2).double()
    for t in range(1, 11):
        news = {}
        for k in cohort_of(t, 3):
            for _ in range(3):
                theta[k] = theta[k] - LR * (theta[k] - means[k] + lam * (theta[k] - w_i[k]))
            w_i[k] = (lam * alpha * theta[k] + rho * w - pi[k]) / (lam * alpha + rho)
            pi[k] = pi[k] + rho * (w_i[k] - w)
            wanted = w_i[k] + pi[k] / rho - u[k]
            i = int(wanted.abs().argmax())
            if float(uniform(SEED, "lost", t, k)) >= 0.3:
                news[k] = (i, wanted)
        for k, (i, wanted) in news.items():
            u[k, i] += wanted[i]
        w = u.mean(0) if news else w
    state, kept = held.by_server(done), held.by_clients(done)
    for found, expected in ((state["w"], w), (state["u"], u), (kept["theta"], theta), (kept["pi"], pi)):
        close(found, expected)
    assert not kept["codec.u.residual"].any()  # nothing is owed


@pytest.mark.few(1)
@pytest.mark.parametrize("method", [FedAvg(lr=LR, epochs=2, batch=3), Scaffold(lr=LR, steps=4, batch=3)])
def test_top_k_of_everything_is_no_codec(run: Any, method: Method) -> None:
    whole, plain = (run(method, rounds=4, cohort=4, **how) for how in ({"codec": TopK(share=1.0)}, {}))
    assert torch.equal(held.shared(whole), held.shared(plain))
    assert all(not leaf.any() for name, leaf in held.by_clients(whole).items() if name.endswith("residual"))


def test_half_precision_costs_half(run: Any, point: Task, points: FederatedData) -> None:
    method = FedAvg(lr=LR, steps=3, batch=None)
    half, plain = (run(method, task=point, data=points, **how) for how in ({"codec": Float16()}, {}))
    assert [row["bytes_up"] for row in half.history.rounds] == [N * (2 * 2 + 4)] * 3
    one, other = (held.shared(done) for done in (half, plain))
    assert 0 < float((one - other).abs().max()) < 1e-2


@pytest.mark.parametrize("method", [PLAIN, FLAME(lr=LR, steps=3, batch=None)], ids=lambda m: m.name)
def test_what_cannot_be_decoded_is_refused_and_counted(
    run: Any, point: Task, points: FederatedData, method: Method
) -> None:
    done = run(method, task=point, data=points, rounds=4, codec=Spoiled(share=0.5, bad=(1, 2)))
    rows = done.history.rounds
    assert done.collapse is None
    assert [(row["received"], row["refused"], row["lost"]) for row in rows] == [(2, 2, 0)] * 4
    assert [row["bytes_up"] for row in rows] == [4 * 9 - 2] * 4, "they were sent, and are paid for"
    kept = held.by_clients(done)
    residual = next(leaf for name, leaf in kept.items() if name.endswith("residual"))
    assert not residual[[1, 2]].any(), "who was not read remembers nothing of it"
    assert residual[[0, 3]].any(1).all() == (method is PLAIN), "what is left of a position is in the next one"
    if "sent.u" in kept:
        assert torch.equal(kept["sent.u"], held.simulation(done).server.copies.leaves["sent.u"])


def test_what_cannot_be_encoded_is_refused_and_counted(
    run: Any, point: Task, points: FederatedData, means: Tensor
) -> None:
    done = run(PLAIN, task=point, data=points, rounds=2, codec=Unable(bad=(0,)), secret=3)
    rows = done.history.rounds
    assert [(row["received"], row["refused"], row["bytes_up"]) for row in rows] == [(3, 1, 48)] * 2
    w = point.start()
    for t in (1, 2):  # and the others add their own noise, as they would have without it
        noise = held.simulation(done).context(t).of_parties(torch.tensor([1, 2, 3])).private.normal("delta", (2,))
        w = w + (pulled(w, means[1:]) + noise).mean(0)
    close(held.shared(done), w)


@pytest.mark.parametrize("codec", [Spoiled(share=0.5, bad=(0, 1, 2, 3)), Unable(bad=(0, 1, 2, 3))])
def test_where_nothing_can_be_read_the_run_collapses(
    run: Any, point: Task, points: FederatedData, codec: Any
) -> None:
    done = run(PLAIN, task=point, data=points, rounds=2, codec=codec)
    assert done.collapse is not None and done.collapse.round == 1


class Speechless(FedAvg):
    """FedAvg that does not say what its messages are."""

    @property
    def sends(self) -> Mapping[str, Sent]:
        return {}


def test_a_codec_of_updates_needs_a_method_that_says_what_it_sends(run: Any) -> None:
    with pytest.raises(SettingError, match="does not say what it sends"):
        run(Speechless(), codec=TopK())
    run(LpProj(lr=LR, steps=2, dim=5), codec=TopK(share=0.5))
