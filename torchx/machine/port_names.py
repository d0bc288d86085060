"""Ports of replicas, given by number or by name."""

from __future__ import annotations

from collections.abc import Mapping

from torchx.errors import StateError, UsageError
from torchx.machine.ports import PREFIX, port_variable

LARGEST_PORT = 65535


def port_number(text: str) -> int | None:
    """Returns the number that a text is, or None for a name.

    Raises:
        UsageError: it is a number, but not of a port.

    >>> port_number("8080"), port_number("http")
    (8080, None)
    """
    if not (text.isdecimal() and text.isascii()):
        return None
    if len(text) > 5 or not 0 < int(text) <= LARGEST_PORT:
        raise UsageError(f"`{text}` is not a port: expected 1 to {LARGEST_PORT}, or a name")
    return int(text)


def variable_of(name: str) -> str:
    """Returns the variable of a port, given by its name or by the variable itself.

    >>> variable_of("c10d"), variable_of("TORCHX_PORT_C10D")
    ('TORCHX_PORT_C10D', 'TORCHX_PORT_C10D')
    """
    if name.startswith(PREFIX):
        return name
    return port_variable(name)


def resolve_port(text: str, env: Mapping[str, str], replica: str) -> int:
    """Returns the number of a port.

    Args:
        text: its number, its name, or its variable.
        env: the environment of the replica.
        replica: the replica, for the message.

    Raises:
        UsageError: the text is not a port.
        StateError: the replica has no port of this name.
    """
    number = port_number(text)
    if number is not None:
        return number
    value = env.get(variable_of(text), "")
    if not value.isdecimal():
        names = sorted(name.removeprefix(PREFIX).lower() for name in env if name.startswith(PREFIX))
        known = "it has no named ports; give a number"
        if names:
            known = f"its ports: {', '.join(names)}"
        raise StateError(f"{replica} has no port `{text}`", hint=known)
    return int(value)
