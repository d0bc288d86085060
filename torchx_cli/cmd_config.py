"""`torchx config`: the configuration that counts, and where each value stands."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchx_cli.app import TYPER
from torchx_cli.command import TorchxCommand
from torchx_cli.flags import Json, Output
from torchx_cli.masking import MASK, looks_secret, mask_text
from torchx_cli.output import chosen_format, emit, note, table
from torchx_cli.session import Session, session_of

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
) -> None:
    """Show each value of the configuration files with the file and the line it stands in.

    Of a value in several files the first counts: the profile, the project's file, the one in the
    home folder. All sections are checked.
    """
    form = chosen_format(output, json)
    session = session_of(ctx)
    rows = [_row(entry) for entry in session.config.entries() if not section or entry.section == section]
    rows += check_schedulers(session, section)
    if form != "text":
        emit({"files": _files(session.config), "values": rows}, form)
        return
    for path in session.config.found.passed_over:
        note(f"passed over: {path} belongs to another user, in a folder that everyone may write")
    if not rows:
        note("no configuration" + (f" for [{section}]" if section else ""))
        return
    cells = [[(row["section"], ""), (row["key"], ""), (row["value"], ""), _where(row)] for row in rows]
    print("\n".join(table(cells, ("SECTION", "KEY", "VALUE", "FROM"), sys.stdout)))


def check_schedulers(session: Session, section: str) -> list[dict[str, Any]]:
    """Checks the options of each scheduler's section, and returns the defaults of the one asked for.

    Raises:
        ConfigError: an option is unknown, of the wrong type, or was never filled in.
    """
    from torchx.config import scheduler_options

    defaults: list[dict[str, Any]] = []
    named = {entry.section for entry in session.config.entries()}
    with session.runner() as runner:
        for name in runner.scheduler_backends():
            if name not in named and name != section:
                continue
            opts = runner.scheduler_run_opts(name)
            given = scheduler_options(session.config, name, opts)
            if name == section:
                missing = [(key, opt) for key, opt in opts if key not in given]
                defaults += [_default(name, key, opt.default) for key, opt in missing]
    return defaults


def _files(config: Config) -> list[str]:
    return [str(file.path) for file in config.files]


def _row(entry: Entry) -> dict[str, Any]:
    origin = entry.setting.origin
    return {
        "section": entry.section,
        "key": entry.key,
        "value": MASK if looks_secret(entry.key) else _masked(entry.setting.value),
        "effective": entry.effective,
        "profile": entry.profile,
        "origin": str(origin),
        "file": str(origin.path),
        "line": origin.line,
    }


def _masked(value: str) -> str:
    """Masks what a value gives to names of secrets, as in `env = HF_TOKEN:abc`."""
    import re

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
    return (row["origin"] + profile, "") if row["effective"] else (f"{row['origin']}{profile}, hidden", "dim")
