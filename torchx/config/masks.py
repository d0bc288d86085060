"""Additional names of secrets from the configuration: `mask` in the section [torchx]."""

from __future__ import annotations

from collections.abc import Iterable

from torchx.config.ini import ConfigError, ConfigFile
from torchx.config.model import OWN_SECTION, read_valid_files, split_profile


def masked_names(files: Iterable[ConfigFile] | None = None) -> list[str]:
    """Returns the patterns of all configuration files in use, of all profiles.

    Every command masks its output, even if it reads no configuration. An invalid file is skipped here, and
    reported by the commands that use it.

    Args:
        files: the files (default: reads them).
    """
    if files is None:
        try:
            _, files = read_valid_files(lambda error: None)
        except ConfigError:
            return []
    return [
        pattern
        for file in files
        for heading, settings in file.sections.items()
        if split_profile(heading)[1] == OWN_SECTION and "mask" in settings
        for pattern in split_patterns(settings["mask"].value)
    ]


def split_patterns(value: str) -> list[str]:
    r"""Splits a value into patterns, at commas, semicolons and line ends.

    >>> split_patterns("ACME_*, *_PIN\n*_SALT")
    ['ACME_*', '*_PIN', '*_SALT']
    """
    for separator in ";\n":
        value = value.replace(separator, ",")
    return [part.strip() for part in value.split(",") if part.strip()]
