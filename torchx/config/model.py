"""The merged configuration: files in their order of precedence, and a profile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from torchx.config.files import Found, find_files
from torchx.config.ini import DEFAULT, ConfigError, ConfigFile, Setting, Settings, read_config, shown_path
from torchx.lazy import lazy_imports
from torchx.machine.files import FilePath
from torchx.suggestions import did_you_mean, nearest

with lazy_imports:
    import difflib

    from torchx import schedulers
    from torchx.plugins import groups

PROFILE = "profile"

COMMAND_KEYS: dict[str, tuple[str, ...]] = {
    "run": ("component", "scheduler", "workspace", "notify", "notify_on", "tags", "fold", "show"),
    "list": ("scheduler",),
}
"""The keys of `[cli:COMMAND]`."""

OWN_SECTION, OWN_KEYS = "torchx", ("mask", "context")
"""The section of the command line itself, and its keys."""

PREFIXES = ("component", "cli", "torchx", "tracker", "feature", PROFILE)
"""Known prefixes of sections, before the first `:`; plugins may use others."""

SIMILAR = 0.8
"""The least similarity of a misspelled heading and the intended one."""

FORMER_SCHEDULERS = frozenset(
    {"aws_batch", "aws_sagemaker", "gcp_batch", "kubernetes_mcad", "local", "local_dir", "lsf", "ray"}
)
"""Schedulers of earlier versions, whose sections are accepted."""


class Entry(NamedTuple):
    """A setting of a file, and whether it is in effect.

    Attributes:
        section: its section, without the profile.
        key: its name.
        setting: the value and its origin.
        profile: its profile, or None.
        effective: whether no other setting overrides it.
    """

    section: str
    key: str
    setting: Setting
    profile: str | None
    effective: bool


class Config(NamedTuple):
    """The configuration files in use.

    Attributes:
        files: the parsed files, highest precedence first.
        profile: the chosen profile; its sections `[profile:NAME:SECTION]` take precedence.
        found: the result of the search for files.
        ignored: the headings of sections for schedulers, commands and plugins that are not installed.
    """

    files: tuple[ConfigFile, ...] = ()
    profile: str | None = None
    found: Found = Found(())
    ignored: tuple[str, ...] = ()

    def section(self, name: str, *, defaults: bool = False) -> Settings:
        """Returns the settings of a section, each from the first file that has it.

        Args:
            name: the section.
            defaults: include `[DEFAULT]` of files that have the section.
        """
        merged: Settings = {}
        for layer in self._layers(name, defaults):
            for key, setting in layer.items():
                merged.setdefault(key, setting)
        return merged

    def get(self, section: str, key: str) -> Setting | None:
        """Returns one setting, or None.

        Raises:
            ConfigError: it is a section of a command, and another key of it is unknown.
        """
        prefix, _, command = section.partition(":")
        if prefix == "cli" and command in COMMAND_KEYS:
            for file in self.files:
                for name in self._used(file):
                    if split_profile(name)[1] == section:
                        _check_keys(file, name, COMMAND_KEYS[command])
        return self.section(section).get(key)

    def sections(self, prefix: str) -> list[str]:
        """Returns the names of all sections `prefix:NAME`, in the order of the files."""
        return [name[len(prefix) + 1 :] for name in self._names() if name.startswith(prefix + ":")]

    def entries(self) -> Iterator[Entry]:
        """Yields every setting for this profile; of each key, the effective one first."""
        for section in self._names():
            seen: set[str] = set()
            for layer in self._layers(section):
                for key, setting in layer.items():
                    profile, _ = split_profile(setting.origin.section)
                    yield Entry(section, key, setting, profile, key not in seen)
                seen.update(layer)
        for file in self.files:
            for key, setting in file.shared.get(DEFAULT, {}).items():
                yield Entry(DEFAULT, key, setting, None, True)

    def _names(self) -> dict[str, None]:
        """Returns the names of the sections, without profiles, in the order of the files."""
        return dict.fromkeys(split_profile(name)[1] for file in self.files for name in self._used(file))

    def _used(self, file: ConfigFile) -> Iterator[str]:
        return (name for name in file.sections if split_profile(name)[0] in (None, self.profile))

    def _layers(self, section: str, defaults: bool = False) -> list[Settings]:
        names = []
        if self.profile is not None:
            names = [f"{PROFILE}:{self.profile}:{section}"]
        layers = [dict(file.sections.get(n, {})) for n in names for file in self.files]
        for file in self.files:
            shared = file.shared.get(section, {}) if defaults else {}
            layers.append({**shared, **file.sections.get(section, {})})
        return layers


def split_profile(section: str) -> tuple[str | None, str]:
    """Splits a heading into profile and section.

    >>> split_profile("profile:big:cli:run"), split_profile("cli:run")
    (('big', 'cli:run'), (None, 'cli:run'))
    """
    if not section.startswith(PROFILE + ":"):
        return None, section
    _, profile, rest = [*section.split(":", 2), ""][:3]
    return profile, rest


def load_config(dirs: Iterable[FilePath] | None = None, profile: str | None = None) -> Config:
    """Reads the configuration files.

    Args:
        dirs: folders to search (default: those for the working directory).
        profile: the profile.

    Raises:
        ConfigError: a line, section or key is invalid, or no file has the profile.
    """
    found = find_files(dirs)
    files = tuple(read_config(path, found.approved.get(path)) for path in found.paths)
    config = Config(files, profile, found, _ignored(files, _raise))
    _check_profile(config)
    return config


def examine_config(profile: str | None = None) -> tuple[Config, list[ConfigError]]:
    """Reads the valid configuration files, and returns them with all errors.

    Args:
        profile: the profile.
    """
    problems: list[ConfigError] = []
    try:
        found, files = read_valid_files(problems.append)
    except ConfigError as error:
        return Config(profile=profile), [error]
    config = Config(files, profile, found, _ignored(files, problems.append))
    for file in config.files:
        for name in file.sections:
            prefix, _, command = split_profile(name)[1].partition(":")
            if prefix == "cli" and command in COMMAND_KEYS:
                try:
                    _check_keys(file, name, COMMAND_KEYS[command])
                except ConfigError as error:
                    problems.append(error)
    try:
        _check_profile(config)
    except ConfigError as error:
        problems.append(error)
    return config, problems


def read_valid_files(report: Callable[[ConfigError], None]) -> tuple[Found, tuple[ConfigFile, ...]]:
    """Reads the valid configuration files.

    Args:
        report: receives the errors of the others.

    Raises:
        ConfigError: `$TORCHXCONFIG` names a file that does not exist.
    """
    found = find_files()
    files = []
    for path in found.paths:
        try:
            files.append(read_config(path, found.approved.get(path)))
        except ConfigError as error:
            report(error)
    return found, tuple(files)


def _check_profile(config: Config) -> None:
    if config.profile is None:
        return
    profiles = {split_profile(name)[0] for file in config.files for name in file.sections}
    if config.profile not in profiles:
        known = sorted(p for p in profiles if p)
        names = "no file has a section [profile:NAME:SECTION]"
        if known:
            names = "profiles: " + ", ".join(known)
        raise ConfigError(
            f"unknown profile `{config.profile}` (from --profile)",
            hint=did_you_mean(config.profile, known, names),
        )


def _raise(error: ConfigError) -> None:
    raise error


def _ignored(files: Iterable[ConfigFile], report: Callable[[ConfigError], None]) -> tuple[str, ...]:
    """Checks all headings; returns those of schedulers, commands and plugins that are not installed."""
    ignored: list[str] = []
    for file in files:
        for heading in file.sections:
            try:
                if not _is_known(file, heading):
                    ignored.append(heading)
            except ConfigError as error:
                report(error)
    return tuple(dict.fromkeys(ignored))


def _is_known(file: ConfigFile, heading: str) -> bool:
    """Returns False for a section of a scheduler, a command or a plugin that is not installed.

    Raises:
        ConfigError: it is misspelled, or malformed.
    """
    profile, section = split_profile(heading)
    prefix, colon, name = section.partition(":")
    if profile is not None and not (profile and section and prefix != PROFILE):
        raise _section_error(file, heading, "expected [profile:NAME:SECTION]")
    if section == OWN_SECTION:
        _check_keys(file, heading, OWN_KEYS)
    elif not colon:
        return _is_scheduler(file, heading, section)
    elif prefix == "cli":
        return _is_command(file, heading, name)
    elif prefix == "torchx" and name != "tracker":
        raise _section_error(file, heading, f"unknown section [{section}]", "did you mean [torchx:tracker]?")
    elif prefix not in PREFIXES:
        close = _meant(prefix, PREFIXES)  # if nothing is close, it is a plugin's own section
        if close:
            raise _misspelled(file, heading, section, f"{close}:{name}")
    return True


def _is_scheduler(file: ConfigFile, heading: str, section: str) -> bool:
    if section in FORMER_SCHEDULERS or section in schedulers.get_scheduler_factories():
        return True
    if close := _meant(section, [*schedulers.get_scheduler_factories(), *(f"{p}:" for p in PREFIXES)]):
        raise _misspelled(file, heading, section, close)
    return False


def _is_command(file: ConfigFile, heading: str, command: str) -> bool:
    if command in COMMAND_KEYS:
        return True

    if any(point.name == command for point in groups.entry_points("torchx.cli.cmds")):
        return True
    if close := _meant(f"cli:{command}", (f"cli:{name}" for name in COMMAND_KEYS)):
        raise _misspelled(file, heading, f"cli:{command}", close)
    return False


def _meant(name: str, known: Iterable[str]) -> str | None:
    """Returns the name that a heading misspells; None for `slurm_gpu`, which may be that of a plugin."""
    close = nearest(name, known)
    if close and difflib.SequenceMatcher(None, name, close).ratio() >= SIMILAR:
        return close
    return None


def _misspelled(file: ConfigFile, heading: str, section: str, close: str) -> ConfigError:
    return _section_error(file, heading, f"unknown section [{section}]", f"did you mean [{close}]?")


def _check_keys(file: ConfigFile, heading: str, keys: tuple[str, ...]) -> None:
    for key, setting in file.sections[heading].items():
        if key not in keys:
            raise ConfigError(
                f"{setting.origin}: unknown key `{key}`",
                hint=did_you_mean(key, keys, "keys: " + ", ".join(keys)),
            )


def _section_error(file: ConfigFile, heading: str, what: str, hint: str | None = None) -> ConfigError:
    return ConfigError(f"{shown_path(file.path)} line {file.lines[heading]}: {what}", hint=hint)


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
