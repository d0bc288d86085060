"""A connection on which both sides send at the same time, as to a program in a container.

One side may end while the other goes on. A plain connection is shut down for writing. An encrypted one has
no such thing in Python's sockets: what ends it is the notice that TLS sends at the end of each direction, so
it is encrypted here, in memory, by one thread alone.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from torchx.schedulers.docker.engine.address import Address, tls_context

if TYPE_CHECKING:
    import ssl

AT_A_TIME = 1 << 16
MOST_AT_ONCE = 1 << 20
"""Bytes that are taken before they are handed on."""


class Duplex:
    """A connection to an engine that never blocks.

    Args:
        plain: the connection, with its time limit for the handshake; closed when that fails.
        where: the address, which says whether it is encrypted.

    Raises:
        OSError: the handshake fails.
    """

    def __init__(self, plain: socket.socket, where: Address) -> None:
        self._plain = plain
        self._tls: ssl.SSLObject | None = None
        self._unsent = bytearray()
        self._finishing = False
        if where.certificates is not None:
            try:
                self._handshake(where)
            except BaseException:
                plain.close()
                raise
        plain.setblocking(False)

    def _handshake(self, where: Address) -> None:
        import ssl  # on demand: few engines are reached like this

        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls_context(where).wrap_bio(self._incoming, self._outgoing, server_hostname=where.host)
        self._shake_hands(self._tls)

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        import ssl

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._plain.sendall(self._outgoing.read())
                data = self._plain.recv(AT_A_TIME)
                if not data:
                    raise ConnectionResetError("it hung up") from None
                self._incoming.write(data)
            except ssl.SSLError:
                with suppress(OSError):
                    self._plain.sendall(self._outgoing.read())  # why it was refused
                raise
        self._plain.sendall(self._outgoing.read())

    def fileno(self) -> int:
        """The descriptor, to wait for it."""
        return self._plain.fileno()

    def close(self) -> None:
        """Closes both directions."""
        self._plain.close()

    @property
    def is_sent(self) -> bool:
        """Whether all that was to be sent has been handed to the system."""
        return not self._unsent

    def send(self, data: bytes) -> None:
        """Sends some bytes, now or with the next :meth:`flush`."""
        if self._tls is None:
            self._unsent += data
        else:
            self._tls.write(data)
            self._unsent += self._outgoing.read()
        self.flush()

    def discard(self) -> None:
        """Gives up what is left to send."""
        self._unsent.clear()
        self._finishing = False

    def finish(self) -> None:
        """Ends the direction from here to there, behind all that is to be sent; the other one stays open."""
        self._finishing = True
        if self._tls is not None:
            import ssl

            # it sends the notice, then looks for that of the other side, which is not there yet; what came
            # from there was taken out before, so nothing of it is lost
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._unsent += self._outgoing.read()
        self.flush()

    def flush(self) -> None:
        """Sends what can be sent now."""
        while self._unsent:
            try:
                sent = self._plain.send(self._unsent)
            except BlockingIOError:
                return
            del self._unsent[:sent]
        if self._finishing and self._tls is None:
            self._finishing = False
            self._plain.shutdown(socket.SHUT_WR)

    def receive(self) -> tuple[bytes, bool]:
        """Returns what has come, and whether that was the end of it."""
        data = b""
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
        """Returns all that can be read of what has come, and whether the other side has sent its notice."""
        import ssl

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
        """Waits until something can be received, or sent where something is left to send."""
        poll = select.poll()
        poll.register(self._plain, select.POLLIN | (0 if self.is_sent else select.POLLOUT))
        return bool(poll.poll(timeout * 1000))

    def head(self, patience: float) -> tuple[bytes, bytes]:
        """Returns the head of an answer, and what has come behind it.

        Raises:
            OSError: it does not come within so many seconds, or the other side hangs up.
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
                raise ConnectionResetError("it hung up")
        head, _, rest = data.partition(b"\r\n\r\n")
        return head, rest

    def rest(self, patience: float) -> bytes:
        """Returns all that comes within so many seconds, until the other side hangs up."""
        end = time.monotonic() + patience
        data, ended = self.receive()
        while not ended and self.wait(max(end - time.monotonic(), 0.0)):
            more, ended = self.receive()
            data += more
        return data
