"""What MkDocs calls: `<!-- generated: NAME -->` in a page becomes what `from_code.py` says of the code as it is."""

from __future__ import annotations

import re
from typing import Any

from from_code import PAGES

_MARK = re.compile(r"^<!-- generated: (.+) -->$", flags=re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _MARK.sub(lambda found: PAGES[found[1]](), markdown)
