"""Where the commands write: results to standard output, all else to standard error."""

from __future__ import annotations

import sys

from rich.console import Console

# A file or a pipe has no width of its own: take one that the tables fit.
out = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
err = Console(stderr=True, highlight=False)
