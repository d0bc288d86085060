"""Runs commands of torchx on another machine, with the streams, signals and terminal of this one."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from torchx import settings
from torchx.errors import StateError, UnreachableError
from torchx.machine.polling import readable
from torchx_cli.contexts import host
from torchx_cli.contexts.connection import Connection, LostConnectionError
from torchx_cli.terminal.output import discard_output, note
from torchx_cli.terminal.raw import terminal_size, with_raw_terminal

PATIENCE = "TORCHX_RECONNECT"
"""The variable with the seconds in which a lost connection is opened again (default: 600)."""
PAUSES = (0.1, 0.3, 1.0, 3.0, 5.0)
FORWARDED = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TZ")
INTERRUPT = b"\x03"
_ALLOWED = re.compile(
    rb"\x1b\[[0-9;]*[mABCDEFGHJK]|\x1b\[\?(?:25|7|1049|2026)[hl]|[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+"
)
"""Text, colours, movements of the cursor; no sequence that a terminal answers or stores."""
_C1 = re.compile(rb"\xc2[\x80-\x9f]")
_PART = re.compile(rb"\x1b(?:\[[0-9;?]*)?\Z")


class Command:
    """A command of torchx on another machine.

    Args:
        connection: the way to the machine.
        argv: its arguments.
        stdin: its input; None to forward that of this process.
        env: variables for it, such as secrets.
        raw: pass its output to a terminal unchanged, as for a program that runs there.
    """

    def __init__(
        self,
        connection: Connection,
        argv: Sequence[str],
        *,
        stdin: bytes | None = b"",
        raw: bool = False,
        env: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._connection = connection
        self._name = connection.context.name
        self._channel = host.Channel()
        self._id = os.urandom(12).hex()
        self._terminal = all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
        self._raw, self._argv, self._env = raw, list(argv), env
        self._reads = stdin is None or self._terminal
        self._patience = float(os.environ.get(PATIENCE) or 600)
        self._is_known = False
        self._code: int | None = None
        self._filters = {host.OUTPUT: b"", host.ERRORS: b""}
        self._process: subprocess.Popen[bytes] | None = None
        self._put_request(stdin)

    def _put_request(self, stdin: bytes | None) -> None:
        env = {name: os.environ[name] for name in FORWARDED if name in os.environ}
        size = (24, 80)
        with suppress(OSError):
            size = terminal_size()
            env["COLUMNS"] = str(size[1])
        request = {
            "argv": self._argv,
            "env": {**env, **self._env, settings.TORCHX_CONTEXT_PREFIX: self._name},
            "terminal": self._terminal,
            "size": size,
            "piped": bool(stdin),
            "patience": self._patience,
        }
        self._channel.put(host.REQUEST, json.dumps(request).encode())
        if stdin:
            self._channel.put(host.INPUT, stdin)
        if stdin is not None:
            self._channel.put(host.INPUT_END)

    def run(self) -> int:
        """Runs it to its end, and returns its exit code.

        Raises:
            UnreachableError: the connection was lost, and could not be opened again.
        """
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH)
        before = {number: signal.signal(number, lambda *_: None) for number in handled}
        woken = signal.set_wakeup_fd(wake)
        try:
            with with_raw_terminal(self._terminal):
                self._connect()
                while self._code is None:
                    self._step()
            return self._code
        except host.ProtocolError as error:
            raise StateError(f"{self._name}: {error}") from None
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._wake)
            os.close(wake)
            self._disconnect()

    # --- the connection ----------------------------------------------------------------------------

    def _connect(self) -> None:
        state = host.KNOWN if self._is_known else host.NEW
        header = {"op": "run", "id": self._id, "state": state, "received": self._channel.received}
        process, answer = self._connection.start(header)
        if answer.get("state") == host.LOST:
            raise StateError(
                f"the command on {self._name} was ended there, perhaps by a restart of the machine",
                hint=f"jobs that it has submitted go on: torchx --context {self._name} list",
            )
        self._process, self._is_known = process, True
        received = answer.get("received")
        self._channel.connect(received if isinstance(received, int) else -1)
        assert process.stdin is not None
        os.set_blocking(process.stdin.fileno(), False)

    def _disconnect(self) -> None:
        if self._process is not None:
            self._process.kill()
            with self._process:
                self._process = None

    def _reconnect(self) -> None:
        """Opens the connection again.

        Raises:
            UnreachableError: the time for it is over, or the user has interrupted it.
        """
        self._disconnect()
        self._is_known = True
        end, tries = time.monotonic() + self._patience, 0
        error: StateError = LostConnectionError(f"the connection to {self._name} was lost")
        while time.monotonic() < end:
            pause = PAUSES[min(tries, len(PAUSES) - 1)]
            if tries == 2:
                note(f"the connection to {self._name} was lost; it is opened again")
                host.write_all(sys.stderr.fileno(), b"\r" * self._terminal)
            tries += 1
            if self._is_interrupted(pause):
                break
            try:
                self._connection.quiet = True
                self._connection.open()
                self._connect()
                return
            except LostConnectionError as lost:
                error = lost
        raise UnreachableError(
            f"the connection to {self._name} was lost: {error.message}",
            hint=f"jobs go on without it: torchx --context {self._name} list",
            facts={"context": self._name},
        )

    def _is_interrupted(self, pause: float) -> bool:
        """Waits, and returns True after Ctrl-C or another signal that ends a command."""
        descriptors = [self._wake, *([sys.stdin.fileno()] if self._terminal else [])]
        data = b"".join(os.read(descriptor, 4096) for descriptor in readable(descriptors, pause))
        return bool(set(data) & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, INTERRUPT[0]})

    def _step(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        source, out = self._process.stdout.fileno(), self._process.stdin.fileno()
        readers = [source, self._wake]
        if self._reads and self._channel.held < host.MOST_HELD:
            readers.append(sys.stdin.fileno())
        writers = [out] if self._channel.has_more() else []
        ready, _ = host.wait_ready(readers, writers)
        if self._wake in ready:
            self._pass_signals(os.read(self._wake, 4096))
        if sys.stdin.fileno() in ready and self._reads:
            self._read_input()
        try:
            data = os.read(source, 1 << 18) if source in ready else None
            if data == b"":
                raise OSError
            for kind, content in self._channel.feed(data or b""):
                self._receive(kind, content)
            if self._channel.has_more():
                self._channel.send(out)
        except OSError:
            if self._code is None:
                self._reconnect()

    # --- what passes through -----------------------------------------------------------------------

    def _pass_signals(self, numbers: bytes) -> None:
        for number in set(numbers):
            if number == signal.SIGWINCH:
                with suppress(OSError):
                    self._channel.put(host.SIZE, struct.pack(">HH", *terminal_size()))
            else:
                self._channel.put(host.SIGNAL, bytes([number]))

    def _read_input(self) -> None:
        data = os.read(sys.stdin.fileno(), host.PIECE)
        if data:
            self._channel.put(host.KEYS if self._terminal else host.INPUT, data)
        else:
            self._reads = False
            self._channel.put(host.INPUT_END)

    def _receive(self, kind: int, content: bytes) -> None:
        if kind == host.EXIT and content:
            self._code = content[0]
            self._channel.note()
            assert self._process is not None
            assert self._process.stdin is not None
            while self._channel.send(self._process.stdin.fileno()):
                pass
        elif kind in self._filters:
            stream = sys.stdout if kind == host.OUTPUT else sys.stderr
            if stream.isatty() and not self._raw:
                content = self._filtered(kind, content)
            try:
                stream.flush()
                host.write_all(stream.fileno(), content)
            except BrokenPipeError:
                self._channel.put(host.SIGNAL, bytes([signal.SIGHUP]))
                discard_output()
            except OSError as error:  # not one of the connection
                raise StateError(f"the output cannot be written: {error.strerror}") from error

    def _filtered(self, kind: int, content: bytes) -> bytes:
        """Returns text without sequences that may control the terminal, other than for colours and lines."""
        content = self._filters[kind] + content
        part = _PART.search(content)
        self._filters[kind] = b""
        if part is not None and len(part[0]) < 32:
            self._filters[kind], content = part[0], content[: part.start()]
        return b"".join(_ALLOWED.findall(_C1.sub(b"", content)))
