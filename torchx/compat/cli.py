"""Functions of TorchX's command line that other packages import."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from torchx.errors import TorchxError
from torchx.specs.app import AppDef
from torchx.specs.handles import parse_app_handle, parse_log_target
from torchx_cli.main import main as run_program
from torchx_cli.terminal.output import has_colour

_CODES = {"GREEN": "32", "ENDC": "0"}


def colour(name: str) -> str:
    """Returns the control sequence of a colour; empty unless stdout shows colours."""
    if has_colour(sys.stdout):
        return f"\033[{_CODES[name]}m"
    return ""


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command line.

    Args:
        argv: the arguments after the program name (default: those of this process).

    Raises:
        SystemExit: the command did not succeed.
    """
    if code := run_program(argv):
        raise SystemExit(code)


def prefix_line(prefix: str, line: str) -> str:
    r"""Returns a line with a prefix, also after each carriage return that is not its end.

    >>> prefix_line("a/0 ", "10 %\r20 %\n")
    'a/0 10 %\ra/0 20 %\n'
    """
    return prefix + line.replace("\r", f"\r{prefix}").replace(f"\r{prefix}\n", "\r\n")


def find_role_replicas(app: AppDef, role_name: str | None) -> list[tuple[str, int]]:
    """Returns the roles and ids of all replicas, or of those of one role."""
    return [
        (role.name, k)
        for role in app.roles
        if role_name in (None, role.name)
        for k in range(role.num_replicas)
    ]


def validate(job_identifier: str) -> None:
    """Exits if a text is not a handle, with or without role and replicas."""
    try:
        parse_app_handle(parse_log_target(job_identifier).handle)
    except TorchxError as error:
        raise SystemExit(f"error: {error.message}") from error
