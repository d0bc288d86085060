"""Image providers: resolve the image of a role to a folder on this machine."""

from __future__ import annotations

import abc
import functools
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchx.errors import UsageError
from torchx.jobs.paths import Home, user_home
from torchx.lazy import lazy_imports
from torchx.machine.files import expanded
from torchx.specs.app import Role
from torchx.specs.run_options import RunOptions

with lazy_imports:
    from torchx.schedulers.local import archives


@dataclass
class ReplicaParam:
    """The process of one replica.

    Attributes:
        args: the program and its arguments.
        env: variables in addition to the environment of the submitting process.
        stdout: file for its standard output.
        stderr: file for its standard error.
        combined: file for both, whole lines in order of time.
        cwd: its working directory.
    """

    args: list[str]
    env: dict[str, str]
    stdout: str | None = None
    stderr: str | None = None
    combined: str | None = None
    cwd: str | None = None


class ImageProvider(abc.ABC):
    """Makes images available on this machine, and locates the programs of roles in them.

    Attributes:
        notes: notes for the user about the fetched images.
    """

    notes: Sequence[str] = ()

    @abc.abstractmethod
    def fetch(self, image: str) -> str:
        """Makes an image available and returns its folder; empty if the image is not a folder."""

    def locate_role(self, role: Role) -> str:
        """Returns the result of :meth:`fetch_role` for a dry-run; should fetch nothing."""
        return self.fetch_role(role)

    def fetch_role(self, role: Role) -> str:
        """Fetches the image of a role, see :meth:`fetch`; may add to the role's environment."""
        return self.fetch(role.image)

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory of the replicas, or None for that of the caller."""
        return None

    def below(self, role: Role) -> str:
        """Returns the folder that the role's workspace overlays, or an empty string."""
        return self.locate_role(role)

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the program of a role."""
        return role.entrypoint

    def get_replica_param(
        self,
        img_root: str,
        role: Role,
        stdout: str | None = None,
        stderr: str | None = None,
        combined: str | None = None,
    ) -> ReplicaParam:
        """Returns the process of one replica.

        Args:
            img_root: the folder that :meth:`fetch` returned.
            role: the role, with its macros substituted.
            stdout: file for its standard output.
            stderr: file for its standard error.
            combined: file for both.
        """
        args = [self.get_entrypoint(img_root, role), *role.args]
        return ReplicaParam(args, dict(role.env), stdout, stderr, combined, self.get_cwd(role.image))


class CWDImageProvider(ImageProvider):
    """Uses the working directory of the caller as the image, whatever the image is.

    Args:
        cfg: the run options; none is used.
    """

    def __init__(self, cfg: RunOptions) -> None:
        self._cwd = str(Path.cwd())

    def fetch(self, image: str) -> str:
        """Returns the working directory."""
        return self._cwd

    def below(self, role: Role) -> str:
        """Returns an empty string: a workspace replaces the working directory."""
        return ""

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory."""
        return self._cwd


class LocalDirectoryImageProvider(ImageProvider):
    """Uses a local folder as the image, or an archive, which is unpacked once.

    An archive (``.zip``, ``.tar`` and compressed tars) is given by a path or by any URL that fsspec supports.
    Its folder is named after its URL and its current version, so a changed archive is unpacked again.

    Args:
        cfg: the run options; ``image_limit_mb`` limits archives.
    """

    def __init__(self, cfg: RunOptions) -> None:
        self._cache = Home(user_home()).images
        self.notes: list[str] = []
        limit = cfg.get("image_limit_mb")
        self._version_of = functools.cache(archives.version_of)  # each call is a request
        self._limit_mb = limit if isinstance(limit, int) else None  # None: the default

    def locate_role(self, role: Role) -> str:
        """Returns the folder of a role's image, which need not exist yet."""
        return self.locate(role.image)

    def locate(self, image: str) -> str:
        """Returns the folder of an image, which need not exist yet.

        Raises:
            UsageError: the image is neither an existing folder nor an existing archive.
        """
        folder = expanded(image)
        if folder.is_dir():
            return str(folder.absolute())
        if not image.endswith(archives.ARCHIVES):
            raise UsageError(
                f"image `{image}` is neither a folder nor an archive ({', '.join(archives.ARCHIVES)})",
                hint="local_dir runs programs of a folder; to run in the working directory: -s local_cwd",
            )
        return str(self._cache / self._version_of(image))

    def fetch(self, image: str) -> str:
        """Unpacks an image that is an archive, unless that is done already; returns its folder.

        Raises:
            UsageError: the image is neither a folder nor a readable archive.
        """
        folder = Path(self.locate(image))
        if folder.parent == self._cache:
            with suppress(OSError):
                os.utime(folder)  # in use again: `torchx prune` spares it until the job is on record
        if not folder.is_dir():
            self.notes += archives.unpack(image, folder, self._limit_mb or archives.LIMIT_MB)
        return str(folder)

    def get_cwd(self, image: str) -> str | None:
        """Returns the folder of the image."""
        return self.locate(image)

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the program in the image, or its name for a search of PATH if the image lacks it."""
        program = Path(img_root, role.entrypoint)
        if os.sep in role.entrypoint or program.exists():
            return str(program)
        return role.entrypoint
