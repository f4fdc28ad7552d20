"""How fast codecs encode and decode: GB/s of one update, beside a plain copy of the same memory.

    python benchmarks/codecs.py [--entries 10000000] [--only qsgd,dgc] [--threads 1] [--results FILE]

The update is normal numbers in single precision. A GB is 1e9 bytes of that vector, whatever its message is long. A
figure is the best of `--times` calls, after one that is not counted; a client's second message is timed, so that
codecs with memory have some. 'in copies' is the time of the codec over that of a copy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import nn

from descant import Task
from descant.codecs import CODECS, Codec
from descant.context import Context
from descant.mail import Mail

SIDES = ("encode", "decode")


def best(times: int, call: Callable[[], object]) -> float:
    """The seconds of the fastest of some calls, after one more."""
    call()
    seconds = []
    for _ in range(times):
        began = perf_counter()
        call()
        seconds.append(perf_counter() - began)
    return min(seconds)


def second_message(codec: Codec, entries: int) -> tuple[Mail, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The mail of a client that has sent one message, with what both ends remember of that."""
    task, generator = Task(nn.Linear(1, 1)), torch.Generator().manual_seed(0)
    memory, copies = {}, {}
    for round in (1, 2):
        leaf = torch.randn(1, entries, generator=generator)
        ctx = Context(round, 0, 1, task.layout, task.start())
        mail = Mail.of({"x": leaf}, torch.zeros(1, dtype=torch.int64), ctx.of_parties(torch.zeros(1).long()))
        mail = replace(mail, references={"x": torch.zeros_like(leaf)})
        if round == 1:
            memory, copies = codec.memory({"x": leaf}), codec.copies({"x": leaf})
            memory, payloads = codec.encode(mail.ctx, memory, mail)
            copies, _ = codec.decode(mail.ctx, copies, payloads, blank(mail))
    return mail, memory, copies


def blank(mail: Mail) -> Mail:
    return replace(mail, leaves=mail.form.blank(1))


def measure(codec: Codec, entries: int, times: int) -> dict[str, float]:
    """GB/s of both directions, and the bytes of the message."""
    mail, memory, copies = second_message(codec, entries)
    _, payloads = codec.encode(mail.ctx, memory, mail)
    seconds = {
        "encode": best(times, lambda: codec.encode(mail.ctx, memory, mail)),
        "decode": best(times, lambda: codec.decode(mail.ctx, copies, payloads, blank(mail))),
    }
    rates = {name: 4 * entries / 1e9 / taken for name, taken in seconds.items()}
    return rates | {"bytes": len(payloads[0]), "bits an entry": 8 * len(payloads[0]) / entries}


def copied(entries: int, times: int) -> float:
    """GB/s of a plain copy, of bytes that are read once and written once."""
    source = torch.randn(entries, generator=torch.Generator().manual_seed(0))
    target = torch.empty_like(source)
    return 4 * entries / 1e9 / best(times, lambda: target.copy_(source))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--only", help="names of codecs, with commas between them")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--results", type=Path, help="write every figure as JSON to this file")
    asked = parser.parse_args()
    names = asked.only.split(",") if asked.only else list(CODECS)
    if unknown := [name for name in names if name not in CODECS]:
        parser.error(f"there is no codec {', '.join(unknown)}; known: {', '.join(CODECS)}")
    torch.set_num_threads(asked.threads)
    copy = copied(asked.entries, asked.times)
    print(f"{asked.entries:,} entries, {asked.threads} thread(s); a plain copy: {copy:.2f} GB/s")
    print(f"{'codec':10}" + "".join(f" {s:>7} GB/s in copies" for s in SIDES) + "  bits an entry")
    found: dict[str, Any] = {"entries": asked.entries, "threads": asked.threads, "copy": copy, "codecs": {}}
    for name in names:
        row = found["codecs"][name] = measure(CODECS[name](), asked.entries, asked.times)
        sides = "".join(f" {row[s]:12.3f} {copy / row[s]:10.1f}" for s in SIDES)
        print(f"{name:10}{sides} {row['bits an entry']:13.2f}", flush=True)
    if asked.results:
        asked.results.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
