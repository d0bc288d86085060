"""Archives as images: found by address and version, unpacked once."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from torchx.errors import StateError, UsageError

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
"""Ends of the names of archives."""


def version_of(url: str) -> str:
    """Returns a name for an archive as it is now: it differs once the archive changes.

    Raises:
        UsageError: there is no such archive, or what its address needs is not installed.
    """
    fs, path = _open_fs(url)
    try:
        info = fs.info(path)
    except FileNotFoundError as error:
        raise UsageError(f"image `{url}` does not exist") from error
    except OSError as error:
        raise StateError(f"image `{url}` cannot be looked at: {error}") from error
    known = [
        info.get(key) for key in ("size", "mtime", "ETag", "etag", "LastModified", "created", "version_id")
    ]
    return hashlib.sha256(repr((url, known)).encode()).hexdigest()[:32]


def unpack(url: str, folder: Path) -> None:
    """Unpacks an archive into a folder that appears whole or not at all.

    Raises:
        UsageError: it is no archive, or one that reaches out of its folder.
        StateError: it cannot be read, or there is no room for it.
    """
    fs, path = _open_fs(url)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as made:
            archive = Path(made, "archive")
            with fs.open(path, "rb") as source, open(archive, "wb") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
            content = Path(made, "content")
            content.mkdir()
            _extract(archive, content, is_zip=url.endswith(".zip"), url=url)
            try:
                content.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another process was faster, with the same content
                    raise
    except OSError as error:
        raise StateError(f"image `{url}` cannot be unpacked: {error}") from error


def _extract(archive: Path, folder: Path, *, is_zip: bool, url: str) -> None:
    import tarfile
    import zipfile

    try:
        if is_zip:
            with zipfile.ZipFile(archive) as zipped:
                for member in zipped.infolist():
                    target = zipped.extract(member, folder)
                    mode = member.external_attr >> 16 & 0o777
                    if mode and not member.is_dir():  # extract() forgets who may run it
                        Path(target).chmod(mode | 0o600)
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(folder, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        why = str(error).partition("\n")[0].rstrip(":")  # below it tarfile lists all that it has tried
        raise UsageError(f"image `{url}` is no archive that can be unpacked: {why}") from error


def _open_fs(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(url if "://" in url else str(Path(url).expanduser().absolute()))
    except (ImportError, ValueError) as error:
        raise UsageError(f"image `{url}` cannot be opened: {error}") from error
    return fs, path
