"""What MkDocs calls: the parts of a page that come from the code are written anew when the site is built."""

from __future__ import annotations

from typing import Any

from pages import for_the_site


def on_page_markdown(markdown: str, **_: Any) -> str:
    return for_the_site(markdown)
