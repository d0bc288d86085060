"""Search for configuration files: the project's, then the one in the home folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from torchx import settings
from torchx.config.ini import ConfigError
from torchx.config.trust import approved_content, objection
from torchx.machine.files import FilePath, expanded

CONFIG_FILE = ".torchxconfig"
"""The name of a configuration file."""


class ConfigNotFoundError(ConfigError, FileNotFoundError):
    """`$TORCHXCONFIG` names a file that does not exist."""

    code = "config_not_found"


class Found(NamedTuple):
    """The configuration files in use, highest precedence first.

    Attributes:
        paths: the files.
        passed_over: files that are not used, since another user may have written them.
        reasons: the reason for each of them.
        approved: the content of files that are used only because the user approved it.
    """

    paths: tuple[Path, ...]
    passed_over: tuple[Path, ...] = ()
    reasons: tuple[str, ...] = ()
    approved: Mapping[Path, bytes] = MappingProxyType({})


def find_files(dirs: Iterable[FilePath] | None = None) -> Found:
    """Finds the configuration files.

    `$TORCHXCONFIG` names the only file, or no file if it is empty. Otherwise they are the project's file, in
    the working directory or the nearest folder above it, and the one in `$HOME`. Files that another user may
    have written are skipped, unless they were approved.

    Args:
        dirs: the only folders to search, highest precedence first.

    Raises:
        ConfigNotFoundError: `$TORCHXCONFIG` names a file that does not exist.
    """
    named = os.environ.get(settings.TORCHXCONFIG)
    if named is not None:
        return Found((_named(named),) if named else ())
    if dirs is not None:
        files = (expanded(folder).absolute() / CONFIG_FILE for folder in dirs)
        return Found(tuple(dict.fromkeys(file for file in files if file.is_file())))
    home = os.environ.get("HOME")
    home_file = None
    if home:
        home_file = Path(home).absolute() / CONFIG_FILE
    search = _Search()
    for place in _project_places(home_file):
        if search.takes(place):
            break
    if home_file is not None:
        search.takes(home_file)
    passed = tuple(search.passed_over)
    return Found(
        tuple(dict.fromkeys(search.found)), passed, tuple(search.passed_over.values()), search.approved
    )


def _named(name: str) -> Path:
    path = expanded(name).absolute()
    if not path.is_file():
        raise ConfigNotFoundError(
            f"no configuration file at {name} (from ${settings.TORCHXCONFIG})",
            hint=f"unset {settings.TORCHXCONFIG}, or set it to an empty string for no configuration",
        )
    return path


def _project_places(home_file: Path | None) -> Iterable[Path]:
    """Yields the possible paths of the project's file, from the working directory upward."""
    try:
        here = Path.cwd()
    except OSError:  # the working directory was removed: there is no project
        return
    for folder in (here, *here.parents):
        if (file := folder / CONFIG_FILE) == home_file:
            return  # a project is not above the home folder
        yield file


class _Search:
    """The files found so far."""

    def __init__(self) -> None:
        self.found: list[Path] = []
        self.passed_over: dict[Path, str] = {}
        self.approved: dict[Path, bytes] = {}

    def takes(self, file: Path) -> bool:
        """Returns True if the file exists and may be used."""
        try:
            if not os.path.lexists(file):
                return False
        except ValueError:
            return False
        if why := objection(file):
            content = approved_content(file)
            if content is None:
                self.passed_over[file] = why
                return False
            self.approved[file] = content
        self.found.append(file)
        return True
