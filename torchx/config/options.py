"""Run options of a scheduler from its section of the configuration, in their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchx.config.ini import DEFAULT, ConfigError, Setting
from torchx.config.model import Config
from torchx.suggestions import did_you_mean

if TYPE_CHECKING:
    from torchx.specs.run_options import CfgVal, runopt, runopts

FILL_IN = "#FIXME"
"""Begins a value that `torchx configure` left for a person to fill in."""


@dataclass(frozen=True)
class Option:
    """A run option in its type, and where it came from."""

    value: CfgVal
    origin: str


def scheduler_options(
    config: Config, scheduler: str, opts: runopts, only: str | None = None
) -> dict[str, Option]:
    """Returns the run options that the configuration gives for a scheduler.

    Args:
        config: what was read.
        scheduler: whose section.
        opts: the options that the scheduler takes.
        only: the only option that is looked at; all of them unless given.

    Raises:
        ConfigError: an option is unknown, of the wrong type, or was never filled in.
    """
    found: dict[str, Option] = {}
    for key, setting in config.section(scheduler, defaults=True).items():
        if only not in (None, key):
            continue
        opt = opts.get(key)
        if opt is None and setting.origin.section == DEFAULT:
            continue  # another scheduler's, or a text for %(key)s
        if opt is None:
            hint = did_you_mean(key, (name for name, _ in opts), f"all options: torchx runopts {scheduler}")
            raise ConfigError(f"{setting.origin}: unknown run option `{key}` for {scheduler}", hint=hint)
        found[key] = Option(cast_setting(key, setting, opt), str(setting.origin))
    return found


def option_problems(config: Config, scheduler: str, opts: runopts) -> list[ConfigError]:
    """Returns everything that is wrong with the run options of a scheduler.

    Args:
        config: what was read.
        scheduler: whose section.
        opts: the options that the scheduler takes.
    """
    problems = []
    for key in config.section(scheduler, defaults=True):
        try:
            scheduler_options(config, scheduler, opts, only=key)
        except ConfigError as error:
            problems.append(error)
    return problems


def cast_setting(key: str, setting: Setting, opt: runopt) -> CfgVal:
    """Returns the text of a setting in the type of its option; the word None is no value.

    Raises:
        ConfigError: the text does not fit the type, or still is to be filled in.
    """
    if setting.value.startswith(FILL_IN):
        raise ConfigError(f"{setting.origin}: `{key}` is still to be filled in", hint=opt.help or None)
    if setting.value == "None":
        return None
    try:
        value: CfgVal = opt.cast_to_type(setting.value)
    except ValueError:
        from torchx.specs.run_options import get_type_name

        kind = get_type_name(opt.opt_type)
        raise ConfigError(
            f'{setting.origin}: `{key}` takes {article(kind)} {kind}, got "{setting.value}"'
        ) from None
    return value


def article(word: str) -> str:
    """Returns the article of a type name.

    >>> article("int"), article("str")
    ('an', 'a')
    """
    return "an" if word[:1].lower() in "aeiou" else "a"
