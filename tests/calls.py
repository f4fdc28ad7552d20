"""Which operators of ours are called."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class Called(TorchDispatchMode):
    """The operators of ours that are called, by name, and what they are given."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.given: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "descant":
            self.names.append(func._opname)
            self.given.append(args)
        return func(*args, **(kwargs or {}))
