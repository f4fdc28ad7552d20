"""The reference parts of the pages, written into them: so that they read in the repository as they stand.

    python docs/pages.py          write what the code and the example files say now (`make docs` does it first)

Between `<!-- generated: NAME -->` and `<!-- end -->` stands what `from_code.py` says of the code; the block after
`<!-- file: PATH -->` is that file. A test fails where a page is behind.
"""

from __future__ import annotations

import re
from pathlib import Path

from from_code import PAGES

ROOT = Path(__file__).parents[1]
_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$.*?^<!-- end -->$", flags=re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"(^<!-- file: (\S+) -->\n```\S+\n).*?(^```$)", flags=re.MULTILINE | re.DOTALL)


def for_the_site(markdown: str) -> str:
    """A page with what the code says now, as MkDocs sets it: with the source of every method."""
    return _GENERATED.sub(lambda found: PAGES[found[1]](), markdown)


def as_it_stands(markdown: str) -> str:
    """A page with what the code and the files say now, as a repository shows it."""

    def generated(found: re.Match[str]) -> str:
        return f"<!-- generated: {found[1]} -->\n{plain(PAGES[found[1]]())}\n<!-- end -->"

    def included(found: re.Match[str]) -> str:
        return found[1] + (ROOT / found[2]).read_text(encoding="utf-8") + found[3]

    return _GENERATED.sub(generated, _FILE.sub(included, markdown))


def plain(text: str) -> str:
    """Markdown without what MkDocs alone understands."""
    text = re.sub(r'^\?\?\? note ".*?"\n(?:\n|    .*\n?)*', "", text, flags=re.MULTILINE)  # folded source
    text = re.sub(r"^(#+ .*) \{: #(.*) \}$", r'<a id="\2"></a>\n\n\1', text, flags=re.MULTILINE)
    return text.replace("```python\n", "```py\n").replace("```sh\n", "```text\n").strip("\n")  # not to be run


def main() -> None:
    for page in sorted((ROOT / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (fresh := as_it_stands(text)) != text:
            page.write_text(fresh, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()
