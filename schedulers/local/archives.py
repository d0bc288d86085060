"""Archives as images: cached by URL and version, unpacked once."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import IO, Any

from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine.files import expanded, make_folder, move_folder
from torchx.schedulers.local.archive_members import TarStream, decompressed, unpack_tar, unpack_zip
from torchx.workspace.projects import set_id_notes
from torchx.workspace.unpacking import MB, BadArchiveError, Target, TooLargeError

with lazy_imports:
    import gzip
    import lzma
    import tarfile
    import zipfile
    import zlib

    import fsspec

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
"""File name suffixes of archives."""

LIMIT_MB = 10_240
"""Default maximum size of an archive in MB, packed and unpacked."""


def version_of(url: str) -> str:
    """Returns a digest of an archive's URL and metadata, which changes with the archive.

    Raises:
        UsageError: the archive does not exist, or a package for its URL scheme is not installed.
    """
    fs, path = _open_fs(url)
    try:
        info = fs.info(path)
    except FileNotFoundError as error:
        raise UsageError(f"image `{url}` does not exist") from error
    except OSError as error:
        raise StateError(f"image `{url}` cannot be read: {error}") from error
    if info.get("type") != "file":
        raise UsageError(f"image `{url}` is not a file")
    known = [
        info.get(key) for key in ("size", "mtime", "ETag", "etag", "LastModified", "created", "version_id")
    ]
    return hashlib.sha256(repr((url, known)).encode()).hexdigest()[:32]


def unpack(url: str, folder: Path, limit_mb: int = LIMIT_MB) -> list[str]:
    """Unpacks an archive into a new folder atomically.

    Args:
        url: a path or URL of the archive.
        folder: the new folder.
        limit_mb: maximum size in MB of the archive, and of its files together.

    Returns:
        Notes for the user.

    Raises:
        UsageError: it is not an archive, exceeds the limit, or has a forbidden member: a path outside the
            folder, a link that may point outside, a device or a pipe.
        StateError: the archive cannot be read, or the disk is full.
    """
    fs, path = _open_fs(url)
    try:
        make_folder(folder.parent)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as made:
            archive = Path(made, "archive")
            with fs.open(path, "rb") as source, open(archive, "xb") as copy:
                _copy(source, copy, limit_mb)
            content = Path(made, "content")
            content.mkdir(mode=0o700)
            lost = _extract(archive, content, is_zip=url.endswith(".zip"), limit_mb=limit_mb)
            move_folder(content, folder)
            return [f"image {url}: {note}" for note in set_id_notes(lost)]
    except TooLargeError as error:
        raise UsageError(
            f"image `{url}` exceeds image_limit_mb={limit_mb}: {error}",
            hint="raise it if the archive can be trusted: -cfg image_limit_mb=...",
        ) from error
    except BadArchiveError as error:
        raise UsageError(f"image `{url}` is not a valid archive: {error}") from error
    except OSError as error:
        raise StateError(f"image `{url}` cannot be unpacked: {error}") from error


def _copy(source: Any, copy: IO[bytes], limit_mb: int) -> None:
    left = limit_mb * MB
    while piece := source.read(1 << 20):
        left -= len(piece)
        if left < 0:
            raise TooLargeError("the archive itself is too large")
        copy.write(piece)


def _extract(archive: Path, folder: Path, *, is_zip: bool, limit_mb: int) -> list[str]:
    """Unpacks an archive; returns the files that lose a set-id bit."""
    target = Target(folder, limit_mb)
    try:
        if is_zip:
            with zipfile.ZipFile(archive) as zipped:
                unpack_zip(zipped, target)
        else:
            with decompressed(archive) as file:
                stream: Any = TarStream(file, limit_mb)
                with _opened(stream) as tar:
                    unpack_tar(tar, target)
                stream.finish()
        target.finish()
        return target.set_id
    except (
        gzip.BadGzipFile,
        tarfile.TarError,
        zipfile.BadZipFile,
        EOFError,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        raise BadArchiveError(str(error).partition("\n")[0].rstrip(":")) from error
    except (ValueError, RuntimeError, OverflowError) as error:  # encrypted, or invalid names and numbers
        raise BadArchiveError(str(error).partition("\n")[0]) from error
    finally:
        target.close()


def _opened(stream: Any) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=stream, mode="r:", errors="surrogateescape")
    except tarfile.ReadError as error:
        raise BadArchiveError("file could not be opened successfully") from error


def _open_fs(url: str) -> tuple[Any, str]:
    try:
        fs, path = fsspec.core.url_to_fs(url if "://" in url else str(expanded(url).absolute()))
    except (ImportError, ValueError) as error:
        raise UsageError(f"image `{url}` cannot be opened: {error}") from error
    return fs, path
