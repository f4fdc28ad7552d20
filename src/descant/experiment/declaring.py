"""What it means to declare a setting: an entry says all there is to know of it, and a declaration checks values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from descant.errors import SettingError, unknown
from descant.experiment.allowed import Allowed

# "result": the run's figures follow from it. "how": it changes at most their last digits, how fast they come, or
# where they are kept. "label": a name. "call": a matter of this call, that no run records.
Role = Literal["result", "how", "label", "call"]

_REQUIRED: Any = object()


@dataclass(frozen=True)
class Setting:
    """What is declared of a setting, apart from its name and its type."""

    help: str
    role: Role
    allowed: Allowed
    default: Any
    accepts: str | None  # what `simulate` takes, where that is more than the setting's own type

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED


def setting(
    help: str, role: Role, allowed: Allowed, default: Any = _REQUIRED, *, accepts: str | None = None
) -> Any:
    """A field of a declaration; without a default the setting has to be given."""
    return field(metadata={"setting": Setting(help, role, allowed, default, accepts)})


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """Settings, each declared by a field. `of` checks and makes them."""

    @classmethod
    def of(cls, values: Mapping[str, Any], at: Mapping[str, str] | None = None) -> Self:
        """Checked settings. What is wrong is said by name, or by where the user wrote it (`at`), with its value."""
        known, at = declared(cls), at or {}
        for name in values:
            if name not in known:
                raise SettingError(f"{at[name]}: {cls.unknown(name)}") if name in at else cls.unknown(str(name))
        missing = [name for name, entry in known.items() if entry.required and name not in values]
        if missing:
            raise SettingError("\n".join(f"the setting '{name}' is missing" for name in missing))
        checked = {
            name: entry.allowed.check(at.get(name, name), values.get(name, entry.default))
            for name, entry in known.items()
        }
        settings = cls(**checked)
        settings.check(at)
        return settings

    def check(self, at: Mapping[str, str]) -> None:
        """Refuse settings that do not go with each other, by name or by where the user wrote them (`at`)."""

    @classmethod
    def unknown(cls, name: str, known: Iterable[str] | None = None) -> SettingError:
        """The error for a setting that there is not, among those that are `known`: by default the declared."""
        return unknown("setting", name, declared(cls) if known is None else known)

    def plain(self, *roles: Role) -> dict[str, Any]:
        """The settings of these roles as a file or a record holds them; without a role, all of them."""
        return {
            name: entry.allowed.plain(getattr(self, name))
            for name, entry in declared(type(self)).items()
            if not roles or entry.role in roles
        }

    def identity(self) -> dict[str, Any]:
        """What the result follows from, without what is as by default: a new setting changes nothing here."""
        found = {}
        for name, entry in declared(type(self)).items():
            if entry.role != "result":
                continue
            allowed = entry.allowed
            value = allowed.brief(getattr(self, name))
            if entry.required or value != allowed.brief(allowed.check(name, entry.default)):
                found[name] = value
        return found


def declared(of: type[Declaration]) -> dict[str, Setting]:
    """The entries of a declaration by name."""
    return {f.name: f.metadata["setting"] for f in fields(of)}
