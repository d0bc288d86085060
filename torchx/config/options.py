"""Run options from the configuration, converted to their types."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torchx.config.ini import DEFAULT, ConfigError, Setting
from torchx.config.model import Config
from torchx.config.paths import located
from torchx.lazy import lazy_imports
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx.specs import run_options

if TYPE_CHECKING:
    from torchx.specs.run_options import CfgVal, runopt, runopts

FILL_IN = "#FIXME"
"""Prefix of a value that `torchx configure` leaves for the user to fill in."""

NO_VALUE = "None"
"""The text of an option without a value."""


class Option(NamedTuple):
    """A converted run option and its origin."""

    value: CfgVal
    origin: str


def scheduler_options(
    config: Config, scheduler: str, opts: runopts, only: str | None = None
) -> dict[str, Option]:
    """Returns the configured run options of a scheduler.

    Args:
        config: the configuration.
        scheduler: the scheduler.
        opts: the options of the scheduler.
        only: read only this option (default: all).

    Raises:
        ConfigError: an option is unknown, of the wrong type, or not filled in.
    """
    options: dict[str, Option] = {}
    for key, setting in config.section(scheduler, defaults=True).items():
        if only not in (None, key):
            continue
        opt = opts.get(key)
        if opt is None and setting.origin.section == DEFAULT:
            continue  # for another scheduler, or for %(key)s
        if opt is None:
            hint = did_you_mean(key, (name for name, _ in opts), f"all options: torchx runopts {scheduler}")
            raise ConfigError(f"{setting.origin}: unknown run option `{key}` for {scheduler}", hint=hint)
        if key.endswith("_dir") and opt.opt_type is str and setting.value not in (NO_VALUE, ""):
            setting = located(setting)
        options[key] = Option(cast_setting(key, setting, opt), str(setting.origin))
    return options


def valid_options(
    config: Config, scheduler: str, opts: runopts
) -> tuple[dict[str, Option], list[ConfigError]]:
    """Returns the valid run options of a scheduler, and the errors in the others.

    Args:
        config: the configuration.
        scheduler: the scheduler.
        opts: the options of the scheduler.
    """
    options: dict[str, Option] = {}
    problems = []
    for key in config.section(scheduler, defaults=True):
        try:
            options.update(scheduler_options(config, scheduler, opts, only=key))
        except ConfigError as error:
            problems.append(error)
    return options, problems


def cast_setting(key: str, setting: Setting, opt: runopt) -> CfgVal:
    """Converts a setting to the type of its option; the text `None` means no value.

    Raises:
        ConfigError: the text does not fit the type, or is not filled in.
    """
    if setting.value.startswith(FILL_IN):
        raise ConfigError(f"{setting.origin}: `{key}` is not filled in", hint=opt.help or None)
    if setting.value == NO_VALUE:
        return None
    try:
        value: CfgVal = opt.cast_to_type(setting.value)
    except ValueError:
        kind = run_options.get_type_name(opt.opt_type)
        hint = {"bool": "true or false"}.get(kind)
        raise ConfigError(
            f'{setting.origin}: `{key}` takes {kind}, got "{setting.value}"', hint=hint
        ) from None
    return value
