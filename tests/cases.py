"""Cases of a parametrised test, of which the quick suite tries a few."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest


def cases(all_of_them: Mapping[str, Any], quick: Collection[str]) -> list[Any]:
    """Each case under its name; those that are not in `quick` are slow."""
    assert set(quick) <= set(all_of_them), set(quick) - set(all_of_them)
    return [
        pytest.param(case, id=name, marks=() if name in quick else pytest.mark.slow)
        for name, case in all_of_them.items()
    ]
