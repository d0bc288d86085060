"""Which configuration files count: the project's, found upward, then the one in the home folder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from torchx import settings
from torchx.config.ini import ConfigError

CONFIG_FILE = ".torchxconfig"
"""The name of a configuration file."""


class ConfigNotFoundError(ConfigError, FileNotFoundError):
    """`$TORCHXCONFIG` names a file that does not exist."""


class Found(NamedTuple):
    """The configuration files that count, the strongest first.

    Attributes:
        paths: the files.
        passed_over: files that were found and are not trusted: they belong to another user and lie
            in a folder in which everyone may write.
    """

    paths: tuple[Path, ...]
    passed_over: tuple[Path, ...] = ()


def find_files(dirs: Iterable[str | os.PathLike[str]] | None = None) -> Found:
    """Finds the configuration files.

    `$TORCHXCONFIG` names the only file, or none at all when it is empty. Otherwise they are the
    project's file, in the working directory or the nearest folder above it, and the one in `$HOME`.

    Args:
        dirs: folders to look in, and in no others, the strongest first.

    Raises:
        ConfigNotFoundError: `$TORCHXCONFIG` names a file that does not exist.
    """
    named = os.environ.get(settings.TORCHXCONFIG)
    if named is not None:
        return Found((_named(named),) if named else ())
    if dirs is not None:
        files = (Path(folder).expanduser().absolute() / CONFIG_FILE for folder in dirs)
        return Found(tuple(dict.fromkeys(file for file in files if file.is_file())))
    home = os.environ.get("HOME")
    home_file = Path(home).absolute() / CONFIG_FILE if home else None
    project, passed_over = _project_file(home_file)
    found = [project, home_file if home_file is not None and home_file.is_file() else None]
    return Found(tuple(dict.fromkeys(file for file in found if file is not None)), passed_over)


def _named(name: str) -> Path:
    path = Path(name).expanduser().absolute()
    if not path.is_file():
        raise ConfigNotFoundError(
            f"no configuration file at {name} (from ${settings.TORCHXCONFIG})",
            hint=f"unset {settings.TORCHXCONFIG}, or set it to an empty text for no configuration",
        )
    return path


def _project_file(home_file: Path | None) -> tuple[Path | None, tuple[Path, ...]]:
    """Returns the nearest file from the working directory upward, and those that are not trusted."""
    try:
        here = Path.cwd()
    except OSError:  # the working directory was removed: there is no project
        return None, ()
    passed_over: list[Path] = []
    for folder in (here, *here.parents):
        file = folder / CONFIG_FILE
        if file == home_file:
            break  # above home nothing is the project's
        if file.is_file():
            if _trusted(file):
                return file, tuple(passed_over)
            passed_over.append(file)
    return None, tuple(passed_over)


def _trusted(file: Path) -> bool:
    """A file names programs to run: in a folder such as /tmp only one's own counts, and root's."""
    try:
        shared = bool(file.parent.stat().st_mode & stat.S_IWOTH)
        return not shared or file.stat().st_uid in (os.getuid(), 0)
    except OSError:
        return False
