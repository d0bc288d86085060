"""Connections to other machines by the user's own ssh program, which are shared and kept for some minutes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import torchx
import torchx_cli
from torchx import json_shape
from torchx.errors import StateError, UnreachableError, UsageError
from torchx.json_limits import Data, load_json
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.machine.polling import readable
from torchx.printable import one_line
from torchx.suggestions import did_you_mean
from torchx.version import __version__
from torchx_cli.contexts import host

with lazy_imports:
    import io
    import zipfile
    from importlib import metadata

KEPT_FOR = 600
"""Seconds for which an unused connection stays open."""
ALIVE = ("-oServerAliveInterval=15", "-oServerAliveCountMax=4")
STARTS_WITHIN = 60.0
"""Seconds in which the other machine must answer."""
MOST_NOISE = 1 << 17
"""Bytes that a shell may print before the answer."""
NO_PYTHON, NOT_FOUND = 43, (126, 127)
PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(14, 9, -1)))
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
SHAPE: Data = {
    json_shape.ANY_KEY: {
        "address": str, "python": str, "home": str, "found": {"python": str, "app": str, "version": str}
    }
}  # fmt: skip
ADDRESS = re.compile(r"(ssh://)?([^\s@:/-][^\s@:/]*@)?([A-Za-z0-9_][\w.-]*|\[[\w:.%]+\])(:\d+)?/?", re.ASCII)
PATH = re.compile(r"[\w./~+@%:-]*", re.ASCII)
"""Paths that have no meaning for any shell."""
_LOADER = (
    "import os,sys; sys.path[:]=filter(None,sys.path); "
    "exec(bytes().join(iter(lambda: os.read(0,1) or os._exit(3), bytes(1))))"
)
"""Runs the program that follows on stdin; it has no character that sh, csh or fish change in quotes."""
_SENT = """
import os, sys
data = b""
while len(data) < {size}:
    data += os.read(0, {size} - len(data)) or os._exit(3)
space = {{"__name__": "torchx_host"}}
exec(compile(data, "torchx-host", "exec"), space)
space["main"](space["read_line"]())
"""
"""Runs the source of `host`, which follows."""
_INSTALLED = """
import json, os, sys
app, version = {app!r}, ""
try:
    if app:
        os.stat(app)
        sys.path.insert(0, app)
    from torchx.version import __version__ as version
    from torchx_cli.contexts import host
except (ImportError, OSError):
    pass
if version != {version!r}:
    os.write(1, {mark!r} + json.dumps({{"error": {error!r}}}).encode() + b"\\n")
    os._exit(0)
