"""What a list says of a part is whole sentences."""

from __future__ import annotations

import pytest

from descant.kinds import CATALOG
from descant.listing import entries


@pytest.mark.parametrize("kind", sorted(CATALOG))
def test_a_summary_ends_with_its_sentence(kind: str) -> None:
    for entry in entries(kind):
        assert entry["summary"].endswith((".", "?", "!")), f"{kind} {entry['name']}: {entry['summary']}"
        assert "\n" not in entry["summary"]
