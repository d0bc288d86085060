"""The reasons why an engine cannot be reached, with hints."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from torchx.schedulers.docker.engine.address import NO_SOCKET, START, Address, NoEngineError, no_engine

if TYPE_CHECKING:
    from torchx.schedulers.docker.engine.ssh import Tunnels


def explain(address: Address, tunnels: Tunnels | None, error: Exception) -> NoEngineError:
    """Converts a connection error to a NoEngineError with the reason and a hint.

    Args:
        address: the address of the engine.
        tunnels: the ssh connections, if the engine is reached over ssh.
        error: the error.
    """
    if tunnels is not None:
        if isinstance(error, FileNotFoundError):
            why, hint = "no program `ssh`", "install an ssh client"
        else:
            why = tunnels.reason() or _first_line(error)
            hint = f"this has to work without a password: {tunnels.shown}"
    elif isinstance(error, socket.gaierror):
        why, hint = "no such host", "check the address"
    elif isinstance(error, PermissionError):
        why, hint = "permission denied", "add yourself to the group `docker`, or set DOCKER_HOST"
    elif isinstance(error, FileNotFoundError):
        why, hint = NO_SOCKET, START
    elif isinstance(error, TimeoutError):
        why, hint = "timed out", "check the engine: docker info"
    elif isinstance(error, ConnectionRefusedError):
        why, hint = "connection refused", START
    elif type(error).__name__ == "SSLCertVerificationError":  # by name, to not import ssl
        why = f"its certificate is not trusted: {getattr(error, 'verify_message', error)}"
        context = address.origin.startswith("context")
        any_certificate = "SkipTLSVerify in the context" if context else "DOCKER_TLS_VERIFY=0"
        hint = (
            f"save its CA certificate as {address.certificates}/ca.pem, "
            f"or accept any certificate: {any_certificate}"
        )
    else:
        why, hint = _first_line(error), START
    return no_engine(address, why, hint)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
