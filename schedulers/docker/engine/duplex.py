"""A two-way connection to an engine, as to a program in a container.

Either direction can be closed while the other stays open. A plain connection is shut down for writing.
Python's TLS sockets cannot do that, so TLS runs in memory here: closing a direction sends its close notice.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress

from torchx.lazy import lazy_imports
from torchx.machine.polling import ready
from torchx.schedulers.docker.engine.address import Address, tls_context
from torchx.schedulers.docker.engine.http import closed_on_error

with lazy_imports:
    import ssl

AT_A_TIME = 1 << 16
MOST_AT_ONCE = 1 << 20
"""Maximum bytes returned by one :meth:`Duplex.receive`."""


class Duplex:
    """A non-blocking connection to an engine.

    Args:
        plain: the connection; its timeout applies to the TLS handshake, and it is closed if that fails.
        where: the engine's address; with certificates, the connection is encrypted.

    Raises:
        OSError: the handshake fails.
    """

    def __init__(self, plain: socket.socket, where: Address) -> None:
        self._plain = plain
        self._tls: ssl.SSLObject | None = None
        self._unsent = bytearray()
        self._finishing = False
        self._early = (b"", False)  # received with the end of the handshake, as by `receive`
        if where.certificates is not None:
            with closed_on_error(plain):
                self._handshake(where)
        plain.setblocking(False)

    def _handshake(self, where: Address) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls_context(where).wrap_bio(self._incoming, self._outgoing, server_hostname=where.host)
        self._shake_hands(self._tls)

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._plain.sendall(self._outgoing.read())
                data = self._plain.recv(AT_A_TIME)
                if not data:
                    raise ConnectionResetError("connection closed") from None
                self._incoming.write(data)
            except ssl.SSLError:
                with suppress(OSError):
                    self._plain.sendall(self._outgoing.read())  # TLS's alert with the reason
                raise
        self._plain.sendall(self._outgoing.read())
        self._early = self._decrypted()

    def fileno(self) -> int:
        """Returns the file descriptor, for polling."""
        return self._plain.fileno()

    def close(self) -> None:
        """Closes both directions."""
        self._plain.close()

    @property
    def is_sent(self) -> bool:
        """Whether no data is waiting to be sent."""
        return not self._unsent

    def send(self, data: bytes) -> None:
        """Sends data, now or with a later :meth:`flush`."""
        if self._tls is None:
            self._unsent += data
        else:
            self._tls.write(data)
            self._unsent += self._outgoing.read()
        self.flush()

    def discard(self) -> None:
        """Discards the unsent data."""
        self._unsent.clear()
        self._finishing = False

    def finish(self) -> None:
        """Closes the sending direction after all data is sent; receiving stays open."""
        self._finishing = True
        if self._tls is not None:
            # sends the close notice, then fails as the peer's has not arrived; data received before is
            # already decrypted, so nothing is lost
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._unsent += self._outgoing.read()
        self.flush()

    def flush(self) -> None:
        """Sends as much data as possible without blocking."""
        while self._unsent:
            try:
                sent = self._plain.send(self._unsent)
            except BlockingIOError:
                return
            del self._unsent[:sent]
        if self._finishing and self._tls is None:
            self._finishing = False
            self._plain.shutdown(socket.SHUT_WR)

    @property
    def is_received(self) -> bool:
        """Whether data, or the end, was received already: polling does not report it."""
        return self._early != (b"", False)

    def receive(self) -> tuple[bytes, bool]:
        """Returns the received data, and True if the peer has closed its direction."""
        (data, ended), self._early = self._early, (b"", False)
        if ended:
            return data, True
        while len(data) < MOST_AT_ONCE:
            try:
                more = self._plain.recv(AT_A_TIME)
            except BlockingIOError:
                return data, False
            if not more:
                return data, True
            if self._tls is None:
                data += more
                continue
            self._incoming.write(more)
            clear, ended = self._decrypted()
            data += clear
            if ended:
                return data, True
        return data, False

    def _decrypted(self) -> tuple[bytes, bool]:
        """Returns the decrypted data, and True if the peer has sent its close notice."""
        assert self._tls is not None
        pieces: list[bytes] = []
        ended = False
        while not ended:
            try:
                piece = self._tls.read(AT_A_TIME)
                pieces.append(piece)
                ended = not piece
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                ended = True
        self._unsent += self._outgoing.read()
        return b"".join(pieces), ended

    def wait(self, timeout: float) -> bool:
        """Waits until data can be received, or unsent data can be sent; returns False on timeout."""
        if self.is_received:
            return True
        return bool(ready({self._plain: select.POLLIN | (0 if self.is_sent else select.POLLOUT)}, timeout))

    def head(self, patience: float) -> tuple[bytes, bytes]:
        """Returns the head of a response, and the data received after it.

        Raises:
            OSError: it timed out, or the peer closed the connection.
        """
        end = time.monotonic() + patience
        data = b""
        while b"\r\n\r\n" not in data:
            left = end - time.monotonic()
            if left <= 0 or not self.wait(left):
                raise TimeoutError
            self.flush()
            more, ended = self.receive()
            data += more
            if ended and b"\r\n\r\n" not in data:
                raise ConnectionResetError("connection closed")
        head, _, rest = data.partition(b"\r\n\r\n")
        return head, rest

    def rest(self, patience: float) -> bytes:
        """Returns the data received until the peer closes the connection or the time is over."""
        end = time.monotonic() + patience
        data, ended = self.receive()
        while not ended and self.wait(max(end - time.monotonic(), 0.0)):
            more, ended = self.receive()
            data += more
        return data
