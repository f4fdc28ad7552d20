"""An aggregator, an attack and a codec of one's own, used together:   python examples/new_parts.py

A settings file names them by their import paths, as in `aggregator: new_parts:Closest`.
"""

from dataclasses import dataclass

import numpy as np
import torch

from descant.aggregators import Aggregator
from descant.attacks import Attack
from descant.codecs import UpdateCodec


@dataclass(frozen=True, kw_only=True)
class Closest(Aggregator):
    """The mean of those messages, a share `keep` of them, that are closest to their coordinate-wise median."""

    name = "closest"
    keep: float = 0.75

    def __call__(self, leaves, weights=None, record=lambda name, value: None):  # leaves [S, ...] of S senders
        first = next(iter(leaves.values())).flatten(1)
        far = (first - first.median(0).values).norm(dim=1)  # [S]
        kept = far.argsort()[: max(1, round(self.keep * len(far)))]
        record("left_out", len(far) - len(kept))  # a figure of the round
        return {name: leaf[kept].mean(0) for name, leaf in leaves.items()}


@dataclass(frozen=True, kw_only=True)
class Against(Attack):
    """Attackers who know the others' messages all send minus `tau` times their mean."""

    name = "against"
    tau: float = 5.0

    def forge(self, ctx, state, mail, benign):  # mail: what the attackers would honestly send
        numbers = [name for name, leaf in mail.items() if leaf.is_floating_point()]
        forged = {name: (-self.tau * benign[name].mean(0)).expand_as(mail[name]) for name in numbers}
        return state, mail.with_leaves(forged)


@dataclass(frozen=True, kw_only=True)
class Bytes(UpdateCodec):
    """Every number of an update as a byte: 127 steps up and down to the largest number of its message."""

    name = "bytes"

    def pack(self, leaf, memory, update):  # update [S, n]
        top = update.abs().amax(1, keepdim=True).clamp(min=1e-30)
        steps = (127 * update / top).round().to(torch.int8)
        rows = zip(top.float().cpu().numpy(), steps.cpu().numpy(), strict=True)
        return memory, [largest.tobytes() + row.tobytes() for largest, row in rows]

    def unpack(self, leaf, copies, payloads, like):  # like [S, n]: what comes out has its type
        data = np.array([np.frombuffer(payload, np.uint8) for payload in payloads])
        top, steps = (torch.from_numpy(part.copy()) for part in (data[:, :4], data[:, 4:]))
        return copies, steps.view(torch.int8).to(like) / 127 * top.view(torch.float32).to(like)


if __name__ == "__main__":
    import descant as dc

    torch.manual_seed(0)  # for the parameters that the model starts from
    data = dc.data.digits(clients=20, labels=5)
    task = dc.Task(dc.models.linear(data))
    how = {"rounds": 20, "attacks": Against(), "malicious": 0.2, "codec": Bytes()}
    for aggregator in ("mean", Closest()):
        run = dc.simulate(task, data, dc.methods.FedAvg(steps=20), aggregator=aggregator, **how)
        figures = run.summary()
        accuracy = figures["personal.test_accuracy.mean@chosen_on_valid"]
        print(f"{run.config['aggregator']['name']:20} accuracy {accuracy:.3f}, {figures['bytes_up']:,} B up")
