"""Where the Docker engine is: DOCKER_HOST, the context of the docker command, or the usual socket."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from torchx.errors import AbsentError, StateError, UsageError

if TYPE_CHECKING:
    import ssl

DEFAULT = "unix:///var/run/docker.sock"
PLAIN_PORT, TLS_PORT = 2375, 2376
WITHOUT = "without Docker: -s local_cwd"
_NO = ("0", "false", "no", "off")
NO_SOCKET, START = "there is no such socket", "start Docker, or set DOCKER_HOST"


class NoEngineError(StateError):
    """No engine answers."""


@dataclass(frozen=True)
class Address:
    """The address of an engine.

    Attributes:
        text: as people write it.
        origin: what says so; empty for the usual one.
        path: the socket's path; empty when it is reached over TCP.
        host: the machine.
        port: the port there.
        certificates: the folder of ``ca.pem``, ``cert.pem`` and ``key.pem``; None for no encryption.
        verify: whether the engine has to prove who it is.
    """

    text: str
    origin: str = ""
    path: str = ""
    host: str = ""
    port: int = 0
    certificates: str | None = None
    verify: bool = True

    def __str__(self) -> str:
        return f"{self.text} ({self.origin})" if self.origin else self.text


def no_engine(address: Address, why: str, hint: str) -> NoEngineError:
    """Returns the error that says that no engine answers at an address, why, and what to do."""
    # what tells where to look is named; else the address would be said twice
    where = f"{address.text} ({why}{', from ' + address.origin if address.origin else ''})"
    return NoEngineError(f"no Docker engine answers at {where}", hint=f"{hint}; {WITHOUT}")


def require_socket() -> None:
    """Looks whether the engine's socket is there, which costs less than loading what speaks to an engine.

    Raises:
        NoEngineError: it is not, where somebody chose it; one that is reached over TCP is not looked for.
        AbsentError: it is not in the usual place.
    """
    address = find_address()
    if address.path and not Path(address.path).exists():
        error = no_engine(address, NO_SOCKET, START)
        raise error if address.origin else AbsentError(error.message, hint=error.hint)


def find_address() -> Address:
    """Returns the address that counts, as the docker command chooses it.

    Raises:
        UsageError: DOCKER_HOST is no address that can be used here.
        StateError: the context that is chosen is not there or damaged.
    """
    told = os.environ.get("DOCKER_HOST", "")
    if told:
        wish = os.environ.get("DOCKER_TLS_VERIFY", "")
        tls = bool(wish) or bool(os.environ.get("DOCKER_TLS"))
        folder = os.environ.get("DOCKER_CERT_PATH") or str(_config_folder())
        # only an explicit no: who leaves it out has not thought of it
        verify = wish.strip().lower() not in _NO
        return parse_address(told, "DOCKER_HOST", folder, verify, encrypt=tls)
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
    """Reads an address.

    Args:
        text: the address.
        origin: what says so.
        certificates: the folder of the certificates, where the engine is reached encrypted.
        verify: whether the engine has to prove who it is.
        encrypt: whether it is reached encrypted over ``tcp://``; where ``certificates`` are by default.

    Raises:
        UsageError: it is of a kind that is not known here.

    >>> parse_address("unix:///run/d.sock").path, parse_address("tcp://box").port
    ('/run/d.sock', 2375)
    """
    scheme, found, rest = text.partition("://")
    if found and scheme == "unix" and rest:
        return Address(text, origin, path=rest)
    if found and scheme in ("tcp", "http", "https") and rest:
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
    where = origin or "the address of the engine"
    if scheme == "ssh":
        raise UsageError(
            f"{where} is {text}, and ssh addresses are not supported",
            hint="forward the socket: ssh -N -L /tmp/docker.sock:/var/run/docker.sock HOST, "
            "then DOCKER_HOST=unix:///tmp/docker.sock",
        )
    raise UsageError(f"{where} is {text}, expected unix:///path/to.sock or tcp://host:port")


def _config_folder() -> Path:
    told = os.environ.get("DOCKER_CONFIG")
    return Path(told) if told else Path(os.path.expanduser("~")) / ".docker"  # noqa: PTH111  # without a home too


def _current_context() -> str:
    try:
        name = _read(_config_folder() / "config.json").get("currentContext", "")
    except (OSError, ValueError, AttributeError):
        return ""
    return name if isinstance(name, str) else ""


def _of_context(name: str) -> Address:
    import hashlib  # on demand: few have contexts

    digest = hashlib.sha256(name.encode()).hexdigest()
    folder = _config_folder() / "contexts"
    try:
        endpoint = _read(folder / "meta" / digest / "meta.json")["Endpoints"]["docker"]
        host = endpoint["Host"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StateError(
            f"the docker context `{name}` is not there or damaged",
            hint="see what there is: docker context ls; or set DOCKER_HOST",
        ) from error
    certificates = folder / "tls" / digest / "docker"
    tls = str(certificates) if certificates.is_dir() else None
    return parse_address(host, f"context `{name}`", tls, not endpoint.get("SkipTLSVerify"))


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def tls_context(where: Address) -> ssl.SSLContext:
    """Returns how connections to an engine are encrypted: its certificate counts unless it was opted out."""
    import ssl  # on demand: few engines are reached like this

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
    """Returns an encrypted connection to an engine, on top of a plain one."""
    try:
        return tls_context(where).wrap_socket(plain, server_hostname=where.host)
    except BaseException:
        plain.close()
        raise
