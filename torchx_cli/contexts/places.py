"""The files of a replica: on this machine, in a container, or behind a program that packs them."""

from __future__ import annotations

import io
import itertools
import json
import os
import posixpath
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torchx.errors import StateError, TorchxError, UsageError
from torchx.printable import one_line
from torchx.scheduling.protocols import CopiesFiles, Executes, KeepsFiles
from torchx.scheduling.streams import Streams
from torchx_cli.contexts import members
from torchx_cli.contexts.connection import Connection
from torchx_cli.contexts.members import Have, Log, Member

if TYPE_CHECKING:
    from torchx.runner.api import Runner

MISSING = 44
"""The exit code of the script for a path that does not exist."""
NO_PROGRAM = (126, 127)
REPEAT = "repeat the command: it continues where it ended"
LARGEST_HAVE = 1 << 27
CHANGED = 1
"""The exit code of tar if a file changed while it was read."""

_READ = f"""
if [ -d "$1" ]; then cd -- "$1" && exec tar -cf - .; fi
[ -e "$1" ] || exit {MISSING}
case $1 in */*) cd -- "${{1%/*}}/" || exit 1;; esac
exec tar -chf - "./${{1##*/}}"
"""
_WRITE = """
to=$1
if [ "${2:-.}" != . ] && [ -d "$to" ]; then to=${to%/}/$2; fi
if [ "$3" = folder ]; then mkdir -p -- "$to" && cd -- "$to" && exec tar -xpof -; exit 1; fi
case $to in */*) at=${to%/*}/;; *) at=./;; esac
part=$at.torchx-part-$$
trap 'rm -rf -- "$part"' EXIT
mkdir -- "$part" && (cd -- "$part" && tar -xpof -) && mv -f -- "$part/file" "$to"
"""
"""The file is unpacked beside its place, and moved there when it is complete."""


class Place(Protocol):
    """The files of a replica; a relative path begins at its working directory."""

    def read(self, path: str, log: Log, have: Have | None = None) -> Any:
        """Opens a context with the members at a path; those that the caller has may be left out."""

    def write(self, source: Iterable[Member], path: str, name: str, log: Log) -> None:
        """Writes members to a path, or below it under a name if the path is a folder."""

    def have(self, path: str, name: str) -> dict[str, int]:
        """Returns the files that need not be sent again; an engine takes whole files."""
        return {}


class Here(Place):
    """Files of this machine.

    Args:
        folder: the folder at which relative paths begin; None if it is not known.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def _path(self, path: str) -> Path:
        if self._folder is None and not path.startswith("/"):
            raise UsageError(
                f"the working directory of the replica is not known; expected an absolute path, got `{path}`"
            )
        return (self._folder or Path("/")) / path

    @contextmanager
    def read(self, path: str, log: Log, have: Have | None = None) -> Iterator[Iterable[Member]]:
        """Opens a context with the members of a file or folder."""
        yield members.walk(self._path(path), log)

    def write(self, source: Iterable[Member], path: str, name: str, log: Log) -> None:
        """Writes members to a path."""
        target = self._path(path)
        if path.endswith("/") and not target.is_dir():
            raise UsageError(f"no such folder: {one_line(target)}", code="not_found")
        members.receive(source, members.target_of(target, name), log)

    def have(self, path: str, name: str) -> dict[str, int]:
        """Returns the files that need not be sent again."""
        return members.have(members.target_of(self._path(path), name))


class Container(Place):
    """Files of a container.

    Args:
        engine: copies them.
        replica: the application, the role, and the id of the replica.
    """

    def __init__(self, engine: CopiesFiles, replica: tuple[str, str, int]) -> None:
        self._engine, self._replica = engine, replica

    @contextmanager
    def read(self, path: str, log: Log, have: Have | None = None) -> Iterator[Iterable[Member]]:
        """Opens a context with the members of a file or folder."""
        archive = self._engine.read_files(*self._replica, path)
        try:
            yield members.Archive(archive)
        finally:
            archive.close()

    def write(self, source: Iterable[Member], path: str, name: str, log: Log) -> None:
        """Sends members to the engine."""
        folder, top = path, name or "."
        if self._engine.file_kind(*self._replica, path) != "folder":
            folder, top = posixpath.split(path)
            if not top:
                raise UsageError(f"no such folder in the container: {path}", code="not_found")

        def send(write: Callable[[bytes], None]) -> None:
            members.write(source, _Sink(write), log, top=top)

        self._engine.write_files(*self._replica, folder or ".", send)


class _Sink:
    """Passes bytes to a function."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write

    def write(self, data: memoryview, /) -> int:
        self._write(bytes(data))
        return len(data)


