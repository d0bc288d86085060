"""A tracker that stores files below one folder, on any file system of fsspec.

A run has a folder named after its id in base32. ``metadata/`` and ``artifacts/`` contain a JSON file for
each report, named after its time, so that no file is written twice; ``sources/`` contains a file for each
run it was made from, and ``descendants/`` one for each run made from it, with a line for each artifact.
"""

from __future__ import annotations

import json
import secrets
import time
from base64 import b32decode, b32encode
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from torchx.errors import StateError, UsageError
from torchx.json_limits import Data, Object, load_json
from torchx.lazy import lazy_imports
from torchx.suggestions import did_you_mean
from torchx.tracker.base import TrackerArtifact, TrackerBase, TrackerSource

with lazy_imports:
    import fsspec

PARTIAL = ".partial"
"""End of the name of a file that is being written."""


class FsspecTracker(TrackerBase):
    """Stores the reports of runs in files.

    Args:
        fs: the file system, of fsspec.
        root_dir: the folder, created by the first report.
    """

    def __init__(self, fs: Any, root_dir: str) -> None:
        self._fs = fs
        self._root = root_dir.rstrip("/") or "/"

    def __repr__(self) -> str:
        return f"FsspecTracker({self._root!r})"

    def add_artifact(
        self, run_id: str, name: str, path: str, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Stores the location of an artifact; replaces an earlier one of the same name."""
        data = {"name": name, "path": path, "metadata": None if metadata is None else dict(metadata)}
        self._keep(run_id, "artifacts", data)

    def artifacts(self, run_id: str) -> Mapping[str, TrackerArtifact]:
        """Returns the artifacts of a run by name."""
        found = self._kept(run_id, "artifacts")
        return {
            one["name"]: TrackerArtifact(one["name"], one["path"], one.get("metadata")) for _, one in found
        }

    def add_metadata(self, run_id: str, **kwargs: object) -> None:
        """Stores values by name; values that JSON cannot represent are stored as text."""
        self._keep(run_id, "metadata", {"metadata": kwargs})

    def metadata(self, run_id: str) -> Mapping[str, object]:
        """Returns the values of a run by name."""
        kept = self._kept(run_id, "metadata")
        return {name: value for _, one in kept for name, value in one["metadata"].items()}

    def history(self, run_id: str) -> Iterable[tuple[float, Mapping[str, object]]]:
        """Returns the reports of values of a run with their times, the oldest first."""
        return [(int(name) / 1e9, one["metadata"]) for name, one in self._kept(run_id, "metadata")]

    def add_source(self, run_id: str, source_id: str, artifact_name: str | None = None) -> None:
        """Notes that a run was made from another, or from an artifact of it."""
        if "\n" in (artifact_name or ""):
            raise UsageError(f"the name of an artifact is one line, got {artifact_name!r}")
        self._add_line(f"{self._folder(run_id)}/sources/{_encoded(source_id)}", artifact_name or "")
        if self._fs.isdir(self._folder(source_id)):  # a run that is tracked here, too
            self._add_line(f"{self._folder(source_id)}/descendants/{_encoded(run_id)}", artifact_name or "")

    def sources(self, run_id: str, artifact_name: str | None = None) -> Iterable[TrackerSource]:
        """Returns the inputs of a run, without duplicates."""
        found: dict[TrackerSource, None] = {}
        for path in self._files(f"{self._folder(run_id)}/sources"):
            source_id = _decoded(path)
            # an empty line stands for the run as a whole; the last line end begins no further line
            for line in self._text(path).removesuffix("\n").split("\n"):
                if source_id is not None and artifact_name in (None, line):
                    found.setdefault(TrackerSource(source_id, line or None))
        return sorted(found, key=lambda source: (source.source_run_id, source.artifact_name or ""))

    def run_ids(self, **kwargs: str) -> Iterable[str]:
        """Returns the ids of the known runs, sorted.

        Args:
            kwargs: ``parent_run_id`` for those made from that run.

        Raises:
            UsageError: the filter is unknown.
        """
        for name in kwargs:
            if name != "parent_run_id":
                raise UsageError(
                    f"runs cannot be chosen by `{name}`", hint=did_you_mean(name, ["parent_run_id"])
                )
        parent = kwargs.get("parent_run_id")
        runs = (_decoded(info["name"]) for info in self._list(self._root) if info["type"] == "directory")
        known = sorted(run for run in runs if run is not None)
        if parent is None:
            return known
        name = _encoded(parent)
        return [run for run in known if self._fs.exists(f"{self._folder(run)}/sources/{name}")]

    # --- files -----------------------------------------------------------------------------------

    def _folder(self, run_id: str) -> str:
        return f"{self._root}/{_encoded(run_id)}"

    def _keep(self, run_id: str, kind: str, data: Data) -> None:
        try:
            text = json.dumps(data, default=str)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the report of {run_id} cannot be stored as JSON: {error}") from error
        # named after the time in ns, which orders them; the last digits distinguish replicas
        name = f"{time.time_ns() // 1000}{secrets.randbelow(1000):03}"
        self._write(f"{self._folder(run_id)}/{kind}/{name}", text)

    def _kept(self, run_id: str, kind: str) -> Iterator[tuple[str, Object]]:
        """Yields the reports of a run with the names of their files."""
        folder = f"{self._folder(run_id)}/{kind}"
        names = [PurePosixPath(path).name for path in self._files(folder)]
        for name in sorted(names, key=lambda name: (len(name), name)):
            path = f"{folder}/{name}"
            try:
                yield name, load_json(self._text(path))
            except ValueError as error:
                raise StateError(f"{path} cannot be read: {error}", hint="remove it") from error

    def _add_line(self, path: str, line: str) -> None:
        if line not in (self._text(path).split("\n")[:-1] if self._fs.exists(path) else ()):
            self._write(path, line + "\n", mode="a")

    def _write(self, path: str, text: str, mode: str = "w") -> None:
        try:
            self._fs.makedirs(path.rpartition("/")[0], exist_ok=True)
            # in a store of objects, an object appears whole
            whole = mode == "a" or "file" not in self._fs.protocol
            try:
                with self._fs.open(path if whole else path + PARTIAL, mode + "b") as file:
                    file.write(text.encode())
                if not whole:
                    self._fs.mv(path + PARTIAL, path)
            except (NotImplementedError, ValueError, FileNotFoundError):
                # some file systems cannot append, or (memory, in old versions) only to a file that exists
                before = ""
                if self._fs.exists(path):
                    before = self._text(path)
                with self._fs.open(path, "wb") as file:
                    file.write((before + text).encode())
        except OSError as error:
            raise StateError(f"the tracker cannot write {path}: {error}") from error

    def _text(self, path: str) -> str:
        text: str = self._fs.cat_file(path).decode()
        return text

    def _files(self, folder: str) -> list[str]:
        names = [info["name"] for info in self._list(folder) if info["type"] == "file"]
        return [name for name in names if not name.endswith(PARTIAL)]

    def _list(self, folder: str) -> list[Object]:
        try:
            found: list[Object] = self._fs.ls(folder, detail=True, refresh=True)
        except TypeError:  # some file systems do not cache listings
            found = self._fs.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return found


def create(config_file: str | None) -> FsspecTracker:
    """Creates a tracker from a file with lines of ``name=value``.

    ``root_path`` is the folder, ``protocol`` the file system (default: ``file``); other names are options of
    fsspec's file system.

    Args:
        config_file: the path or URL of the file; or of the folder itself, which need not exist.

    Raises:
        UsageError: the file does not exist, or has no ``root_path``.
    """
    if not config_file:
        raise UsageError(
            "the tracker `fsspec` needs a configuration",
            hint="in .torchxconfig: `config = FOLDER` in [tracker:fsspec], or a file with root_path=FOLDER",
        )
    try:
        fs, path = fsspec.core.url_to_fs(config_file)
        if fs.isdir(path):
            return FsspecTracker(fs, path)
        text = fs.cat_file(path).decode()
    except (OSError, ImportError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not PurePosixPath(path).suffix:
            return FsspecTracker(fs, path)  # a folder that does not exist yet
        raise UsageError(f"the tracker configuration {config_file} cannot be read: {error}") from error
    options: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not name:
            raise UsageError(f"{config_file} line {number} is `{line}`, expected name=value")
        options[name] = value
    root = options.pop("root_path", "")
    if not root:
        raise UsageError(f"{config_file} lacks a line root_path=FOLDER")
    protocol = options.pop("protocol", "file")
    try:
        fs = fsspec.filesystem(protocol, **options)
    except (ImportError, ValueError, TypeError) as error:
        raise UsageError(f"{config_file}: no file system `{protocol}`: {error}") from error
    return FsspecTracker(fs, fs._strip_protocol(root))


def _encoded(run_id: str) -> str:
    """Returns the name of the folder of a run.

    >>> _encoded("exp-1"), _decoded(_encoded("exp-1"))
    ('MV4HALJR', 'exp-1')
    """
    return b32encode(run_id.encode()).decode()


def _decoded(path: str) -> str | None:
    try:
        return b32decode(PurePosixPath(path).name).decode()
    except ValueError:
        return None  # somebody else's
