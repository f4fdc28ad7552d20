"""Typer without its markup: help texts are plain, and brackets in them are brackets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperGroup


def _unescape(formatter: click.HelpFormatter) -> None:
    """Typer escapes brackets for a markup that these texts do not have."""
    formatter.buffer[:] = [text.replace("\\[", "[") for text in formatter.buffer]


class _Command(TyperCommand):
    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        _unescape(formatter)


class _Group(TyperGroup):
    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        _unescape(formatter)


class App(typer.Typer):
    """A Typer application whose commands print plain help."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, rich_markup_mode=None, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        return super().command(name, cls=_Command, **settings)