class Programs(Place):
    """Files that `tar` packs in a running replica.

    Args:
        execute: runs a program in the replica.
        replica: the replica, for messages.
    """

    def __init__(self, execute: Callable[[Sequence[str], Streams], int], replica: str) -> None:
        self._execute, self._replica = execute, replica

    @contextmanager
    def read(self, path: str, log: Log, have: Have | None = None) -> Iterator[Iterable[Member]]:
        """Opens a context with the members of a file or folder."""
        ours, theirs = os.pipe()
        run = _Run(self._execute, ["sh", "-c", _READ, "sh", path], stdout=theirs)
        invalid = None
        try:
            with open(ours, "rb", buffering=0) as source:
                yield members.Archive(source)
        except members.InvalidArchiveError as error:
            invalid = error  # that of the program explains it
        finally:
            run.join()
        self._check(run, path, log)
        if invalid is not None:
            raise invalid

    def write(self, source: Iterable[Member], path: str, name: str, log: Log) -> None:
        """Sends members to `tar`."""
        iterator = iter(source)
        first = next(iterator, None)
        if first is None:
            return
        kind = top = "file"
        if first.info.isdir():
            kind, top = "folder", "."
        theirs, ours = os.pipe()
        run = _Run(self._execute, ["sh", "-c", _WRITE, "sh", path, name, kind], stdin=theirs)
        with open(ours, "wb", buffering=0) as out, suppress(BrokenPipeError):  # the exit code has the cause
            members.write(itertools.chain([first], iterator), out, log, top=top)
        run.join()
        self._check(run, path)

    def _check(self, run: _Run, path: str, log: Log | None = None) -> None:
        """Raises the error of a program that failed."""
        if run.error is not None:
            raise run.error
        last = run.errors.getvalue().decode("utf-8", "replace").strip().rpartition("\n")[2]
        if run.code == MISSING:
            raise UsageError(f"no such file or folder in {self._replica}: {one_line(path)}", code="not_found")
        if run.code in NO_PROGRAM:
            raise StateError(f"{self._replica} has no program `tar`, which packs its files: {one_line(last)}")
        if run.code == CHANGED and log is not None:
            log.notes.append(one_line(last))
        elif run.code:
            raise StateError(f"`tar` in {self._replica} failed: {one_line(last) or run.code}")


class _Run:
    """A program in a replica, which runs in a thread.

    Args:
        execute: runs it.
        command: the program and its arguments.
        stdin, stdout: a descriptor that is closed at its end.
    """

    def __init__(
        self,
        execute: Callable[[Sequence[str], Streams], int],
        command: Sequence[str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
    ) -> None:
        self.errors = io.BytesIO()
        self.error: TorchxError | None = None
        self.code = 0
        self._execute, self._command, self._stdin, self._stdout = execute, command, stdin, stdout
        self._thread = threading.Thread(target=self._run, name="cp", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        output = self._stdout
        if output is None:
            output = os.open(os.devnull, os.O_WRONLY)
        try:
            with open(output, "wb", buffering=0) as out:
                self.code = self._execute(self._command, Streams(out, self.errors, self._stdin))
        except TorchxError as error:
            self.error = error
        except OSError:  # the reader has ended
            pass
        finally:
            if self._stdin is not None:
                os.close(self._stdin)

    def join(self) -> None:
        """Waits for its end."""
        self._thread.join()


class Machine(Place):
    """Files of a replica on another machine, where torchx packs and unpacks them.

    Args:
        connection: the way to the machine.
        replica: the replica, as torchx there knows it.
    """

    def __init__(self, connection: Connection, replica: str) -> None:
        self._connection, self._replica = connection, replica
        connection.prepare()

    def _start(self, *argv: str) -> tuple[subprocess.Popen[bytes], Any, Any]:
        process, _ = self._connection.start({"op": "direct", "argv": ["cp", *argv]})
        return process, process.stdin, process.stdout

    def _check(self, process: subprocess.Popen[bytes]) -> None:
        if process.wait():
            name, message = self._connection.context.name, self._connection.message()
            if message:
                raise StateError(f"{name}: {message}")
            raise StateError(f"the connection to {name} was lost", hint=REPEAT)

    @contextmanager
    def read(self, path: str, log: Log, have: Have | None = None) -> Iterator[Iterable[Member]]:
        """Opens a context with the members of a file or folder."""
        process, stdin, stdout = self._start("--resume", "--", f"{self._replica}:{path}", "-")
        with process:
            try:
                stdin.write(json.dumps(have or {}).encode())
                stdin.close()
                yield members.Archive(stdout)
            except members.InvalidArchiveError:
                self._check(process)
                raise
            finally:
                process.kill()

    def write(self, source: Iterable[Member], path: str, name: str, log: Log) -> None:
        """Sends members that the other machine does not have."""
        words = ("--resume", "--as", name or ".", "--", "-", f"{self._replica}:{path}")
        process, stdin, stdout = self._start(*words)
        with process, io.BufferedReader(stdout) as answer:
            if have := answer.readline(LARGEST_HAVE):
                with suppress(BrokenPipeError):  # the exit code has the cause
                    members.write(source, stdin, log, have=members.read_have(have))
            stdin.close()
            self._check(process)


def place_of(runner: Runner, handle: str, role: str, replica: int, is_running: bool) -> Place:
    """Returns the files of a replica.

    Raises:
        UsageError: the scheduler has no way to its files.
        StateError: its files ended with it.
    """
    engine = runner.scheduler_of(handle)
    app_id = handle.rpartition("/")[2]
    if isinstance(engine, CopiesFiles):
        return Container(engine, (app_id, role, replica))
    if isinstance(engine, KeepsFiles) and (engine.on_this_machine or not is_running):
        return Here(engine.replica_folder(app_id, role, replica))
    if not isinstance(engine, Executes):
        raise UsageError(f"{engine.backend} cannot copy files of its replicas", code="not_supported")
    if not is_running:
        raise StateError(
            f"{app_id} has ended, and the files in its replicas with it",
            hint="write results to a mounted volume, or copy them while it runs",
            code="no_files",
        )

    def execute(command: Sequence[str], streams: Streams) -> int:
        return runner.execute(handle, role, replica, command, streams)

    return Programs(execute, f"{role}/{replica}")
