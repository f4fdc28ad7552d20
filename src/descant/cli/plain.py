"""Typer without its markup, so that brackets in help texts are brackets; and a path is never an empty name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

from descant.errors import SettingError, unknown


def _unescape(formatter: click.HelpFormatter) -> None:
    """Typer escapes brackets for a markup that these texts do not have."""
    formatter.buffer[:] = [text.replace("\\[", "[") for text in formatter.buffer]


class _Named(click.Path):
    """A path. An empty one, which a shell makes of a variable that is not set, would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            where = "a path" if param is None else param.get_error_hint(ctx)
            raise SettingError(f"{where} is an empty name: give a path (is a variable of the shell not set?)")
        return super().convert(value, param, ctx)


class _OneOf(click.Choice):  # type: ignore[type-arg]
    """One of a few words. Another is refused in one line, with the nearest of them."""

    def __init__(self, of: click.Choice[Any]) -> None:
        super().__init__(of.choices, of.case_sensitive)
        self._of = of

    def normalize_choice(self, choice: Any, ctx: click.Context | None) -> str:
        return self._of.normalize_choice(choice, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._of.convert(value, param, ctx)
        except click.BadParameter:
            name = "value" if param is None else str(param.name)
            raise unknown(name, str(value), map(str, self.choices)) from None


class _Command(TyperCommand):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        for param in self.params:
            if isinstance(param.type, click.Path):
                param.type = _Named()
            elif isinstance(param.type, click.Choice):
                param.type = _OneOf(param.type)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        _unescape(formatter)


class _Group(TyperGroup):
    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_help(ctx, formatter)
        _unescape(formatter)


class App(typer.Typer):
    """A Typer application whose commands print plain help and take no empty paths."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cls=_Group, rich_markup_mode=None, no_args_is_help=True, **settings)

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        return super().command(name, cls=_Command, **settings)
