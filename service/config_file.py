"""From a TOML file, the environment and flags to a `Config`.

One file; `DRAGOMAN_<SECTION>__<FIELD>` overrides it ("DRAGOMAN_SERVER__LISTEN"), and flags override both. A name that
does not exist is an error that tells the nearest one that does; all faults are told in one message.
"""

from __future__ import annotations

import difflib
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.config import Config
from service.errors import ConfigError

__all__ = ["load_config"]

_PREFIX = "DRAGOMAN_"
_AUTO = "auto"
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class _Setting:
    """One value that somebody set, and where."""

    section: str
    name: str
    value: Any
    origin: str


class _FaultError(ValueError):
    """One fault of one setting."""


def load_config(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[tuple[str, str], object] | None = None,
) -> Config:
    """Read the configuration.

    Args:
        path: A TOML file with one table a section. None: no file.
        environ: The environment; only names with the prefix `DRAGOMAN_` and a double underscore are read.
        flags: Values from the command line, by section and field.

    Returns:
        The settings, checked.

    Raises:
        ConfigError: With every fault in one message.
    """
    faults: list[str] = []
    settings = [*_from_file(path, faults), *_from_environment(environ or {}, faults)]
    settings += [_Setting(*key, value, "the command line") for key, value in (flags or {}).items()]
    values: dict[str, dict[str, Any]] = {}
    for setting in settings:
        try:
            value = _checked(setting)
        except _FaultError as fault:
            faults.append(f"{setting.origin}: {fault}")
        except ConfigError as error:  # a section knows its fields, not its own name
            fault_text = str(error).rstrip(".").replace("`", f"`{setting.section}.", 1)
            faults.append(f"{setting.origin}: {fault_text}")
        else:
            values.setdefault(setting.section, {})[setting.name] = value
    if faults:
        text = "; ".join(faults)
        raise ConfigError(f"The configuration is wrong: {text}{'' if text.endswith('?') else '.'}")
    return Config(**{name: _section_type(name)(**fields) for name, fields in values.items()})


def _from_file(path: Path | None, faults: list[str]) -> Iterable[_Setting]:
    if path is None:
        return
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        faults.append(f"{path}: {error.strerror}")
        return
    except (ValueError, RecursionError) as error:  # not only TOML's own: UTF-8, depth, digits
        faults.append(f"{path}: not valid TOML: {str(error).rstrip('.')}")
        return
    for section, table in document.items():
        if not isinstance(table, dict):
            faults.append(f"{path}: `{section}` must stand in a section such as [server]")
            continue
        for name, value in table.items():
            yield _Setting(section, name, value, str(path))


def _from_environment(environ: Mapping[str, str], faults: list[str]) -> Iterable[_Setting]:
    names = {name.replace("_", ""): name for name in _variables()}
    for key in sorted(environ):
        if not key.startswith(_PREFIX):
            continue
        intended = names.get(key.upper().replace("_", ""), key)
        if (
            key.upper() != intended.upper()
        ):  # else a single underscore would be ignored without a word
            faults.append(f"{key}: did you mean `{intended}`?")
            continue
        if "__" not in key:
            continue
        section, _, name = key[len(_PREFIX) :].lower().partition("__")
        try:
            kind = _field_types(section).get(name)
            value = _from_text(environ[key], kind) if kind is not None else environ[key]
        except _FaultError as fault:
            faults.append(f"{key}: {fault}")
        else:
            yield _Setting(section, name, value, key)


def _variables() -> Iterable[str]:
    """Name every setting as the environment does."""
    for section in typing.get_type_hints(Config):
        for name in _field_types(section):
            yield f"{_PREFIX}{section}__{name}".upper()


def _checked(setting: _Setting) -> Any:
    """Check one setting alone: its name, its type, and its section's rules with all else at the defaults."""
    kinds = _field_types(setting.section)
    if setting.name not in kinds:
        raise _FaultError(
            f"`{setting.section}.{setting.name}` does not exist{_nearest(setting.name, kinds)}"
        )
    value = _converted(setting, kinds[setting.name])
    _section_type(setting.section)(**{setting.name: value})
    return value


def _field_types(section: str) -> dict[str, Any]:
    return typing.get_type_hints(_section_type(section))


def _section_type(section: str) -> Any:
    kinds = typing.get_type_hints(Config)
    if section not in kinds:
        raise _FaultError(f"section `{section}` does not exist{_nearest(section, kinds)}")
    return kinds[section]


def _nearest(name: str, valid: Iterable[str]) -> str:
    names = sorted(valid)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f", did you mean `{close[0]}`?"
    return ", valid are: " + ", ".join(f"`{each}`" for each in names)


def _converted(setting: _Setting, kind: Any) -> Any:
    """Give the value its field's type, or say that it has another."""
    value = setting.value
    optional = isinstance(kind, types.UnionType)
    if optional:
        if value is None or value == _AUTO:
            return None
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    if typing.get_origin(kind) is tuple and isinstance(value, list | tuple):
        if all(isinstance(each, str) for each in value):
            return tuple(value)
    elif kind is float and type(value) in {int, float}:
        return float(value)
    elif type(value) is kind:
        return value
    wanted = _kind_name(kind) + (f' or "{_AUTO}"' if optional else "")
    raise _FaultError(f"`{setting.section}.{setting.name}` must be {wanted}, but is {value!r}")


def _from_text(text: str, kind: Any) -> Any:
    """Read the text of an environment variable as its field's type; what cannot be read stays text."""
    if isinstance(kind, types.UnionType):
        if text == _AUTO:
            return None
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    if typing.get_origin(kind) is tuple:
        return tuple(part for part in text.split(":") if part)
    if kind is bool and text.lower() in (*_TRUE, *_FALSE):
        return text.lower() in _TRUE
    if kind in {int, float}:
        try:
            return kind(text)
        except ValueError:
            return text
    return text


def _kind_name(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        return "a list of texts"
    names = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
    return names[kind]
