"""A headless Chromium that opens one page, for tests and for pictures of the documentation.

It is controlled over two pipes, without a port, and has no network.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 120.0
"""Seconds to wait for an answer on a busy machine."""


def program() -> str | None:
    """Returns the path of Chromium, or None."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Page:
    """An open page.

    Attributes:
        problems: messages of the console and requests other than of the page itself.
    """

    def __init__(self, reader: int, writer: int) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._received = b""
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self._url = ""
        self.problems: list[str] = []

    def open(self, path: Path) -> None:
        """Opens a file and waits until it is loaded."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self._url = path.resolve().as_uri()
        self.call("Page.navigate", url=self._url)
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._receive()

    def resize(self, width: int, height: int, *, scheme: str = "light", media: str = "screen") -> None:
        """Sets the size of the window, the colour scheme and the medium."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def evaluate(self, script: str) -> Any:
        """Returns the value of an expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self) -> bytes:
        """Returns a PNG of the window."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Calls a method of the protocol and returns its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._received:
            ready, _, _ = select.select([self._reader], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._reader, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("Chromium does not answer")
            self._received += data
        line, _, self._received = self._received.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        method, parameters = message.get("method"), message.get("params", {})
        if method is None:
            return
        self._events.append(message)
        if method == "Network.requestWillBeSent" and parameters["request"]["url"] != self._url:
            self.problems.append(f"request: {parameters['request']['url']}")
        elif method in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.problems.append(f"{method}: {json.dumps(parameters)[:500]}")


def _high(*descriptors: int) -> list[int]:
    """Returns copies of descriptors that differ from 3 and 4."""
    copies = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    return copies


@contextmanager
def browser() -> Iterator[Page]:
    """Yields a page of a new Chromium, which ends afterwards."""
    path = program()
    assert path is not None, "Chromium is not installed: apt install chromium"
    to_it, ours = _high(*os.pipe())
    theirs, from_it = _high(*os.pipe())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [
            path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-extensions", "--hide-scrollbars", "--remote-debugging-pipe",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        # the protocol is on the descriptors 3 and 4
        shell = f'exec "$@" 3<&{to_it} 4>&{from_it} {to_it}<&- {from_it}>&-'
        with subprocess.Popen(
            ["bash", "-c", shell, "bash", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            pass_fds=(to_it, from_it), env={**os.environ, "HOME": profile, "XDG_CONFIG_HOME": profile},
        ) as process:  # fmt: skip
            os.close(to_it)
            os.close(from_it)
            page = Page(theirs, ours)
            try:
                yield page
            finally:
                with contextlib.suppress(Exception):
                    page._session = None
                    page.call("Browser.close")
                os.close(ours)
                os.close(theirs)
                process.kill()
