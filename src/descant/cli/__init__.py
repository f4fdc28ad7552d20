"""The command `descant`."""

from descant.cli.main import main

__all__ = ["main"]
