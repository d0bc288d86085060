"""Documented functions for `.torchxconfig`; `torchx.runner.config` re-exports them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torchx.config.files import CONFIG_FILE, find_files
from torchx.config.ini import parse_config
from torchx.config.model import Config, load_config
from torchx.config.options import FILL_IN, scheduler_options
from torchx.errors import PluginError
from torchx.lazy import lazy_imports

with lazy_imports:
    from torchx import schedulers as torchx_schedulers
    from torchx.specs import run_options

if TYPE_CHECKING:
    from torchx.specs.run_options import OptionValues, runopt, runopts


def dump(
    f: TextIO,
    schedulers: list[str] | None = None,
    required_only: bool = False,
    *,
    commented: Collection[str] = (),
) -> None:
    """Writes an initial configuration file: a section for each scheduler with its options.

    Args:
        f: the file.
        schedulers: the schedulers (default: all).
        required_only: omit optional options.
        commented: names of optional options that are written as comments in any case.

    Raises:
        UnknownSchedulerException: no scheduler has this name.
    """
    for place, name in enumerate(
        schedulers if schedulers is not None else torchx_schedulers.get_scheduler_factories()
    ):
        if place == 0:
            lines = [f"[{name}]"]
        else:
            lines = ["", f"[{name}]"]
        try:
            opts = _opts_of(name)
        except PluginError as error:
            if schedulers is not None:
                raise
            f.write("\n".join([*lines[:-1], f"# {' '.join(error.message.split())}", ""]))
            continue
        for key, opt in opts:
            if opt.is_required or not required_only:
                lines += [f"# {_about(opt)}", f"{key} = {_shown(opt)}"]
            elif key in commented:
                lines += [f"# {_about(opt)}", f"# {key} = {_shown(opt)}"]
        f.write("\n".join(lines) + "\n")


def apply(scheduler: str, cfg: OptionValues, dirs: list[str] | None = None) -> None:
    """Adds the run options of the configuration to `cfg`, in place; existing ones take precedence.

    Args:
        scheduler: the scheduler.
        cfg: run options.
        dirs: folders to search (default: those for the working directory).

    Raises:
        ConfigError: the configuration is invalid.
    """
    _add(load_config(dirs), scheduler, cfg)


def load(scheduler: str, f: TextIO, cfg: OptionValues) -> None:
    """Adds the run options of an open configuration file to `cfg`, in place; existing ones take precedence.

    Raises:
        ConfigError: the file is invalid.
    """
    path = Path(str(getattr(f, "name", CONFIG_FILE))).absolute()
    _add(Config((parse_config(f.read(), path),)), scheduler, cfg)


def load_sections(prefix: str, dirs: list[str] | None = None) -> dict[str, dict[str, str]]:
    """Returns the values of all sections `[prefix:NAME]` by name.

    Args:
        prefix: the part before the colon.
        dirs: folders to search (default: those for the working directory).
    """
    config = load_config(dirs)
    return {
        name: {key: setting.value for key, setting in config.section(f"{prefix}:{name}").items()}
        for name in config.sections(prefix)
    }


def get_configs(prefix: str, name: str, dirs: list[str] | None = None) -> dict[str, str]:
    """Returns the values of the section `[prefix:name]`; empty if it does not exist.

    Args:
        prefix: the part before the colon.
        name: the part after it.
        dirs: folders to search (default: those for the working directory).
    """
    section = load_config(dirs).section(f"{prefix}:{name}")
    return {key: setting.value for key, setting in section.items()}


def get_config(prefix: str, name: str, key: str, dirs: list[str] | None = None) -> str | None:
    """Returns one value of the section `[prefix:name]`, or None.

    Args:
        prefix: the part before the colon.
        name: the part after it.
        key: the key.
        dirs: folders to search (default: those for the working directory).
    """
    return get_configs(prefix, name, dirs).get(key)


def find_configs(dirs: Iterable[str] | None = None) -> list[str]:
    """Returns the paths of the configuration files in use, highest precedence first.

    Args:
        dirs: folders to search (default: those for the working directory).

    Raises:
        ConfigNotFoundError: `$TORCHXCONFIG` names a file that does not exist; also a FileNotFoundError.
    """
    return [str(path) for path in find_files(dirs).paths]


def _add(config: Config, scheduler: str, cfg: OptionValues) -> None:
    if not config.section(scheduler):
        return
    for key, option in scheduler_options(config, scheduler, _opts_of(scheduler)).items():
        cfg.setdefault(key, option.value)


def _opts_of(scheduler: str) -> runopts:
    created = torchx_schedulers.create_scheduler(scheduler, "config")
    try:
        return created.run_opts()
    finally:
        created.close()


def _about(opt: runopt) -> str:
    need = ", required" if opt.is_required else ""
    return f"{' '.join(opt.help.split())} ({run_options.get_type_name(opt.opt_type)}{need})".strip()


def _shown(opt: runopt) -> str:
    """Returns a default as text for a file, or a reminder to fill it in."""
    value = opt.default
    if opt.is_required and value is None:
        return FILL_IN
    if isinstance(value, list):
        return ",".join(value)
    if isinstance(value, dict):
        return ",".join(f"{key}:{val}" for key, val in value.items())
    return str(value).replace("%", "%%")
