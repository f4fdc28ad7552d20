"""Where the commands write: results to standard output, all else to standard error."""

from __future__ import annotations

import sys

from rich.console import Console

# A file or a pipe has no width of its own: lines of text are broken here, and tables are as wide as they are.
PIPE = 140
out = Console(highlight=False, width=None if sys.stdout.isatty() else PIPE)
err = Console(stderr=True, highlight=False)
