"""Delivers one notification: JSON by POST, or a command; each try has a time limit."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from typing import Any, NamedTuple

from torchx.json_limits import Data
from torchx.machine import processes
from torchx.notifications.store import DELIVERED, FAILED, RETRY, UNKNOWN
from torchx.specs.notify import COMMAND, PLACEHOLDERS, command_of
from torchx.version import __version__

CONNECT_WITHIN = 10.0
"""Seconds for each step of a connection."""

ANSWER_WITHIN = 30.0
"""Seconds for a whole request."""

COMMAND_WITHIN = 60.0
"""Seconds for a command."""

TRY_AGAIN = 75
"""The exit code of a command that is to be repeated, EX_TEMPFAIL of sysexits.h."""

REPEATED = frozenset({408, 425, 429, 500, 502, 503})
"""Responses of a server that did not accept a request, but may do so later."""

PLACEHOLDER = rf"\{{({'|'.join(PLACEHOLDERS)})\}}"


class Result(NamedTuple):
    """The result of a try.

    Attributes:
        step: delivered, retry, failed or unknown.
        message: the reason; contains no part of a URL or a command.
    """

    step: str
    message: str = ""


def deliver(target: str, payload: Data) -> Result:
    """Tries once to deliver a notification.

    Args:
        target: a URL or a command.
        payload: its content.
    """
    try:
        if target.startswith(COMMAND):
            return _run(command_of(target), payload)
        return _post(target, payload)
    except Exception as error:  # a defect must not end the other deliveries
        return Result(UNKNOWN, f"unexpected {type(error).__name__}")


# --- commands ------------------------------------------------------------------------------------


def _run(command: list[str], payload: Data) -> Result:
    values = {key: "" if value is None else str(value) for key, value in payload.items()}
    args = [re.sub(PLACEHOLDER, lambda found: values.get(found[1], ""), arg) for arg in command]
    env = {f"TORCHX_NOTIFY_{name.upper()}": values.get(name, "") for name in (*PLACEHOLDERS, "event", "text")}
    try:
        process = subprocess.Popen(
            args,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Result(FAILED, f"cannot be started: {processes.start_error(error)}")
    try:
        code = process.wait(COMMAND_WITHIN)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):  # not reaped yet, so its pid was not reused
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return Result(FAILED, f"it did not end within {COMMAND_WITHIN:.0f} s")
    if code == 0:
        return Result(DELIVERED)
    if code > 0:
        how = f"exit {code}"
    else:
        how = f"signal {-code}"
    return Result(RETRY if code == TRY_AGAIN else FAILED, how)


# --- requests ------------------------------------------------------------------------------------


class _Connection(http.client.HTTPConnection):
    """A connection that distinguishes errors before and after the request is sent.

    Args:
        args: those of its base, as `options`.
        begun: a lock that is taken before the request is sent, unless the time for it is over.
    """

    def __init__(self, *args: Any, begun: threading.Lock, **options: Any) -> None:
        super().__init__(*args, **options)
        self._begun = begun

    def request(self, *args: Any, **options: Any) -> None:
        """Connects, and then sends a request.

        Raises:
            TimeoutError: the time for it is over: it must not be sent any more.
        """
        self.connect()
        self.sock.settimeout(CONNECT_WITHIN + ANSWER_WITHIN)  # the thread that waits ends the request first
        if not self._begun.acquire(blocking=False):
            raise TimeoutError("abandoned")
        super().request(*args, **options)


class _SecureConnection(_Connection, http.client.HTTPSConnection):
    """The same with TLS."""


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def __init__(self, make: Any) -> None:
        super().__init__()
        self._make = make

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Opens a URL, with TLS if the connection has it."""
        return self.do_open(self._make, req)

    https_open = http_open


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        """Follows no redirect: it would turn the POST into a GET, and send the data elsewhere."""
        return


def _post(url: str, payload: Data) -> Result:
    begun, results = threading.Lock(), list[Result]()
    thread = threading.Thread(
        target=lambda: results.append(_send(url, payload, begun)), name="notification", daemon=True
    )
    thread.start()
    thread.join(ANSWER_WITHIN)
    is_abandoned = thread.is_alive() and begun.acquire(blocking=False)
    if results:
        return results[0]
    if is_abandoned:
        return Result(RETRY, f"no connection within {ANSWER_WITHIN:.0f} s")
    return Result(UNKNOWN, f"no answer within {ANSWER_WITHIN:.0f} s")


def _connections(url: str, begun: threading.Lock) -> Any:
    """Returns the type of the connections to a URL, with its arguments."""
    if url[:6].lower() != "https:":
        return functools.partial(_Connection, begun=begun)
    context = ssl.create_default_context()  # verifies the certificate and the name of the host
    return functools.partial(_SecureConnection, begun=begun, context=context)


def _send(url: str, payload: Data, begun: threading.Lock) -> Result:
    try:
        headers = {"Content-Type": "application/json", "User-Agent": f"torchx/{__version__}"}
        data = json.dumps(payload).encode()
        request = urllib.request.Request(url, data, headers, method="POST")  # noqa: S310  # checked: http(s)
        opener = urllib.request.build_opener(_Handler(_connections(url, begun)), _NoRedirects())
        with opener.open(request, timeout=CONNECT_WITHIN):
            return Result(DELIVERED)  # the body of the response is not read
    except urllib.error.HTTPError as error:
        error.close()
        return _refused(error.code)
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = _reason(error)
        if begun.locked():
            return Result(UNKNOWN, f"{why} after it was sent")
        return Result(RETRY, why)


def _refused(code: int) -> Result:
    if code == http.client.GATEWAY_TIMEOUT:
        return Result(UNKNOWN, f"response {code} from a proxy")
    if 300 <= code < 400:
        return Result(FAILED, f"response {code}: redirects are not followed")
    return Result(RETRY if code in REPEATED else FAILED, f"response {code}")


def _reason(error: Exception) -> str:
    """Returns the reason of an error, without the URL."""
    if isinstance(error, urllib.error.URLError):
        cause = error.reason
    else:
        cause = error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the certificate is not valid: {cause.verify_message}"
    if isinstance(cause, TimeoutError):
        return "timed out"
    if isinstance(cause, socket.gaierror):
        return "the name of the host is not known"
    if isinstance(cause, ssl.SSLError):
        return f"TLS: {(cause.reason or 'error').replace('_', ' ').lower()}"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror[:1].lower() + cause.strerror[1:]
    return type(cause).__name__
