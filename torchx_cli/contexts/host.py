"""The program on the other machine: it runs torchx, also while no connection exists. Standard library only.

Its source is sent over ssh, so it must run on Python 3.10 without torchx. Frames survive the loss of a
connection: each side keeps the bytes that it has sent until the other side confirms them. After a new
connection both report how many bytes they have received, and send the rest. So nothing is lost or repeated.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib
import io
import json
import os
import select
import signal
import socket
import stat
import struct
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

MARK = b"\0torchx-host 1 "
"""Begins the answer: a shell of the other machine may print something before it."""
REQUEST, INPUT, INPUT_END, KEYS, SIGNAL, SIZE, OUTPUT, ERRORS, EXIT, CONFIRM = b"RIeTSWOXQK"
HEADER = struct.Struct(">BI")
LARGEST = 1 << 27
"""Maximum bytes of a frame: a request contains an application."""
PIECE = 1 << 16
CONFIRM_EVERY = 1 << 17
"""Bytes after which the receiver confirms them."""
MOST_HELD = 1 << 20
"""Bytes that wait for a confirmation, from which a side reads no more from its sources."""
DRAIN = 1.0
"""Seconds after the end of torchx in which its output is read, as other processes may hold it open."""
FOLDERS = ("apps", "requests", "files", "trees")
NEW, KNOWN, LOST = "new", "known", "lost"


class ProtocolError(Exception):
    """The other side does not send frames."""


class Channel:
    """The frames in both directions, independent of a connection.

    Attributes:
        received: the number of bytes of whole frames that were received.
    """

    def __init__(self) -> None:
        self.received = 0
        self._held = bytearray()  # not confirmed by the other side
        self._first = 0  # the offset of the first held byte in the stream
        self._sent = 0  # of the held bytes
        self._read = bytearray()
        self._noted = 0  # confirmed to the other side

    def put(self, kind: int, data: bytes = b"") -> None:
        """Adds a frame."""
        self._held += HEADER.pack(kind, len(data)) + data

    @property
    def held(self) -> int:
        """The number of bytes that the other side has not confirmed."""
        return len(self._held)

    def connect(self, received: int) -> None:
        """Begins a new connection: the other side has received so many bytes.

        Raises:
            ProtocolError: it cannot have received that many, or they are no longer here.
        """
        if not self._first <= received <= self._first + len(self._held):
            raise ProtocolError("the other side has received an impossible number of bytes")
        self._confirm(received)
        self._sent = 0
        self._read.clear()

    def _confirm(self, received: int) -> None:
        count = received - self._first
        if 0 < count <= len(self._held):
            del self._held[:count]
            self._first, self._sent = received, max(self._sent - count, 0)

    def send(self, descriptor: int) -> bool:
        """Writes some bytes to a connection; returns True if there are more."""
        if self._sent < len(self._held):
            with contextlib.suppress(BlockingIOError):
                self._sent += os.write(descriptor, self._held[self._sent : self._sent + PIECE])
        return self._sent < len(self._held)

    def has_more(self) -> bool:
        """Returns True if bytes are to be sent."""
        return self._sent < len(self._held)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Receives bytes, and yields the frames that are complete.

        Raises:
            ProtocolError: a frame is too large.
        """
        self._read += data
        while len(self._read) >= HEADER.size:
            kind, size = HEADER.unpack_from(self._read)
            end = HEADER.size + size
            if size > LARGEST:
                raise ProtocolError("a frame is too large")
            if len(self._read) < end:
                break
            content = bytes(self._read[HEADER.size : end])
            del self._read[:end]
            self.received += end
            if kind == CONFIRM:
                self._confirm(int.from_bytes(content, "big"))
            else:
                yield kind, content
        if self.received - self._noted >= CONFIRM_EVERY:
            self.note()

    def note(self) -> None:
        """Confirms all received bytes."""
        self._noted = self.received
        self.put(CONFIRM, self.received.to_bytes(8, "big"))


def main(header: dict[str, Any]) -> None:
    """Carries out a request of the machine behind the connection, which is on stdin and stdout."""
    try:
        base = home_of(header)
        if header["op"] == "info":
            answer(python=sys.executable, version=sys.version_info[:3], home=base, torchx=installed())
        elif header["op"] == "app":
            unpack(os.path.join(base, "apps"), header["digest"], read_exactly(header["size"]))
            answer()
        elif header["op"] == "files":
            receive_files(base, header["files"])
        elif header["op"] == "direct":
            answer()
            run_torchx(header)
        else:
            relay(os.path.join(base, "requests"), header)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        answer(error=f"{place}{error.strerror or error}")


