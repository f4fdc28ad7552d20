"""Every codec in whole runs: under every method, with what is counted being what was sent, and NaN refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import descant as dc
from descant import Task
from descant.attacks import Attack
from descant.codecs import (
    CODECS,
    DGC,
    LBGM,
    QSGD,
    BFloat16,
    Codec,
    CountSketch,
    Float16,
    Float32,
    Native,
    RandomK,
    Sign,
    SparseTernary,
    TopK,
    Uniform,
)
from descant.context import Context
from descant.draws import bits
from descant.engine.cohort import sample
from descant.errors import SettingError
from descant.mail import Mail
from descant.methods import METHODS, MOCHA, FedAvg, FineTune
from descant.trees import Tree

SMALL: list[Codec] = [
    *(Native(), Float32(), Float16(), BFloat16()),
    *(Uniform(bits=5), QSGD(bucket=16), TopK(share=0.2), RandomK(share=0.2), Sign()),
    *(SparseTernary(share=0.2), DGC(share=0.2, warmup=1), CountSketch(share=0.2, columns=0.1), LBGM(delta=0.9)),
]
EACH = pytest.mark.parametrize("codec", SMALL, ids=lambda codec: codec.name)


def test_all_codecs_are_here() -> None:
    assert {type(codec) for codec in SMALL} == set(CODECS.values())


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [name for name in METHODS if name != "mocha"])  # which trains linear models
@EACH
def test_every_codec_works_under_every_method_that_sends_vectors(run: Any, name: str, codec: Codec) -> None:
    method = METHODS[name](lr=0.05, steps=2, batch=4)
    if codec.updates and not method.sends and not method.mute:
        with pytest.raises(SettingError, match=f"codec: '{codec.name}' acts on updates"):
            run(method, rounds=1, codec=codec)
        return
    like = {"q": torch.zeros(1, 8)}
    remembers = codec.updates and bool(codec.memory(like) | codec.copies(like))
    changes = codec.updates and not isinstance(codec, Uniform)
    if (method.turns and remembers) or ("codec" in method.refuses and changes):
        with pytest.raises(SettingError, match="codec: "):
            run(method, rounds=1, codec=codec)
        return
    done = run(method, rounds=3, cohort=4, codec=codec)
    assert done.collapse is None
    assert sum(row["refused"] for row in done.history.rounds) == 0


@EACH
def test_so_does_every_codec_under_mocha(run: Any, codec: Codec) -> None:
    generator = torch.Generator().manual_seed(3)
    rows = [torch.randn(5, 8, generator=generator, dtype=torch.float64) for _ in range(5)]
    data = dc.FederatedData.from_arrays([{"train": (x, x.sum(1, keepdim=True))} for x in rows])
    task = Task(torch.nn.Linear(8, 1, bias=False).double(), loss="squared_error")
    done = run(MOCHA(lam=3.0, loss="squared", every=2), task=task, data=data, rounds=3, cohort=4, codec=codec)
    assert done.collapse is None and sum(row["refused"] for row in done.history.rounds) == 0


@EACH
def test_bytes_are_the_length_of_what_was_encoded(run: Any, codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[list[int]] = []
    plain = type(codec).encode

    def noted(self: Codec, ctx: Context, memory: Tree, mail: Mail) -> tuple[Tree, list[bytes]]:
        memory, payloads = plain(self, ctx, memory, mail)
        lengths.append([len(payload) for payload in payloads])
        return memory, payloads

    monkeypatch.setattr(type(codec), "encode", noted)
    done = run(FedAvg(lr=0.1, steps=3, batch=4), rounds=5, cohort=3, codec=codec)
    sent = done.rounds["bytes_up"].to_list()
    if codec.exact:  # a simulation need not encode what arrives as it is
        assert not lengths and sent == [3 * (4 + 8 * 43)] * 5
    else:
        assert sent == [sum(messages) for messages in lengths]
        assert max(sent) <= 3 * (4 + 1 + 8 * 43)


@dataclass(frozen=True, kw_only=True)
class Poison(Attack):
    """An attacker sends numbers of which some are not finite."""

    name = "poison"

    def forge(self, ctx: Context, state: Tree, mail: Mail, benign: Mail) -> tuple[Tree, Mail]:
        spoilt = {}
        for name, leaf in mail.items():
            if leaf.is_floating_point():
                spoilt[name] = leaf.clone()
                spoilt[name].view(len(leaf), -1)[:, 5] = torch.nan
        return state, mail.with_leaves(spoilt)


@EACH
def test_a_message_that_is_not_finite_is_refused_and_counted(run: Any, codec: Codec) -> None:
    how: dict[str, Any] = {"rounds": 4, "codec": codec, "malicious": [2], "attacks": [Poison()]}
    done = run(FedAvg(lr=0.1, steps=3, batch=4, weighted=False), **how)
    assert done.collapse is None
    assert [(row["received"], row["refused"]) for row in done.history.rounds] == [(6, 1)] * 4
    for value in done.shared().state_dict().values():
        assert bool(value.isfinite().all())


@pytest.mark.parametrize(("codec", "size"), [(Float32(), 4), (Float16(), 2), (BFloat16(), 2)], ids=str)
def test_plain_numbers_go_down_as_well(run: Any, codec: Codec, size: int) -> None:
    done = run(FedAvg(lr=0.1, steps=3, batch=4), rounds=2, codec=codec, downlink=codec)
    assert done.rounds["bytes_down"].to_list() == [7 * size * 43] * 2
    assert done.rounds["bytes_up"].to_list() == [7 * (size * 43 + 4)] * 2


SPECS: list[tuple[Any, Codec]] = [
    ("qsgd", QSGD()),
    ({"name": "qsgd", "levels": 3, "bucket": 8, "norm": "l2"}, QSGD(levels=3, bucket=8, norm="l2")),
    (
        {"name": "dgc", "share": 0.3, "warmup": 1, "clip": 2.0, "by_layer": True},
        DGC(**{"share": 0.3, "warmup": 1, "clip": 2.0, "by_layer": True}),
    ),
    ({"name": "sketch", "rows": 3, "columns": 0.2, "share": 0.1}, CountSketch(rows=3, columns=0.2, share=0.1)),
    ({"name": "lbgm", "delta": 0.5}, LBGM(delta=0.5)),
    ({"name": "random-k", "share": 0.2, "feedback": False}, RandomK(share=0.2, feedback=False)),
    ("sign", Sign()),
    ("bfloat16", BFloat16()),
]


@pytest.mark.few(1)
@pytest.mark.parametrize(("spec", "codec"), SPECS, ids=str)
def test_a_codec_by_name_or_mapping_is_the_object(run: Any, spec: Any, codec: Codec) -> None:
    method = FedAvg(lr=0.1, steps=2, batch=4)
    named, made = (run(method, rounds=3, cohort=4, codec=one) for one in (spec, codec))
    assert named.rounds.drop("seconds").equals(made.rounds.drop("seconds"))
    for ours, theirs in zip(named.shared().parameters(), made.shared().parameters(), strict=True):
        assert torch.equal(ours, theirs)


COMPRESSED = [QSGD(), DGC(share=0.1, warmup=2), CountSketch(share=0.1, columns=0.1), LBGM()]


@pytest.mark.few(1)
@pytest.mark.parametrize("codec", COMPRESSED, ids=lambda codec: codec.name)
def test_a_compressed_shared_model_is_personalised_by_steps_on_the_clients_own_data(
    run: Any, task: Task, data: dc.FederatedData, codec: Codec
) -> None:
    """lp-proj (Lin et al., 2024) compares with these: the global model, then gradient steps on each client's data.

    The shared model and the bytes are those of FedAvg with the same codec; the personal models are two full-batch
    steps away from it.
    """
    solver = FedAvg(lr=0.1, steps=3, batch=4)
    tuned = run(FineTune(solver=solver, lr=0.3, steps=2, batch=None), rounds=6, cohort=3, codec=codec)
    plain = run(solver, rounds=6, cohort=3, codec=codec)
    assert tuned.rounds["bytes_up"].to_list() == plain.rounds["bytes_up"].to_list()
    for ours, theirs in zip(
        tuned.shared(round="last").parameters(), plain.shared(round="last").parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
    for k in range(len(data)):
        model = plain.shared(round="last")
        inputs, targets = data.train.client(k)
        for _ in range(2):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            for p, slope in zip(model.parameters(), torch.autograd.grad(loss, model.parameters()), strict=True):
                p.data -= 0.3 * slope
        for ours, theirs in zip(tuned.personal(k, round="last").parameters(), model.parameters(), strict=True):
            assert torch.allclose(ours, theirs, rtol=0, atol=1e-12)


def test_qsgd_in_a_run_is_a_plain_loop(
    run: Any, point: Task, points: dc.FederatedData, means: torch.Tensor
) -> None:
    method = FedAvg(lr=0.1, steps=3, batch=None, weighted=False)
    done = run(method, task=point, data=points, rounds=8, cohort=3, codec=QSGD(levels=3))
    w, ups = point.start(), 0
    for t in range(1, 9):
        total = torch.zeros(2).double()
        for k in sample(5, t, 3, torch.ones(4)).tolist():
            update = means[k] + 0.9**3 * (w - means[k]) - w
            norm = max(abs(float(number)) for number in update)
            word = int(bits(5, "each", t, "qsgd delta 0", k, 0)) % 2**64
            for i, number in enumerate(update.tolist()):
                drawn = (((word >> 32 * i & 0xFFFFFFFF) + 2**31) % 2**32 + 0.5) / 2**32
                exact = 3 * abs(number) / norm
                up = drawn < exact - int(exact)
                ups += up
                total[i] += (1 if number > 0 else -1) * norm * (int(exact) + up) / 3
        w = w + total / 3
    assert torch.allclose(done.shared(round="last").at, w, rtol=0, atol=1e-12) and 0 < ups < 24


def test_a_method_that_sends_nothing_runs_beside_others_under_any_codec(run: Any) -> None:
    assert (
        sum(row["bytes_up"] for row in run(METHODS["local"](steps=1), rounds=1, codec=TopK()).history.rounds) == 0
    )
