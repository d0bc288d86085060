"""The text of a `.torchxconfig`: an INI dialect, read so that each value knows its line."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torchx.errors import UsageError
from torchx.machine.files import read_file

LARGEST = 256 << 10
"""Bytes of a configuration file that are read."""

LONGEST = 64 << 10
"""Characters of a value, with all `%(key)s` replaced."""

MOST_TEXT = 8 << 20
"""Characters of all values of a file."""

DEEPEST = 20
"""Keys that stand for one another in a row."""

MOST = 500
"""Sections of a file, and keys of its `[DEFAULT]`."""

DEFAULT = "DEFAULT"
"""The section whose values others share."""


class ConfigError(UsageError):
    """A configuration file cannot be right; the message begins with where."""


def shown_path(path: Path) -> str:
    """Returns a path as a person says it: relative near the working directory, `~` below home."""
    try:
        here = Path.cwd()
    except OSError:  # the working directory was removed
        return str(path)
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    home = os.environ.get("HOME", "")
    if home and path.is_relative_to(home) and not here.is_relative_to(path.parent):
        return str(Path("~") / path.relative_to(home))
    return os.path.relpath(path, here) if here.is_relative_to(path.parent) else str(path)


@dataclass(frozen=True)
class Origin:
    """Where a value stands in a configuration file; lines count from 1."""

    path: Path
    line: int
    section: str

    def __str__(self) -> str:
        return f"{shown_path(self.path)} line {self.line}"


@dataclass(frozen=True)
class Setting:
    """A value of a configuration file, as text, and where it stands."""

    value: str
    origin: Origin


class ConfigFile(NamedTuple):
    """One file that was read.

    Attributes:
        path: the file.
        sections: section name to key to value, in the order of the file.
        lines: section name to the line of its heading.
        shared: section name to the values that `[DEFAULT]` gives it.
    """

    path: Path
    sections: Mapping[str, Mapping[str, Setting]]
    lines: Mapping[str, int]
    shared: Mapping[str, Mapping[str, Setting]]


def read_config(path: Path, content: bytes | None = None) -> ConfigFile:
    """Reads one configuration file.

    Args:
        path: the file.
        content: what it holds, where that is known.

    Raises:
        ConfigError: the file cannot be read, or a line of it is not understood.
    """
    try:
        data = read_file(path, LARGEST, own=False, follow=True) if content is None else content
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown_path(path)}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{shown_path(path)}: {error.strerror or error}") from None
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> ConfigFile:
    """Reads the text of a configuration file: sections of `key = value` or `key: value`.

    A line that is indented deeper than the key before it goes on with that key's value. Lines that
    begin with `#` or `;` are comments. Keys and sections are case-sensitive, and none may come twice.
    `%(key)s` stands for another value of the section (or of `[DEFAULT]`, whose values count for each
    scheduler that has such an option, too) and `%%` for a percent sign.

    Raises:
        ConfigError: a line is not understood; the message names it.
    """
    reader = _Reader(path)
    for number, line in enumerate(text.splitlines(), start=1):
        reader.feed(number, line)
    for count, what in (
        (len(reader.sections), "sections"),
        (len(reader.sections.get(DEFAULT, ())), f"keys in [{DEFAULT}]"),
    ):
        if count > MOST:
            raise ConfigError(f"{shown_path(path)}: has {count:,} {what}, more than the {MOST} that are read")
    sections = {name: reader.settings(name) for name in reader.sections if name != DEFAULT}
    shared = {name: reader.shared(name) for name in reader.sections}
    return ConfigFile(path, sections, reader.headings, shared)


class _Reader:
    """What has been read of a file so far."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.headings: dict[str, int] = {}
        self.sections: dict[str, dict[str, tuple[int, list[str]]]] = {}
        self.section = ""
        self.value: list[str] | None = None  # of the last key, for continuation lines
        self.indent = 0
        self._expanded: dict[tuple[str, str], str] = {}
        self._size = 0

    def fail(self, number: int, what: str, hint: str | None = None) -> ConfigError:
        return ConfigError(f"{shown_path(self.path)} line {number}: {what}", hint=hint)

    def feed(self, number: int, line: str) -> None:
        text = line.strip()
        if text.startswith(("#", ";")):
            return
        indent = len(line) - len(line.lstrip())
        if not text:
            if self.value is not None:
                self.value.append("")
        elif self.value is not None and indent > self.indent:
            self.value.append(text)
        elif text.startswith("["):
            self._heading(number, text)
        else:
            self._pair(number, text, indent)

    def _heading(self, number: int, text: str) -> None:
        name = text[1:-1].strip()
        if not text.endswith("]") or not name:
            raise self.fail(number, f"a section is written [name], got `{text}`")
        if name in self.sections:
            raise self.fail(number, f"section [{name}] is there already, in line {self.headings[name]}")
        self.section, self.value = name, None
        self.headings[name] = number
        self.sections[name] = {}

    def _pair(self, number: int, text: str, indent: int) -> None:
        if not self.headings:
            raise self.fail(number, f"`{text}` stands before the first [section]")
        ends = [at for at in (text.find("="), text.find(":")) if at >= 0]
        if not ends:
            raise self.fail(number, f"expected `key = value`, got `{text}`")
        key, value = text[: min(ends)].strip(), text[min(ends) + 1 :].strip()
        if not key:
            raise self.fail(number, f"the key is missing before `{text}`")
        keys = self.sections[self.section]
        if key in keys:
            raise self.fail(number, f"`{key}` is there already, in line {keys[key][0]}")
        self.value, self.indent = [value], indent
        keys[key] = (number, self.value)

    def settings(self, section: str) -> dict[str, Setting]:
        return {
            key: Setting(self._expand(section, key, ()), Origin(self.path, number, section))
            for key, (number, _) in self.sections[section].items()
        }

    def shared(self, section: str) -> dict[str, Setting]:
        """Returns what `[DEFAULT]` gives a section: not what it has itself, nor what needs other keys."""
        found: dict[str, Setting] = {}
        own = self.sections[section] if section != DEFAULT else {}
        for key, (number, _) in self.sections.get(DEFAULT, {}).items():
            if key in own:
                continue
            with suppress(ConfigError):
                found[key] = Setting(self._expand(section, key, ()), Origin(self.path, number, DEFAULT))
        return found

    def _expand(self, section: str, key: str, within: tuple[str, ...]) -> str:
        """Returns a value with `%(key)s` and `%%` replaced; a percent sign elsewhere is itself."""
        known = self._expanded.get((section, key))
        if known is None:
            known = self._expanded[section, key] = self._replaced(section, key, within)
            self._size += len(known)
            if self._size > MOST_TEXT:
                raise ConfigError(
                    f"{shown_path(self.path)}: has values of more than {MOST_TEXT:,} characters"
                )
        return known

    def _replaced(self, section: str, key: str, within: tuple[str, ...]) -> str:
        keys = ChainMap(self.sections[section], self.sections.get(DEFAULT, {}))
        number, lines = keys[key]
        if len(within) > DEEPEST:
            raise self.fail(number, f"`{key}` stands for more than {DEEPEST} keys one after the other")
        rest, out = "\n".join(lines).rstrip(), ""
        while "%" in rest:
            before, _, rest = rest.partition("%")
            out += before
            if rest.startswith("%"):
                out, rest = out + "%", rest[1:]
            elif rest.startswith("(") and ")s" in rest:
                name, _, rest = rest[1:].partition(")s")
                if name not in keys or name in (key, *within):
                    why = "does not exist" if name not in keys else "stands for itself"
                    raise self.fail(number, f"`%({name})s` {why}", "for a plain percent sign write %%")
                out += self._expand(section, name, (key, *within))
            else:
                out += "%"
            if len(out) > LONGEST:
                raise self.fail(
                    number, f"`{key}` has more than {LONGEST:,} characters with what it stands for"
                )
        return out + rest
