"""The command `descant`."""

from descant.cli.app import main

__all__ = ["main"]
