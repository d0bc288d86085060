"""The Docker engine's address: DOCKER_HOST, the context of the docker command, or the default socket."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from torchx import json_shape
from torchx.errors import AbsentError, StateError, UnreachableError, UsageError
from torchx.json_shape import typed_at
from torchx.lazy import lazy_imports

with lazy_imports:
    import hashlib
    import socket
    import ssl

    from torchx.schedulers.docker.engine import ssh

DEFAULT = "unix:///var/run/docker.sock"
PLAIN_PORT, TLS_PORT = 2375, 2376
WITHOUT_DOCKER = "without Docker: -s local_cwd"
EXPECTED = "unix:///path/to.sock, tcp://host:port or ssh://user@host"
NO_SOCKET, START = "the socket does not exist", "start Docker, or set DOCKER_HOST"
_NO = ("0", "false", "no", "off")


class NoEngineError(UnreachableError):
    """No engine answers."""


class Address(NamedTuple):
    """The address of an engine.

    Attributes:
        text: the address as configured.
        origin: the setting it comes from; empty for the default.
        path: the socket's path; empty for TCP.
        host: the host name.
        port: the TCP port.
        certificates: the folder of ``ca.pem``, ``cert.pem`` and ``key.pem``; None for no encryption.
        verify: whether the engine's certificate is verified.
        command: a command whose input and output are the connection; empty for a socket.
    """

    text: str
    origin: str = ""
    path: str = ""
    host: str = ""
    port: int = 0
    certificates: str | None = None
    verify: bool = True
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.origin:
            return f"{self.text} ({self.origin})"
        return self.text


def no_engine(address: Address, why: str, hint: str) -> NoEngineError:
    """Returns the error for an address at which no engine answers, with the reason and a hint."""
    # `str(address)` would add a second pair of parentheses
    where = f"{address.text} ({why}{', from ' + address.origin if address.origin else ''})"
    return NoEngineError(f"no Docker engine answers at {where}", hint=f"{hint}; {WITHOUT_DOCKER}")


def require_socket() -> None:
    """Checks that the engine's socket exists, without loading the client; TCP addresses are not checked.

    Raises:
        NoEngineError: the configured socket does not exist.
        AbsentError: the default socket does not exist.
    """
    address = find_address()
    if address.path and not Path(address.path).exists():
        error = no_engine(address, NO_SOCKET, START)
        raise error if address.origin else AbsentError(error.message, hint=error.hint)


def find_address() -> Address:
    """Returns the engine's address, chosen as the docker command does.

    Raises:
        UsageError: DOCKER_HOST is not a supported address.
        StateError: the selected context is missing or damaged.
    """
    host = os.environ.get("DOCKER_HOST", "")
    if host:
        tls_verify = os.environ.get("DOCKER_TLS_VERIFY", "")
        tls = bool(tls_verify) or bool(os.environ.get("DOCKER_TLS"))
        folder = os.environ.get("DOCKER_CERT_PATH") or str(_config_folder())
        # only an explicit "no" turns verification off; unset does not
        verify = tls_verify.strip().lower() not in _NO
        return parse_address(host, "DOCKER_HOST", folder, verify, encrypt=tls)
    name = os.environ.get("DOCKER_CONTEXT", "") or _current_context()
    if name in ("", "default"):
        return parse_address(DEFAULT)
    return _of_context(name)


def parse_address(
    text: str,
    origin: str = "",
    certificates: str | None = None,
    verify: bool = True,
    *,
    encrypt: bool | None = None,
) -> Address:
    """Parses an address.

    Args:
        text: the address.
        origin: the setting it comes from.
        certificates: the folder of the certificates for an encrypted connection.
        verify: whether the engine's certificate is verified.
        encrypt: whether to encrypt ``tcp://`` (default: if ``certificates`` is given).

    Raises:
        UsageError: the kind of address is not supported.

    >>> parse_address("unix:///run/d.sock").path, parse_address("tcp://box").port
    ('/run/d.sock', 2375)
    """
    scheme, _, rest = text.partition("://")
    if scheme == "unix" and rest:
        return Address(text, origin, path=rest)
    if scheme in ("tcp", "http", "https") and rest:
        if scheme == "https":
            certificates = certificates or str(_config_folder())
        elif encrypt is False:
            certificates = None
        parts = urlsplit(f"//{rest}")
        try:
            port = parts.port or (PLAIN_PORT if certificates is None else TLS_PORT)
        except ValueError:
            port = 0
        if parts.hostname and port:
            return Address(text, origin, "", parts.hostname, port, certificates, verify)
    if scheme == "ssh":
        command = ssh.dial_command(text)
        if command is not None:
            return Address(text, origin, command=command)
    where = origin or "the address of the engine"
    raise UsageError(f"{where} is {text}, expected {EXPECTED}")


def _config_folder() -> Path:
    folder = os.environ.get("DOCKER_CONFIG")
    # Path.home() raises without a home
    return Path(folder) if folder else Path(os.path.expanduser("~")) / ".docker"  # noqa: PTH111


def _current_context() -> str:
    try:
        return typed_at(_read(_config_folder() / "config.json"), str, "currentContext")
    except (OSError, ValueError, RecursionError):
        return ""


def _of_context(name: str) -> Address:
    digest = hashlib.sha256(name.encode()).hexdigest()
    folder = _config_folder() / "contexts"
    try:
        endpoint = typed_at(_read(folder / "meta" / digest / "meta.json"), dict, "Endpoints", "docker")
        host = json_shape.text(endpoint.get("Host"), "Host")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StateError(
            f"the docker context `{name}` is missing or damaged",
            hint="list the contexts: docker context ls; or set DOCKER_HOST",
        ) from error
    certificates = folder / "tls" / digest / "docker"
    tls = None
    if certificates.is_dir():
        tls = str(certificates)
    return parse_address(host, f"context `{name}`", tls, not endpoint.get("SkipTLSVerify"))


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def tls_context(where: Address) -> ssl.SSLContext:
    """Returns the TLS settings for an engine; its certificate is verified unless that is turned off."""
    folder = Path(where.certificates or "")
    authority, certificate = folder / "ca.pem", folder / "cert.pem"
    context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
    if not where.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate.exists():
        context.load_cert_chain(str(certificate), str(folder / "key.pem"))
    return context


def encrypted(plain: socket.socket, where: Address) -> socket.socket:
    """Wraps a plain connection to an engine in TLS."""
    try:
        return tls_context(where).wrap_socket(plain, server_hostname=where.host)
    except BaseException:
        plain.close()
        raise
