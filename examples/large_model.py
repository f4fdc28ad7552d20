"""A large model and a thin line: lp-proj trains a ResNet-34 and sends 600 numbers:   python examples/large_model.py

A dense 600 x d matrix would take 52 GB. A hash takes 2.4 kB, and so does a message. `python examples/large_model.py
hadamard` takes another one, and `blocks` the block-diagonal P of lp-proj's section 6.1, with one block for all.
"""

import sys

import torch

import descant as dc

torch.manual_seed(0)  # for the images, and for the parameters that the model starts from
patterns = torch.randn(4, 3, 64, 64)  # of four of ImageNet's thousand classes
labels = {"north": torch.tensor([0, 1] * 4), "south": torch.tensor([2, 3] * 4)}
data = dc.FederatedData.from_arrays(
    {name: {"train": (patterns[y] + 0.5 * torch.randn(8, 3, 64, 64), y)} for name, y in labels.items()},
    classes=1000,
)
task = dc.Task(dc.models.resnet34(data))
kind = sys.argv[1] if len(sys.argv) > 1 else "hash"
P = {"name": "block-diagonal", "blocks": 50, "shared": True} if kind == "blocks" else kind
method = {"name": "lp-proj", "dim": 600, "projection": P, "p": 2, "lr": 0.05, "steps": 2, "batch": 8}
on_training = dc.Evaluation(parts=("train",), models=("personal",))
run = dc.simulate(task, data, method, rounds=3, evaluate=on_training, keep_models="none", mode="loop")

losses = [run.history.figure("personal", t, "train_loss")["mean"] for t in range(4)]
print(f"{task.dim:,} parameters; training loss by round: {', '.join(f'{loss:.2f}' for loss in losses)}")
print(f"a message: {run.summary()['bytes_up'] // (2 * 3):,} bytes, which are 600 numbers")
