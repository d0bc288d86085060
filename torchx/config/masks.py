"""Additional names of secrets from the configuration: `mask` in the section [torchx]."""

from __future__ import annotations

from torchx.config.files import find_files
from torchx.config.ini import ConfigError, read_config
from torchx.config.model import OWN_SECTION, split_profile


def masked_names() -> list[str]:
    """Returns the patterns of all configuration files in use, of all profiles.

    Every command masks its output, even if it reads no configuration. An invalid file is skipped here, and
    reported by the commands that use it.
    """
    try:
        paths = find_files().paths
    except ConfigError:
        return []
    found: list[str] = []
    for path in paths:
        try:
            sections = read_config(path).sections
        except ConfigError:
            continue
        for heading, settings in sections.items():
            if split_profile(heading)[1] == OWN_SECTION and "mask" in settings:
                found += split_patterns(settings["mask"].value)
    return found


def split_patterns(value: str) -> list[str]:
    r"""Splits a value into patterns, at commas, semicolons and line ends.

    >>> split_patterns("ACME_*, *_PIN\n*_SALT")
    ['ACME_*', '*_PIN', '*_SALT']
    """
    for separator in ";\n":
        value = value.replace(separator, ",")
    return [part.strip() for part in value.split(",") if part.strip()]