host.main(host.read_line())
"""
"""Runs `host` of torchx there."""
GONE = "torchx was removed or changed there"


class LostConnectionError(UnreachableError):
    """A connection ended before the other machine has answered."""


@dataclass(frozen=True)
class Context:
    """Another machine.

    Attributes:
        name: its name.
        address: ``ssh://user@host:port``.
        python: the Python there; empty to search one.
        home: the state home there; empty for the default.
        found: the Python that was found, its version of torchx, and the folder of ours if it was sent.
    """

    name: str
    address: str
    python: str = ""
    home: str = ""
    found: dict[str, str] = field(default_factory=dict)

    def destination(self) -> str:
        """Returns the machine in the form that ssh takes.

        Raises:
            UsageError: the address is invalid.
        """
        if not ADDRESS.fullmatch(self.address):
            raise UsageError(
                f"`{one_line(self.address)}` is not an address of ssh",
                hint="e.g. ssh://user@login1 or login1",
            )
        return f"ssh://{self.address.removeprefix('ssh://')}"


# --- the list of contexts --------------------------------------------------------------------------


def path() -> Path:
    """Returns the file with the contexts."""
    return files.state_home_path() / "contexts.json"


def contexts() -> dict[str, Context]:
    """Returns all contexts.

    Raises:
        StateError: the file is invalid.
    """
    try:
        data = load_json(files.read_file(path(), 1 << 20).decode())
        json_shape.check(data, SHAPE, "")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StateError(f"{path()} cannot be read: {error}") from error
    return {name: Context(name, **fields) for name, fields in data.items()}


def save(known: dict[str, Context]) -> None:
    """Writes all contexts."""
    files.make_folder(path().parent)
    rows = {name: {k: v for k, v in asdict(each).items() if k != "name"} for name, each in known.items()}
    files.write_file(path(), json.dumps(rows, indent=1).encode())


def context_of(name: str) -> Context:
    """Returns a context by its name.

    Raises:
        UsageError: it does not exist.
    """
    known = contexts()
    if name not in known:
        hint = did_you_mean(name, known, f"torchx context add {one_line(name)} ssh://USER@HOST")
        raise UsageError(f"unknown context `{one_line(name)}`", hint=hint, code="unknown_context")
    return known[name]


# --- ssh -------------------------------------------------------------------------------------------


class Connection:
    """The way to another machine.

    Args:
        context: the machine.
        quiet: fail instead of a prompt for a password.
    """

    def __init__(self, context: Context, *, quiet: bool = False) -> None:
        self.context, self.quiet = context, quiet
        self._destination = context.destination()
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # what ssh prints
        weakref.finalize(self, self.errors.close)
        parent = Path(os.environ.get("XDG_RUNTIME_DIR") or "/")
        if not files.is_own_folder(parent):
            parent = Path(tempfile.gettempdir())
        folder = parent / f"torchx-ssh-{os.geteuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not files.is_own_folder(folder) or status.st_mode & 0o077:
            raise StateError(f"{folder} is not a private folder of this user", hint="remove it, or rename it")
        text = "\0".join([self._destination, os.environ.get("SSH_AUTH_SOCK", "")])
        self._socket = folder / hashlib.sha256(text.encode()).hexdigest()[:20]

    def _command(self, *options: str) -> list[str]:
        return ["ssh", "-T", *ALIVE, f"-oControlPath={self._socket}", *options, "--", self._destination]

    def open(self) -> None:
        """Opens the shared connection, unless it is open; ssh may prompt for a password.

        Raises:
            UnreachableError: ssh cannot connect.
        """
        null = subprocess.DEVNULL
        if self.is_open() and not subprocess.run(self._command("-O", "check"), stderr=null).returncode:
            return
        quiet = ["-oBatchMode=yes"] if self.quiet or not sys.stderr.isatty() else []
        command = self._command("-oControlMaster=auto", f"-oControlPersist={KEPT_FOR}", *quiet, "-fN")
        with tempfile.TemporaryFile() as errors:
            try:
                done = subprocess.run(command, stdin=null, stdout=null, stderr=errors if quiet else None)
            except FileNotFoundError:
                raise StateError("contexts need the program `ssh`") from None
            if done.returncode:
                raise self._unreachable(errors)

    def message(self) -> str:
        """Returns the error that torchx there has printed for the last request; empty without one."""
        self.errors.seek(0)
        text = self.errors.read(1 << 16).decode("utf-8", "replace")
        return one_line(f"\n{text}".partition("\nerror: ")[2].partition("\n")[0])

    def is_open(self) -> bool:
        """Returns True if the shared connection exists."""
        return self._socket.exists()

    def close(self) -> None:
        """Ends the shared connection."""
        subprocess.run(self._command("-O", "exit"), stderr=subprocess.DEVNULL, check=False)

    def forward(self, local: int, port: int) -> None:
        """Forwards a local port to a port of the other machine."""
        way = f"127.0.0.1:{local}:127.0.0.1:{port}"
        done = subprocess.run(self._command("-O", "forward", "-L", way), capture_output=True, text=True)
        if done.returncode:
            raise StateError(f"port {local} cannot be forwarded: {one_line(done.stderr.strip())}")

    def _unreachable(self, errors: IO[bytes], why: str = "") -> LostConnectionError:
        errors.seek(0)
        lines = errors.read(1 << 16).decode("utf-8", "replace").strip().splitlines()
        text = one_line(lines[-1]) if lines else why or "ssh did not say why"
        return LostConnectionError(
            f"{self.context.name} cannot be reached: {text}",
            hint=f"to diagnose: ssh {self.context.address}",
            facts={"context": self.context.name},
        )

    def start(self, header: Data, data: bytes = b"") -> tuple[subprocess.Popen[bytes], Data]:
        """Starts a request, and returns the process of ssh and the answer of the other machine.

        Args:
            header: the request.
            data: follows the request, before the answer.

        Raises:
            LostConnectionError: the connection ended before the answer.
            StateError: the request is rejected there, or no Python is new enough.
        """
        for is_last in (False, True):
            found = self.context.found
            whole = {"home": self.context.home, **header}
            try:
                process, answer = self._start(found.get("python", ""), whole, data)
            except subprocess.CalledProcessError as error:
                if error.returncode == NO_PYTHON:
                    name = self.context.name
                    hint = f"name one: torchx context add --replace {name} ADDRESS --python PATH"
                    raise StateError(
                        f"{name} has no Python 3.10 or newer, which torchx needs", hint=hint
                    ) from None
                if is_last:
                    raise self._unreachable(self.errors, error.output) from None
                if found and error.returncode in NOT_FOUND:
                    self.prepare(check=True)
                elif not self.quiet:
                    self.open()  # the shared connection had ended
                continue
            if "error" not in answer:
                return process, answer
            with process:
                process.kill()
            if is_last or answer["error"] != GONE:
                raise StateError(f"{self.context.name}: {one_line(answer['error'])}")
            self.prepare(check=True)
        raise AssertionError

    def _start(self, python: str, header: Data, data: bytes) -> tuple[subprocess.Popen[bytes], Data]:
        script = f'exec {python} -c "{_LOADER}"'
        if not python:
            script = self._search()
        line = f"exec /bin/sh -c '{script}'"  # whatever the shell of the user is
        if not self.is_open():
            self.open()
        self.errors.seek(0)
        self.errors.truncate()
        # in a session of its own, so that Ctrl-C reaches torchx there and not ssh
        process = subprocess.Popen(
            [*self._command("-oControlMaster=no", "-oBatchMode=yes"), line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
            bufsize=0,
        )
        try:
            return process, _handshake(process, self._program() + json.dumps(header).encode() + b"\n" + data)
        except (OSError, ValueError) as error:
            with process:
                process.kill()
            raise subprocess.CalledProcessError(process.returncode, "ssh", str(error)) from None

    def _program(self) -> bytes:
        """Returns the program that reads a request there."""
        found = self.context.found
        if not found:
            source = Path(host.__file__).read_bytes()
            return _SENT.format(size=len(source)).encode() + b"\0" + source
        program = _INSTALLED.format(app=found["app"], version=found["version"], mark=host.MARK, error=GONE)
        return program.encode() + b"\0"

    def _search(self) -> str:
        """Returns the shell line that runs the loader with the first Python that is new enough."""
        names = [self.context.python] if self.context.python else PYTHONS
        test = "import sys; sys.exit(sys.version_info < (3,10))"
        run = f'"$p" -c "{test}" 2>/dev/null </dev/null && exec "$p" -c "{_LOADER}"'
        return f"for p in {' '.join(names)}; do {run}; done; exit {NO_PYTHON}"

    # --- torchx there ------------------------------------------------------------------------------

    def prepare(self, *, check: bool = False) -> None:
        """Finds torchx there, or sends this version; remembers it.

        Args:
            check: also if it was found before.

        Raises:
            StateError: no Python is new enough, or the folder there cannot be written.
        """
        if self.context.found.get("version") == __version__ and not check:
            return
        self.context = replace(self.context, found={})
        answer = self._exchange({"op": "info"})
        python = str(answer.get("python"))
        if not PATH.fullmatch(python):
            raise StateError(
                f"the path of Python on {self.context.name} is not supported: {one_line(python)}"
            )
        found = {"python": python, "app": "", "version": __version__}
        if answer.get("torchx") != __version__:
            data = application()
            digest = hashlib.sha256(data).hexdigest()[:24]
            self._exchange({"op": "app", "digest": digest, "size": len(data)}, data)
            found["app"] = f"{answer.get('home')}/apps/{digest}"
        self.context = replace(self.context, found=found)
        known = contexts()
        if self.context.name in known:
            save({**known, self.context.name: self.context})

    def _exchange(self, header: Data, data: bytes = b"") -> Data:
        """Sends a request with data, and returns the answer."""
        process, answer = self.start(header, data)
        with process:
            process.kill()
        return answer

    def send_files(self, tree: list[list[Any]], read: Callable[[str], bytes]) -> str:
        """Sends the files of a folder that are missing there, and returns its path there.

        Args:
            tree: the path, kind, mode, target, size and digest of each entry.
            read: returns the content of a file.
        """
        process, answer = self.start({"op": "files", "files": tree})
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            known = {entry[0] for entry in tree}
            with suppress(BrokenPipeError):  # the error follows
                for missing in json_shape.items_at(answer, str, "missing"):
                    if missing not in known:
                        break  # then no folder follows
                    host.write_all(process.stdin.fileno(), read(missing))
            process.stdin.close()
            line = process.stdout.readline(1 << 16)
            process.kill()
        try:
            return str(load_json(line.decode())["folder"])
        except (ValueError, KeyError, TypeError):
            text = one_line(line.partition(host.MARK)[2].decode("utf-8", "replace"))
            raise StateError(f"{self.context.name} did not take the workspace: {text}") from None


def _handshake(process: subprocess.Popen[bytes], request: bytes) -> Data:
    assert process.stdin is not None
    assert process.stdout is not None
    host.write_all(process.stdin.fileno(), request)
    read = piece = b""
    while piece != b"\n" or host.MARK not in read:  # what follows the line is read by others
        if not readable([process.stdout], STARTS_WITHIN):
            raise OSError("no answer")
        piece = os.read(process.stdout.fileno(), 1)
        read += piece
        if not piece or len(read) > MOST_NOISE:
            raise OSError("the shell there does not run Python, or prints too much")
    answer = load_json(read.partition(host.MARK)[2].decode())
    if not isinstance(answer, dict):
        raise ValueError("the answer is not an object")
    return answer


def application() -> bytes:
    """Returns torchx with the packages that it needs, as a zip archive.

    Raises:
        StateError: torchx is not installed as a package.
    """
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (torchx, torchx_cli):
            root = Path(str(package.__file__)).parent
            for folder, _, names in os.walk(root, followlinks=True):
                for name in names:
                    if not name.endswith(".pyc"):
                        _add(
                            archive, Path(folder, name), str(root.name / Path(folder, name).relative_to(root))
                        )
        for distribution in _needed():
            for file in distribution.files or ():
                if file.suffix not in (".so", ".pyc") and ".." not in file.parts:
                    _add(archive, Path(str(distribution.locate_file(file))), str(file))
    return data.getvalue()


def _add(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    info = zipfile.ZipInfo(name)  # without times: the same content has the same digest
    info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
    archive.writestr(info, path.read_bytes())


def _needed() -> list[metadata.Distribution]:
    """Returns the installed packages that torchx needs."""
    needed: dict[str, metadata.Distribution] = {}
    try:
        left = list(metadata.distribution("torchx-cli").requires or ())
    except metadata.PackageNotFoundError:
        raise StateError("torchx is not installed as a package, so it cannot be sent") from None
    while left:
        text = left.pop()
        match = re.match(r"[\w.-]+", text)
        if match is None or "extra ==" in text or match[0].lower() in needed:
            continue
        with suppress(metadata.PackageNotFoundError):
            needed[match[0].lower()] = metadata.distribution(match[0])
            left += needed[match[0].lower()].requires or ()
    return [needed[name] for name in sorted(needed)]
