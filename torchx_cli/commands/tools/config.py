"""`torchx config`: show and trust configuration files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx.command_line import ArgumentError
from torchx.config import CONFIG_FILE, shown_path
from torchx.config.ini import ConfigError
from torchx.config.model import OWN_SECTION
from torchx.config.options import valid_options
from torchx.config.paths import located_component
from torchx.config.trust import approve
from torchx.errors import TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine.files import expanded
from torchx.printable import one_line
from torchx.specs.notify import shown as shown_target
from torchx.suggestions import did_you_mean
from torchx_cli.app import TYPER, Subcommands
from torchx_cli.command import TorchxCommand
from torchx_cli.flags import Json, Output, argument
from torchx_cli.session import Session, passed_over, session_of, unused_sections
from torchx_cli.terminal.display import show_table
from torchx_cli.terminal.masking import MASK, looks_secret, mask_text
from torchx_cli.terminal.output import emit, error_line, note, output_format, print_stderr

with lazy_imports:
    from torchx.discovery.call import arguments
    from torchx.discovery.find import catalogue, finder
    from torchx_cli import component_flags

if TYPE_CHECKING:
    from torchx.config import Config, Entry
    from torchx.json_limits import Object

app = typer.Typer(cls=Subcommands, **TYPER)


@app.callback()
def config() -> None:
    """Show the effective configuration and its sources.

    To set a value, edit a file: torchx configure writes one with the most used options.
    """


@app.command("show", cls=TorchxCommand)
def show(
    ctx: typer.Context,
    section: Annotated[
        str,
        argument(
            metavar="[SECTION]",
            help="Only this section, e.g. cli:run; a scheduler's section includes its defaults.",
        ),
    ] = "",
    output: Output = "",
    json: Json = False,
) -> int:
    """Show each configuration value with its file and line.

    If several files set a value, the first one is used: the profile, the project's file, then the file
    in the home folder. All sections are checked; problems are printed, and are errors only for the commands
    that use the value.
    """
    form = output_format(output, json)

    session = session_of(ctx)
    config, errors = session.examine_config()
    problems: list[TorchxError] = [*errors]
    rows = [_row(entry) for entry in config.entries() if not section or entry.section == section]
    rows += _check_schedulers(session, config, section, problems)
    problems += _component_problems(config)
    files = config.found
    over = list(zip(files.passed_over, files.reasons, strict=True))
    if form != "text":
        names = [str(file.path) for file in config.files]
        data = {
            "files": names,
            "values": rows,
            "problems": [{"message": error.message, "hint": error.hint} for error in problems],
        }
        passed = [{"file": str(path), "why": why} for path, why in over]
        emit({**data, "passed_over": passed, "ignored": list(config.ignored)}, form)
        return 0
    for error in problems:
        print_stderr(error_line(one_line(error.message), error.hint and one_line(error.hint), sys.stderr))
    if config.ignored:
        note(f"note: {one_line(unused_sections(config.ignored))}")
    for path, why in over:
        note(f"note: {one_line(passed_over(path, why))}")
    if not rows:
        note("no configuration" + (f" for [{section}]" if section else ""))
    else:
        cells = [[row["section"], row["key"], row["value"], _where(row)] for row in rows]
        show_table(cells, ("SECTION", "KEY", "VALUE", "FROM"))
    return 0


@app.command("trust", cls=TorchxCommand)
def trust(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="The configuration file or its folder.")
    ] = ".",
) -> None:
    """Trust the content of a configuration file of another user.

    Such files are ignored by default because they name programs to run; review the file first. A
    changed file must be trusted again.
    """
    path = expanded(file)
    approved = approve(path / CONFIG_FILE if path.is_dir() else path)
    name = one_line(shown_path(approved))
    note(f"{name} is trusted; trust it again after each change")


def _check_schedulers(
    session: Session, config: Config, section: str, problems: list[TorchxError]
) -> list[Object]:
    """Checks the options in each scheduler's section, and returns the defaults of the requested one.

    Args:
        session: provides the runner.
        config: the configuration.
        section: the requested section; empty for all.
        problems: the list to add problems to.
    """
    defaults: list[Object] = []
    named = {entry.section for entry in config.entries()}
    with session.runner() as runner:
        for name in runner.scheduler_backends():
            if name not in named and name != section:
                continue
            try:
                opts = runner.scheduler_run_opts(name)
            except TorchxError as error:  # report it and check the others
                problems.append(error)
                continue
            problems += valid_options(config, name, opts)[1]
            if name == section:
                given = config.section(name, defaults=True)
                missing = [(key, opt) for key, opt in opts if key not in given]
                defaults += [_default(name, key, opt.default) for key, opt in missing]
    return defaults


def _component_problems(config: Config) -> Iterator[ConfigError]:
    """Yields the errors of the sections of components, whose files are not imported."""
    names = config.sections("component")
    if not names:
        return
    registered = {each.name for each in catalogue.list_components()}
    for name in names:
        settings = config.section(f"component:{name}")
        for key, setting in settings.items():
            origin = setting.origin
            try:
                written = located_component(setting._replace(value=name))
                outline = component_flags.outline_of(written)
                if outline is None:
                    raise UsageError(
                        f"there is no component `{name}`", hint="all components: torchx builtins"
                    )
            except TorchxError as error:
                yield ConfigError(f"{origin}: {error.message}", hint=error.hint)
                break
            known = [argument.name for argument in outline.arguments]
            if outline.kwargs is None and key.lstrip("-").replace("-", "_").partition(".")[0] not in known:
                hint = did_you_mean(key, known, f"arguments: {', '.join(known)}")
                yield ConfigError(f"{origin}: unknown argument `{key}` of {name}", hint=hint)
                continue
            if name in registered:
                try:
                    arguments.parse_arguments(finder.find_component(name), [], section={key: setting})
                except ArgumentError as error:
                    if error.code != "missing_argument":
                        yield ConfigError(error.message, hint=error.hint)


def _row(entry: Entry) -> Object:
    origin = entry.setting.origin
    return {
        "section": entry.section,
        "key": entry.key,
        "value": _masked(entry.section, entry.key, entry.setting.value),
        "effective": entry.effective,
        "profile": entry.profile,
        "origin": origin.place,
        "file": str(origin.path),
        "line": origin.line,
    }


def _masked(section: str, key: str, value: str) -> str:
    """Masks a secret value, and secrets inside a value such as `HF_TOKEN:abc`."""
    if looks_secret(key) and section != OWN_SECTION:
        return MASK
    if (section, key) == ("cli:run", "notify"):  # a URL may hold a secret anywhere
        return " ".join(map(shown_target, value.splitlines()))

    pairs = re.sub(
        r"([A-Za-z_][A-Za-z0-9_]*):([^,;\s]+)",
        lambda match: f"{match[1]}:{MASK}" if looks_secret(match[1]) else match[0],
        value,
    )
    return mask_text(pairs)


def _default(section: str, key: str, value: Any) -> Object:
    return {
        "section": section,
        "key": key,
        "value": str(value),
        "effective": True,
        "profile": None,
        "origin": "default",
        "file": None,
        "line": None,
    }


def _where(row: Object) -> tuple[str, str]:
    profile = ""
    if row["profile"]:
        profile = f" (profile {row['profile']})"
    where = one_line(row["origin"] + profile)
    if row["effective"]:
        return (where, "")
    return (f"{where}, hidden", "dim")
