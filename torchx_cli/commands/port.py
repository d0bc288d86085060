"""`torchx port`: forward a local port to a port of a running replica."""

from __future__ import annotations

from typing import Annotated

import typer

from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine.port_names import port_number
from torchx.scheduling.pace import LONGEST
from torchx.specs.status import is_terminal
from torchx_cli.applications import ACTIVE, find, target_of
from torchx_cli.commands.exec import requested_replica
from torchx_cli.flags import Replica, argument
from torchx_cli.session import session_of
from torchx_cli.terminal.output import note, say

with lazy_imports:
    import threading

    from torchx.machine import relay

LOOK_EVERY = LONGEST
"""Seconds between checks that the application still runs."""


def port_(
    ctx: typer.Context,
    target: Replica,
    port: Annotated[
        str, argument(metavar="PORT", help="A port of the replica: its number, or its name in port_map.")
    ],
    local: Annotated[str, argument(metavar="[LOCAL]", help="The local port (default: a free one).")] = "0",
) -> int:
    """Forward a local port to a port of a running replica, until Ctrl-C.

    Prints the local address. Without a role and a replica, the first ones are used.
    """
    number = 0 if local == "0" else port_number(local)
    if number is None:
        raise UsageError(f"the local port `{local}` is not a number")
    first, colon, last = port.partition(":")
    if colon:
        hint = f"the local port comes last: torchx port {target} {last} {first}"
        raise UsageError(f"PORT is one port, got `{port}`", hint=hint)
    port_number(port)
    with session_of(ctx).runner() as runner:
        parsed = target_of(runner, target, acts=True)
        handle, described = find(runner, parsed.handle, full=True, prefer=ACTIVE, acts=True)
        role, replica = requested_replica(parsed, described)
        declared = next((each.port_map for each in described.roles if each.name == role), {})
        # a declared number may be another one on the machine of the replica
        named = next((name for name, declared_at in declared.items() if str(declared_at) == port), port)
        connector = runner.port_connector(handle, role, replica, named)
        forward = relay.Relay(connector, number, _report)
        say(forward.address, flush=True)
        note(f"forwarding to port {port} of {role}/{replica}; Ctrl-C ends it")
        try:
            while not threading.Event().wait(LOOK_EVERY):
                try:
                    current = runner.description(handle, brief=True)
                except (StateError, OSError):  # the connections may survive an engine that does not answer
                    continue
                if current is None or is_terminal(current.state):
                    note(f"{described.app_id} has ended")
                    return 0
        except KeyboardInterrupt:
            return 0
        finally:
            forward.close()
    return 0


def _report(error: StateError) -> None:
    note(f"connection failed: {error.message}")
