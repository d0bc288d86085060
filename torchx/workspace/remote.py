"""Projects at fsspec addresses: listed in one call, with small files read in batches."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from torchx.errors import StateError, TorchxError, UsageError
from torchx.json_limits import Object
from torchx.lazy import lazy_imports
from torchx.printable import first_line
from torchx.suggestions import did_you_mean
from torchx.workspace.ignore import BUILT_IN, FILES, LARGEST, PRIVATE, Rule, Rules, State, maybe_key, parse
from torchx.workspace.private import LARGEST_KEY, holds_private_key
from torchx.workspace.projects import PIECE, SET_ID, Entry, set_id_notes, unreadable

with lazy_imports:
    import fsspec
    from fsspec import registry

BATCH = 16 << 20
"""Bytes of small files read in one call; larger files are read in pieces."""

KEPT = 64 << 20
"""Maximum bytes of a project that is kept in memory after reading."""


class Remote:
    """A folder or file at an fsspec address.

    Args:
        name: the project's name in messages.
        url: its address.
    """

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.left: dict[str, list[str]] = {}
        self.notes: list[str] = []
        self._set_id: list[str] = []
        self._fs, self._root = open_fs(name, url)
        self._files: dict[str, int] = {}
        self._order: list[str] = []
        self._read: dict[str, bytes] = {}

    def local(self, path: str) -> None:
        """Returns None, as the files are not local."""
        return

    def entries(self) -> Iterator[Entry]:
        """Yields the included entries, with paths relative to the project, each folder before its content."""
        with self._errors("."):
            root = self._root.rstrip("/")
            infos: dict[str, Object] = self._fs.find(root, withdirs=True, detail=True)
            if not infos and not self._fs.exists(self._root):
                raise _absent(self.name)
            infos = {path.rstrip("/"): info for path, info in infos.items()}
            if infos.get(root, {}).get("type") == "file":  # the project is this one file
                self._root = root.rpartition("/")[0]
                listed = {root.rpartition("/")[2]: infos[root]}
            else:
                listed = {path[len(root) :].lstrip("/"): info for path, info in infos.items() if path != root}
                listed = self._included(listed)
        for path in sorted(listed):
            entry = self._entry(path, listed[path])
            if entry is not None:
                if entry.kind == "file":
                    self._files[path] = entry.size
                    self._order.append(path)
                yield entry
        self.notes += set_id_notes(self._set_id)

    def _included(self, listed: dict[str, Object]) -> dict[str, Object]:
        """Returns the included part of a listing."""
        rules = self._rules(filter(listed.__contains__, FILES))
        folders = {path[:at] for path in listed for at, char in enumerate(path) if char == "/"}
        listed = {**{path: {"type": "directory"} for path in folders}, **listed}
        states: dict[str, State] = {"": rules.top}
        excluded: set[str] = set()
        included = {}
        for path in sorted(listed):  # each folder before its content
            above, _, name = path.rpartition("/")
            is_dir = listed[path]["type"] == "directory"
            why, states[path] = rules.match(path, name, states[above], is_dir=is_dir)
            if is_dir and f"{path}/pyvenv.cfg" in listed and not rules.names(path):
                why, states[path] = BUILT_IN, State(True, states[path].matched)
            if why is None and not is_dir and self._is_key(path, rules):
                why = PRIVATE
            if why is None:
                included[path] = listed[path]
                continue
            excluded.add(path)
            if above not in excluded:
                self.left.setdefault(why, []).append(f"{path}/" if is_dir else path)
        self.notes += rules.notes()
        return included

    def _rules(self, files: Iterable[str]) -> Rules:
        lines: list[Rule] = []
        for file in files:
            text: bytes = self._fs.cat_file(self._at(file), end=4 * LARGEST + 1)
            lines += parse(text.decode("utf-8", "surrogateescape"), file)
        return Rules(lines)

    def _is_key(self, path: str, rules: Rules) -> bool:
        if not maybe_key(path) or rules.names_key(path):
            return False
        return holds_private_key(self._fs.cat_file(self._at(path), end=LARGEST_KEY))

    def _entry(self, path: str, info: Object) -> Entry | None:
        mode = info.get("mode") or info.get("external_attr", 0) >> 16
        mode = mode if isinstance(mode, int) else 0
        if ".." in path.split("/"):
            raise UsageError(f"workspace `{self.name}` lists `{path}`, which is outside of it")
        if info["type"] == "directory":
            return Entry(path, "dir", stat.S_IMODE(mode) & ~SET_ID or 0o755, 0)
        if info["type"] != "file" or stat.S_ISLNK(mode):
            self.notes.append(f"{path} is neither a file nor a folder: left out")
            return None
        if mode & SET_ID:
            self._set_id.append(path)
        return Entry(path, "file", stat.S_IMODE(mode) & ~SET_ID or 0o644, int(info.get("size") or 0))

    def pieces(self, path: str, size: int) -> Iterator[bytes]:
        """Yields the first ``size`` bytes of a file; small files are read together with the next ones."""
        if path not in self._read and size > BATCH:
            with self._errors(path), self._fs.open(self._at(path), "rb") as opened:
                while size > 0 and (piece := opened.read(min(size, PIECE))):
                    size -= len(piece)
                    yield piece
            return
        if path not in self._read:
            self._fetch(path)
        yield self._read[path][:size]

    def _fetch(self, path: str) -> None:
        """Reads a file and the next ones in one call."""
        if sum(self._files.values()) > KEPT:
            self._read.clear()
        batch, room = [], BATCH
        for file in self._order[self._order.index(path) :]:
            room -= self._files[file]
            if room < 0:
                break
            batch.append(file)
        with self._errors(path):
            read = self._fs.cat([self._at(file) for file in batch])
            self._read.update({file: read[self._at(file)] for file in batch})

    def _at(self, path: str) -> str:
        root = self._root.rstrip("/")
        if root or self._root:
            return f"{root}/{path}"
        return path

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except TorchxError:
            raise
        except Exception as error:  # fsspec protocols have no common error class
            raise unreadable(self.name, path, first_line(error), hint=None) from error


def _absent(name: str) -> UsageError:
    hint = "list its parent folder to see what exists"
    return UsageError(f"workspace `{name}` does not exist", code="unknown_workspace", hint=hint)


def open_fs(name: str, url: str) -> tuple[Any, str]:
    """Returns the file system of an address, and the path in it.

    Args:
        name: the address in messages.
        url: the address.

    Raises:
        UsageError: the address does not exist, its protocol is unknown, or a package is not installed.
        StateError: the address cannot be opened.
    """
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise UsageError(
            f"workspace `{name}` needs a package that is not installed", hint=_package(url, error)
        ) from None
    except FileNotFoundError:
        raise _absent(name) from None
    except Exception as error:  # fsspec protocols have no common error class
        protocol = _protocol(url)
        if isinstance(error, ValueError) and protocol not in registry.known_implementations:
            raise UsageError(
                f"workspace `{name}` has an unknown protocol, `{protocol}`",
                hint=did_you_mean(
                    protocol,
                    sorted(registry.known_implementations),
                    "e.g. a folder, file://, memory://, s3://, gs://, zip://",
                ),
            ) from None
        raise StateError(f"workspace `{name}` cannot be opened: {first_line(error)}") from error
    return fs, path


def _protocol(url: str) -> str:
    return url.split("://")[0].split("::")[0]


def _package(url: str, error: ImportError) -> str:
    """Returns how to install the package that an address needs."""
    package = registry.known_implementations.get(_protocol(url), {}).get("class", "").partition(".")[0]
    if package not in ("", "fsspec"):
        return f"pip install {package}"
    return first_line(error)