def answer(**fields: Any) -> None:
    """Answers a request."""
    write_all(1, MARK + json.dumps(fields).encode() + b"\n")


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all bytes."""
    while data:
        data = data[os.write(descriptor, data) :]


def wait_ready(
    readers: Sequence[int], writers: Sequence[int], timeout: float = -1
) -> tuple[set[int], set[int]]:
    """Waits for descriptors, also for those above 1,023, which ``select`` rejects.

    Args:
        readers: descriptors to read from.
        writers: descriptors to write to.
        timeout: seconds; negative for no limit.

    Returns:
        Those that can be read, and those that can be written; a closed one counts as both.
    """
    poll = select.poll()
    for descriptor in {*readers, *writers}:
        mask = select.POLLIN * (descriptor in readers) | select.POLLOUT * (descriptor in writers)
        poll.register(descriptor, mask)
    events = poll.poll(timeout * 1000)
    ready = {descriptor for descriptor, event in events if event & ~select.POLLOUT}
    writable = {descriptor for descriptor, event in events if event & ~select.POLLIN}
    return ready.intersection(readers), writable.intersection(writers)


def read_exactly(size: int) -> bytes:
    """Reads bytes from stdin."""
    data = bytearray()
    while len(data) < size:
        piece = os.read(0, min(size - len(data), 1 << 20))
        if not piece:
            raise OSError(errno.EPIPE, "the connection ended")
        data += piece
    return bytes(data)


def read_line() -> Any:
    """Reads a line of JSON from stdin."""
    data = b""
    while not data.endswith(b"\n"):
        data += os.read(0, 1) or os._exit(3)
    return json.loads(data)


def home_of(header: dict[str, Any]) -> str:
    """Returns the private folder of contexts on this machine."""
    home = header.get("home") or os.environ.get("TORCHX_HOME") or "~/.torchx"
    os.environ["TORCHX_HOME"] = home = os.path.abspath(os.path.expanduser(home))
    if "~" in os.path.expanduser("~") and "~" in home:
        raise OSError(
            errno.ENOENT, "HOME is not set there; name a folder: torchx context add --replace --home"
        )
    base = os.path.join(home, "contexts")
    for folder in (home, base, *(os.path.join(base, name) for name in FOLDERS)):
        with contextlib.suppress(FileExistsError):
            os.makedirs(folder, 0o700)
        status = os.stat(folder)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022 or not stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EPERM, "others may write to this folder", folder)
    return base


def installed() -> str:
    """Returns the version of torchx of this Python; empty without one."""
    import importlib.metadata

    try:
        return importlib.metadata.version("torchx-cli")
    except importlib.metadata.PackageNotFoundError:
        return ""


def unpack(folder: str, name: str, data: bytes) -> None:
    """Unpacks a zip archive to a new folder, completely or not at all."""
    import shutil
    import zipfile

    final, part = os.path.join(folder, name), os.path.join(folder, f".{name}-{os.getpid()}")
    if not os.path.isdir(final):
        try:
            zipfile.ZipFile(io.BytesIO(data)).extractall(part)
            os.rename(part, final)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def receive_files(base: str, tree: list[Any]) -> None:
    """Receives a folder of which only the missing files are sent; answers with its path.

    Args:
        base: the folder of contexts.
        tree: the path, kind, mode, target, size and digest of each entry.
    """
    final = os.path.join(base, "trees", hashlib.sha256(json.dumps(tree).encode()).hexdigest())
    is_known, files = os.path.isdir(final), {}
    for path, kind, mode, _, size, digest in tree:
        stored = os.path.join(base, "files", f"{digest}-{mode}")
        if kind == "file" and not is_known and not os.path.exists(stored):
            files[stored] = (path, mode, size, digest)
    answer(missing=[entry[0] for entry in files.values()])
    for stored, (path, mode, size, digest) in files.items():
        data = read_exactly(size)
        if hashlib.sha256(data).hexdigest() != digest:
            raise OSError(errno.EIO, "a file arrived damaged", path)
        part = f"{stored}.{os.getpid()}"
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), mode)
            os.rename(part, stored)
        except OSError:
            os.unlink(part)
            raise
    if not is_known:
        part = f"{final}.{os.getpid()}"
        os.mkdir(part, 0o700)
        for path, kind, mode, target, _, content in tree:
            at = os.path.join(part, path)
            if ".." in path.split("/") or path.startswith("/"):
                raise OSError(errno.EPERM, "a path leads outside", path)
            if kind == "dir":
                os.makedirs(at, mode | 0o700, exist_ok=True)
            elif kind == "link":
                os.symlink(target, at)
            else:
                os.link(os.path.join(base, "files", f"{content}-{mode}"), at)
        os.rename(part, final)
    write_all(1, json.dumps({"folder": final}).encode() + b"\n")


def run_torchx(request: dict[str, Any]) -> NoReturn:
    """Runs a command line of torchx in this process, and exits."""
    os.environ.update(request.get("env") or {})
    sys.argv = ["torchx", *request["argv"]]
    try:
        with contextlib.suppress(FileNotFoundError):  # some users have no home
            os.chdir(os.path.expanduser("~"))
        program = importlib.import_module("torchx_cli.__main__").program
    except (OSError, ImportError) as error:
        write_all(2, f"error: torchx cannot be started on the other machine: {error}\n".encode())
        os._exit(1)
    program()
    os._exit(0)


def relay(folder: str, header: dict[str, Any]) -> None:
    """Passes the connection to the process of a request, which is started if it is new."""
    name = os.path.basename(str(header["id"]))
    place = os.path.join(folder, name)
    listener = socket.socket(socket.AF_UNIX)
    state = KNOWN
    try:
        if header["state"] == NEW:
            os.mkdir(place, 0o700)
            state = NEW
    except FileExistsError:
        pass
    try:
        os.chdir(place)  # the path of a socket is short
    except FileNotFoundError:
        answer(state=LOST)
        return
    if state == NEW:
        listener.bind("socket")
        listener.listen(4)
        if not os.fork():
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            Host(listener).run()
    listener.close()
    with socket.socket(socket.AF_UNIX) as process:
        try:
            process.connect("socket")
        except OSError:
            answer(state=LOST)
            return
        received = int(header["received"]).to_bytes(8, "big")
        socket.send_fds(process, [received], [0, 1])
        process.recv(1)  # until the process ends, or leaves the connection


class Host:
    """Runs one command, and keeps its output while no connection exists.

    Args:
        listener: connections come with the descriptors of their input and output.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._channel = Channel()
        self._relay: socket.socket | None = None
        self._connection: list[int] = []
        self._lost_at = time.monotonic()
        self._patience = 600.0
        self._child = 0
        self._sources: dict[int, int] = {}
        self._stdin, self._terminal = -1, -1
        self._inputs: dict[int, bytearray] = {}
        self._input_ended = False
        self._code: int | None = None
        self._ended_at = 0.0
        self._is_reported = False
        self._wake, wake = os.pipe()
        for descriptor in (self._wake, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

    def run(self) -> NoReturn:
        """Serves until the command has ended and its result has arrived, or nothing connects any more."""
        try:
            while self._step():
                pass
        finally:
            with contextlib.suppress(OSError):
                os.unlink("socket")
                os.rmdir(os.getcwd())
            os._exit(0)

    def _step(self) -> bool:
        """Waits for something to do, and does it; returns False at the end."""
        self._pass_on()
        self._reap()
        if self._is_reported:
            return self._channel.held > 0 and not self._is_given_up()
        if not self._connection and self._is_given_up():
            self._signal(signal.SIGHUP)
            self._lost_at = time.monotonic()
            return self._code is None and self._child > 0
        return True

    def _pass_on(self) -> None:
        readers = [self._listener.fileno(), self._wake, *self._connection[:1]]
        if self._channel.held < MOST_HELD:
            readers += self._sources
        writers = []
        if self._connection and self._channel.has_more():
            writers.append(self._connection[1])
        writers += [descriptor for descriptor, data in self._inputs.items() if data]
        readable, writable = wait_ready(readers, writers, 0.5)
        if self._wake in readable:
            os.read(self._wake, 4096)
        if self._listener.fileno() in readable:
            self._accept()
        for descriptor in self._sources.keys() & set(readable):
            self._read_output(descriptor)
        for descriptor in self._inputs.keys() & set(writable):
            self._write_input(descriptor)
        if self._connection and self._connection[0] in readable:
            self._read_connection()
        if self._connection and self._channel.has_more():
            try:
                self._channel.send(self._connection[1])
            except OSError:
                self._disconnect()

    def _is_given_up(self) -> bool:
        return not self._connection and time.monotonic() - self._lost_at > self._patience

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        data, descriptors, _, _ = socket.recv_fds(connection, 8, 2)
        self._disconnect()
        self._relay, self._connection = connection, descriptors
        try:
            state = {"state": KNOWN, "received": self._channel.received}
            write_all(descriptors[1], MARK + json.dumps(state).encode() + b"\n")
            self._channel.connect(int.from_bytes(data, "big"))
            for descriptor in descriptors:
                os.set_blocking(descriptor, False)
        except (OSError, ProtocolError):
            self._disconnect()

    def _disconnect(self) -> None:
        for descriptor in self._connection:
            os.close(descriptor)
        if self._relay is not None:
            self._relay.close()
        self._relay, self._connection, self._lost_at = None, [], time.monotonic()

    def _read_connection(self) -> None:
        try:
            data = os.read(self._connection[0], PIECE)
            for kind, content in self._channel.feed(data):
                self._carry_out(kind, content)
        except BlockingIOError:
            return
        except (OSError, ProtocolError, ValueError):
            data = b""
        if not data:
            self._disconnect()

    def _carry_out(self, kind: int, content: bytes) -> None:
        if kind == REQUEST and not self._child:
            self._start(json.loads(content))
        elif kind in (INPUT, KEYS):
            self._inputs.get(self._stdin if kind == INPUT else self._terminal, bytearray()).extend(content)
        elif kind == INPUT_END:
            self._input_ended = True
            self._close_input()
        elif kind == SIGNAL:
            self._signal(content[0])
        elif kind == SIZE and self._terminal >= 0:
            self._resize(content)

    def _resize(self, size: bytes) -> None:
        rows, columns = struct.unpack(">HH", size)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _start(self, request: dict[str, Any]) -> None:
        self._patience = float(request.get("patience", self._patience))
        pairs = [os.pipe() for _ in range(3)]
        theirs, sources = [pairs[0][0], pairs[1][1], pairs[2][1]], {pairs[1][0]: OUTPUT, pairs[2][0]: ERRORS}
        self._stdin = pairs[0][1]
        if request.get("terminal"):
            self._terminal, slave = os.openpty()
            self._resize(struct.pack(">HH", *request["size"]))
            for descriptor in (*pairs[1], *pairs[2]):
                os.close(descriptor)
            theirs, sources = (
                [theirs[0] if request.get("piped") else slave, slave, slave],
                {self._terminal: OUTPUT},
            )
            self._inputs[self._terminal] = bytearray()
        self._inputs[self._stdin] = bytearray()
        self._child = os.fork()
        if not self._child:
            self._become(request, theirs)
        for descriptor in {*theirs, pairs[0][0]}:
            os.close(descriptor)
        self._sources = sources
        for descriptor in (self._stdin, *sources):
            os.set_blocking(descriptor, False)

    def _become(self, request: dict[str, Any], streams: list[int]) -> NoReturn:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        if request.get("terminal"):
            fcntl.ioctl(streams[1], termios.TIOCSCTTY, 0)
        for number, descriptor in enumerate(streams):
            os.dup2(descriptor, number)
        os.closerange(3, 256)
        run_torchx(request)

    def _read_output(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, PIECE)
        except BlockingIOError:
            return
        except OSError:  # the terminal was closed
            data = b""
        if data:
            self._channel.put(self._sources[descriptor], data)
            return
        del self._sources[descriptor]
        if descriptor != self._terminal:
            os.close(descriptor)

    def _write_input(self, descriptor: int) -> None:
        data = self._inputs[descriptor]
        try:
            del data[: os.write(descriptor, data[:PIECE])]
        except BlockingIOError:
            return
        except OSError:  # the program has closed it
            data.clear()
        self._close_input()

    def _close_input(self) -> None:
        """Closes stdin after its end was sent."""
        if self._input_ended and not self._inputs.get(self._stdin, b"x"):
            del self._inputs[self._stdin]
            os.close(self._stdin)

    def _signal(self, number: int) -> None:
        if self._child and self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child, number)

    def _reap(self) -> None:
        if self._child and self._code is None:
            pid, status = os.waitpid(self._child, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._code, self._ended_at = (code if code >= 0 else 128 - code), time.monotonic()
        if self._code is None or self._is_reported:
            return
        if not self._sources or time.monotonic() - self._ended_at > DRAIN:
            self._channel.put(EXIT, bytes([self._code & 0xFF]))
            self._is_reported = True
