"""Paths in configuration files, which are relative to the folder of their file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from torchx.config.ini import Setting, Settings
from torchx.config.model import Config, split_profile
from torchx.machine.files import expanded


def located(setting: Setting) -> Setting:
    """Returns a setting that is a path as an absolute path; an address or a mapping is unchanged."""
    if not setting.value or ":" in setting.value or "\n" in setting.value:
        return setting
    return setting._replace(value=str(_place(setting.value, setting.origin.path, Path.exists)))


def located_component(setting: Setting) -> str:
    """Returns the name of a component, with the path of its file if it is not in the working directory."""
    path, _, function = setting.value.rpartition(":")
    file = _file(path, setting.origin.path)
    there = file is None or file == expanded(path).resolve()
    if there:
        return setting.value
    return f"{file}:{function}"


def component_settings(config: Config, name: str) -> Settings:
    """Returns the settings of all sections `[component:NAME]` of a component, however its file is spelled.

    Args:
        config: the configuration.
        name: the name of the component.
    """
    settings = config.section(f"component:{name}")
    path, _, function = name.rpartition(":")
    wanted = _file(path, None)
    for file in config.files if wanted is not None else ():
        for heading in file.sections:
            section = split_profile(heading)[1]
            kind, _, other = section.partition(":")
            other_path, _, other_function = other.rpartition(":")
            if (kind, other_function) == ("component", function) and _file(other_path, file.path) == wanted:
                settings = {**config.section(section), **settings}
    return settings


def _file(path: str, config_file: Path | None) -> Path | None:
    """Returns a Python file; None for a module, or if the file does not exist."""
    if not path.endswith(".py") and os.sep not in path:
        return None
    file = _place(path, config_file, Path.is_file)
    if file.is_file():
        return file.resolve()
    return None


def _place(path: str, config_file: Path | None, exists: Callable[[Path], bool]) -> Path:
    """Returns the absolute form of a path: in the folder of the file, else in the working directory.

    The file in the home folder applies to all projects: its paths are searched in the other order.
    """
    places = [Path.cwd()]
    if config_file is not None:
        at_home = str(config_file.parent) == os.environ.get("HOME")
        places.insert(1 if at_home else 0, config_file.parent)
    file = expanded(path)
    return next((place / file for place in places if exists(place / file)), places[0] / file)
