"""The files of an application's provenance, private to the user.

``record.json`` has the facts, ``source.diff`` the diff of the tracked files, ``files/`` the content of each
changed or untracked file, compressed, by its SHA-256. Their process holds ``lock`` while it records.
"""

from __future__ import annotations

import contextlib
import errno
import os
import zlib
from dataclasses import dataclass
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import Inside
from torchx.json_limits import compact_json
from torchx.lazy import lazy_imports
from torchx.machine import files, locks
from torchx.provenance.model import File, Provenance, Source

with lazy_imports:
    import hashlib
    import json

LARGEST_RECORD = 1 << 26
"""Maximum bytes of a record."""

LARGEST_DIFF = 1 << 25
"""Maximum bytes of a diff."""

LARGEST_FILE = 1 << 23
"""Maximum bytes of a file whose content is kept."""

INTERRUPTED = "the recording was interrupted: the process that reads the source was killed"


@dataclass(frozen=True)
class Store:
    """The files of an application's provenance.

    Attributes:
        folder: their folder.
    """

    folder: Path

    record = Inside("record.json")
    """The facts."""
    diff_file = Inside("source.diff")
    """The diff of the tracked files."""
    lock = Inside("lock")
    """The lock that the recording process holds."""

    def content_file(self, digest: str) -> Path:
        """The compressed content of a file."""
        return self.folder / "files" / digest

    def read(self) -> Provenance | None:
        """Returns the recorded provenance, or None without one.

        Raises:
            StateError: it cannot be read.
        """
        recording = self._is_recording()
        try:
            if self.folder.exists() and not files.is_own_folder(self.folder):
                raise ValueError("its folder belongs to another user")
            found = Provenance.from_json(json.loads(files.read_file(self.record, LARGEST_RECORD)))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except KeyError as error:
            raise self._damaged(f"{error} is missing") from error
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise self._damaged(error) from error
        if found.recording and not recording:
            found = found._replace(recording=False, notes=(*found.notes, INTERRUPTED))
        return found

    def write(self, provenance: Provenance) -> None:
        """Writes the facts.

        Raises:
            OSError: they cannot be written.
        """
        data = compact_json(provenance.to_json()).encode()
        if len(data) > LARGEST_RECORD:
            raise OSError(errno.EFBIG, "the record is too large", str(self.record))
        files.write_file(self.record, data)

    def diff(self) -> bytes | None:
        """Returns the diff of the tracked files, None without one.

        Raises:
            StateError: it cannot be read.
        """
        try:
            return files.read_file(self.diff_file, LARGEST_DIFF)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._damaged(error) from error

    def keep(self, content: bytes) -> str:
        """Keeps the content of a file, and returns its digest.

        Raises:
            OSError: it cannot be written.
        """
        digest = hashlib.sha256(content).hexdigest()
        path = self.content_file(digest)
        if not path.exists():
            with contextlib.suppress(FileExistsError):  # without its parents: a removed application stays so
                path.parent.mkdir(files.PRIVATE_FOLDER)
            files.write_file(path, zlib.compress(content, 1))
        return digest

    def adopt(self, other: Store, source: Source) -> None:
        """Copies the diff and the contents of a source from another record; those that are missing stay so.

        Raises:
            OSError: they cannot be written.
        """
        diff = other.diff()
        if diff is not None:
            files.write_file(self.diff_file, diff)
        for file in source.files:
            if file.digest:
                with contextlib.suppress(StateError):
                    self.keep(other.content(file))

    def content(self, file: File) -> bytes:
        """Returns the content of a file; of a link, its target.

        Raises:
            StateError: it was not kept, or is damaged.
        """
        if not file.digest:
            raise StateError(f"the content of `{file.path}` is not kept: {file.omitted or 'it was deleted'}")
        path = self.content_file(file.digest)
        try:
            inflate = zlib.decompressobj()
            data = inflate.decompress(files.read_file(path, 2 * LARGEST_FILE), LARGEST_FILE + 1)
        except (OSError, zlib.error) as error:
            raise self._damaged(error) from error
        if hashlib.sha256(data).hexdigest() != file.digest:
            raise self._damaged(f"{path} has another content")
        return data

    def _is_recording(self) -> bool:
        try:
            return locks.is_held(self.lock)
        except OSError:
            return False

    def _damaged(self, why: object) -> StateError:
        reason = os.strerror(why.errno) if isinstance(why, OSError) and why.errno else why
        return StateError(f"the recorded source {self.folder} cannot be read: {reason}")
