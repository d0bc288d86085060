"""Parser of `.torchxconfig`, an INI dialect; each value keeps its line number."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torchx.errors import UsageError
from torchx.machine.files import read_file

LARGEST = 256 << 10
"""Maximum bytes of a configuration file."""

LONGEST = 64 << 10
"""Maximum characters of a value, with all `%(key)s` replaced."""

MOST_TEXT = 8 << 20
"""Maximum characters of all values of a file."""

DEEPEST = 20
"""Maximum depth of nested `%(key)s` references."""

MOST = 500
"""Maximum sections of a file, and keys of its `[DEFAULT]`."""

DEFAULT = "DEFAULT"
"""The section of values shared by the others."""


class ConfigError(UsageError):
    """A configuration file is invalid; the message begins with the place."""

    code = "invalid_config"


def shown_path(path: Path) -> str:
    """Returns a path for display: relative near the working directory, `~` below home."""
    try:
        here = Path.cwd()
    except OSError:  # the working directory was removed
        return str(path)
    if path.is_relative_to(here):
        return str(path.relative_to(here))
    home = os.environ.get("HOME", "")
    if home and path.is_relative_to(home) and not here.is_relative_to(path.parent):
        return str(Path("~") / path.relative_to(home))
    if here.is_relative_to(path.parent):
        return os.path.relpath(path, here)
    return str(path)


class Origin(NamedTuple):
    """The place of a value in a configuration file; lines count from 1."""

    path: Path
    line: int
    section: str

    @property
    def place(self) -> str:
        """The file and the line."""
        return f"{shown_path(self.path)} line {self.line}"

    def __str__(self) -> str:
        return f"{self.place} [{self.section}]"


class Setting(NamedTuple):
    """A value of a configuration file, as text, and its origin."""

    value: str
    origin: Origin


Settings = dict[str, Setting]
"""The settings of a section by name."""


class ConfigFile(NamedTuple):
    """A parsed file.

    Attributes:
        path: the file.
        sections: settings by section name and key, in the order of the file.
        lines: the line of each section's heading.
        shared: the settings of `[DEFAULT]` that apply to each section.
    """

    path: Path
    sections: Mapping[str, Mapping[str, Setting]]
    lines: Mapping[str, int]
    shared: Mapping[str, Mapping[str, Setting]]


def read_config(path: Path, content: bytes | None = None) -> ConfigFile:
    """Reads one configuration file.

    Args:
        path: the file.
        content: its content, if known.

    Raises:
        ConfigError: the file cannot be read, or a line is invalid.
    """
    try:
        if content is None:
            data = read_file(path, LARGEST, own=False, follow=True)
        else:
            data = content
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown_path(path)}: is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise ConfigError(f"{shown_path(path)}: {error.strerror or error}") from None
    return parse_config(text, path)


def parse_config(text: str, path: Path) -> ConfigFile:
    """Parses the text of a configuration file: sections of `key = value` or `key: value`.

    A line indented deeper than the key before it continues its value. Lines that begin with `#` or `;` are
    comments. Keys and sections are case-sensitive and unique. `%(key)s` is replaced by another value of the
    section or of `[DEFAULT]`, whose values also apply to each scheduler with such an option; `%%` is a
    percent sign.

    Raises:
        ConfigError: a line is invalid; the message names it.
    """
    reader = _Reader(path)
    for number, line in enumerate(text.splitlines(), start=1):
        reader.feed(number, line)
    for count, what in (
        (len(reader.sections), "sections"),
        (len(reader.sections.get(DEFAULT, ())), f"keys in [{DEFAULT}]"),
    ):
        if count > MOST:
            raise ConfigError(f"{shown_path(path)}: has {count:,} {what}, maximum {MOST}")
    sections = {name: reader.settings(name) for name in reader.sections if name != DEFAULT}
    shared = {name: reader.shared(name) for name in reader.sections}
    return ConfigFile(path, sections, reader.headings, shared)


class _Reader:
    """The state of the parser."""

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
            raise self.fail(number, f"expected a section `[name]`, got `{text}`")
        if name in self.sections:
            raise self.fail(number, f"section [{name}] already exists, in line {self.headings[name]}")
        self.section, self.value = name, None
        self.headings[name] = number
        self.sections[name] = {}

    def _pair(self, number: int, text: str, indent: int) -> None:
        if not self.headings:
            raise self.fail(
                number, f"`{text}` is before the first [section]; flags of torchx run belong to [cli:run]"
            )
        ends = [at for at in (text.find("="), text.find(":")) if at >= 0]
        if not ends:
            raise self.fail(number, f"expected `key = value`, got `{text}`")
        key, value = text[: min(ends)].strip(), text[min(ends) + 1 :].strip()
        if not key:
            raise self.fail(number, f"the key is missing before `{text}`")
        keys = self.sections[self.section]
        if key in keys:
            raise self.fail(number, f"`{key}` is already set in line {keys[key][0]}")
        self.value, self.indent = [value], indent
        keys[key] = (number, self.value)

    def settings(self, section: str) -> Settings:
        return {
            key: Setting(self._expand(section, key, ()), Origin(self.path, number, section))
            for key, (number, _) in self.sections[section].items()
        }

    def shared(self, section: str) -> Settings:
        """Returns the settings of `[DEFAULT]` for a section, except its own keys and unresolvable ones."""
        settings: Settings = {}
        own = {}
        if section != DEFAULT:
            own = self.sections[section]
        for key, (number, _) in self.sections.get(DEFAULT, {}).items():
            if key in own:
                continue
            with suppress(ConfigError):
                settings[key] = Setting(self._expand(section, key, ()), Origin(self.path, number, DEFAULT))
        return settings

    def _expand(self, section: str, key: str, within: tuple[str, ...]) -> str:
        """Returns a value with `%(key)s` and `%%` replaced; other percent signs are unchanged."""
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
            raise self.fail(number, f"`{key}` has more than {DEEPEST} nested `%(key)s` references")
        rest, out = "\n".join(lines).rstrip(), ""
        while "%" in rest:
            before, _, rest = rest.partition("%")
            out += before
            if rest.startswith("%"):
                out, rest = out + "%", rest[1:]
            elif rest.startswith("(") and ")s" in rest:
                name, _, rest = rest[1:].partition(")s")
                if name not in keys or name in (key, *within):
                    why = "refers to itself"
                    if name not in keys:
                        why = "does not exist"
                    raise self.fail(number, f"`%({name})s` {why}", "write %% for a percent sign")
                out += self._expand(section, name, (key, *within))
            else:
                out += "%"
            if len(out) > LONGEST:
                raise self.fail(number, f"`{key}` has more than {LONGEST:,} characters after replacements")
        return out + rest
