"""`torchx config`: the configuration that counts, and where each value stands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx.config.model import OWN_SECTION
from torchx.errors import TorchxError
from torchx.printable import one_line
from torchx_cli.app import TYPER
from torchx_cli.command import TorchxCommand
from torchx_cli.flags import Json, Output
from torchx_cli.session import Session, passed_over, session_of
from torchx_cli.terminal.masking import MASK, looks_secret, mask_text
from torchx_cli.terminal.output import chosen_format, emit, error_line, note, say, table, tell

if TYPE_CHECKING:
    from torchx.config import Config, Entry

app = typer.Typer(**TYPER)


@app.callback()
def config() -> None:
    """Show the configuration that counts, and where each value stands."""


@app.command("show", cls=TorchxCommand)
def show(
    ctx: typer.Context,
    section: Annotated[
        str,
        typer.Argument(
            metavar="[SECTION]",
            show_default=False,
            help="Only this section, as cli:run; of a scheduler also the defaults.",
        ),
    ] = "",
    output: Output = "",
    json: Json = False,
) -> int:
    """Show each value of the configuration files with the file and the line it stands in.

    Of a value in several files the first counts: the profile, the project's file, the one in the
    home folder. All sections are checked: what is wrong is listed, and the exit code is 2 then.
    """
    form = chosen_format(output, json)
    from torchx.config.model import examine_config

    session = session_of(ctx)
    config, wrong = examine_config(session.profile)
    problems: list[TorchxError] = [*wrong]
    rows = [_row(entry) for entry in config.entries() if not section or entry.section == section]
    rows += _check_schedulers(session, config, section, problems)
    found = config.found
    over = list(zip(found.passed_over, found.reasons, strict=True))
    if form != "text":
        data = {"files": _files(config), "values": rows, "problems": [_problem(error) for error in problems]}
        emit({**data, "passed_over": [{"file": str(path), "why": why} for path, why in over]}, form)
        return EXIT_PROBLEMS if problems else 0
    for error in problems:
        tell(error_line(one_line(error.message), error.hint and one_line(error.hint), sys.stderr))
    for path, why in over:
        note(f"note: {one_line(passed_over(path, why))}")
    if not rows:
        note("no configuration" + (f" for [{section}]" if section else ""))
    else:
        cells = [[(row["section"], ""), (row["key"], ""), (row["value"], ""), _where(row)] for row in rows]
        say("\n".join(table(cells, ("SECTION", "KEY", "VALUE", "FROM"), sys.stdout)))
    return EXIT_PROBLEMS if problems else 0


@app.command("trust", cls=TorchxCommand)
def trust(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="The configuration file, or the folder that it lies in.")
    ] = ".",
) -> None:
    """Use a configuration file that another user may have written, as it is now.

    Such a file is passed over: it names programs to run. Look at it first. Once it changes, it has to
    be trusted again.
    """
    from pathlib import Path

    from torchx.config import CONFIG_FILE, shown_path
    from torchx.config.trust import approve

    path = Path(file).expanduser()
    approved = approve(path / CONFIG_FILE if path.is_dir() else path)
    name = one_line(shown_path(approved))
    note(f"{name} is trusted in its present form; a changed file has to be trusted again")


EXIT_PROBLEMS = 2
"""The exit code of `config show` if something is wrong in the files, the same as that of `run` then."""


def _check_schedulers(
    session: Session, config: Config, section: str, problems: list[TorchxError]
) -> list[dict[str, Any]]:
    """Checks the options of each scheduler's section, and returns the defaults of the requested one.

    Args:
        session: has the runner.
        config: what was read.
        section: the section that was requested; empty for all.
        problems: gets what is wrong.
    """
    from torchx.config.options import option_problems

    defaults: list[dict[str, Any]] = []
    named = {entry.section for entry in config.entries()}
    with session.runner() as runner:
        for name in runner.scheduler_backends():
            if name not in named and name != section:
                continue
            try:
                opts = runner.scheduler_run_opts(name)
            except TorchxError as error:  # one that cannot be loaded hides none of the others
                problems.append(error)
                continue
            problems += option_problems(config, name, opts)
            if name == section:
                given = config.section(name, defaults=True)
                missing = [(key, opt) for key, opt in opts if key not in given]
                defaults += [_default(name, key, opt.default) for key, opt in missing]
    return defaults


def _problem(error: TorchxError) -> dict[str, Any]:
    return {"message": error.message, "hint": error.hint}


def _files(config: Config) -> list[str]:
    return [str(file.path) for file in config.files]


def _row(entry: Entry) -> dict[str, Any]:
    origin = entry.setting.origin
    return {
        "section": entry.section,
        "key": entry.key,
        "value": _masked(entry.section, entry.key, entry.setting.value),
        "effective": entry.effective,
        "profile": entry.profile,
        "origin": str(origin),
        "file": str(origin.path),
        "line": origin.line,
    }


def _masked(section: str, key: str, value: str) -> str:
    """Masks the value of a secret, and what a value gives to names of secrets, as in `env = HF_TOKEN:abc`."""
    import re

    if looks_secret(key) and section != OWN_SECTION:
        return MASK

    pairs = re.sub(
        r"([A-Za-z_][A-Za-z0-9_]*):([^,;\s]+)",
        lambda found: f"{found[1]}:{MASK}" if looks_secret(found[1]) else found[0],
        value,
    )
    return mask_text(pairs)


def _default(section: str, key: str, value: Any) -> dict[str, Any]:
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


def _where(row: dict[str, Any]) -> tuple[str, str]:
    profile = f" (profile {row['profile']})" if row["profile"] else ""
    where = one_line(row["origin"] + profile)
    return (where, "") if row["effective"] else (f"{where}, hidden", "dim")
