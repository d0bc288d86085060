"""What the image of a role means on this machine: nothing, a folder, or an archive that becomes one."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torchx.errors import UsageError
from torchx.jobs.paths import Home, user_home
from torchx.schedulers.local.request import ReplicaParam
from torchx.specs.app import Role
from torchx.specs.run_options import CfgVal


class ImageProvider(abc.ABC):
    """Brings images to this machine, and tells what a role's program is within one."""

    @abc.abstractmethod
    def fetch(self, image: str) -> str:
        """Makes an image available and returns the folder of it; an empty text when there is none."""

    def locate_role(self, role: Role) -> str:
        """Returns what :meth:`fetch_role` will return; asked at a dry-run, so it should bring nothing."""
        return self.fetch_role(role)

    def fetch_role(self, role: Role) -> str:
        """As :meth:`fetch`, for a whole role; may add to the role's environment."""
        return self.fetch(role.image)

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory of the replicas; None for that of the caller."""
        return None

    def below(self, role: Role) -> str:
        """Returns the folder whose content lies below a workspace of a role; empty for none."""
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
        """Returns one replica as it is to be started.

        Args:
            img_root: what :meth:`fetch` returned.
            role: the role, with its macros filled in.
            stdout: file that keeps its output.
            stderr: file that keeps its errors.
            combined: file that keeps both.
        """
        args = [self.get_entrypoint(img_root, role), *role.args]
        return ReplicaParam(args, dict(role.env), stdout, stderr, combined, self.get_cwd(role.image))


class CWDImageProvider(ImageProvider):
    """Takes the working directory of the caller for any image.

    Args:
        cfg: the run options; none matters here.
    """

    def __init__(self, cfg: Mapping[str, CfgVal]) -> None:
        self._cwd = str(Path.cwd())

    def fetch(self, image: str) -> str:
        """Returns the working directory."""
        return self._cwd

    def below(self, role: Role) -> str:
        """Returns nothing: a workspace stands in for the working directory."""
        return ""

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory."""
        return self._cwd


class LocalDirectoryImageProvider(ImageProvider):
    """Takes a folder of this machine for an image, or an archive anywhere, which is unpacked once.

    An archive (``.zip``, ``.tar`` and compressed tars) may be named by a path or by any URL that fsspec
    knows. Its folder is named after its address and its present version, so a changed one is unpacked anew.

    Args:
        cfg: the run options; ``image_limit_mb`` limits archives.
    """

    def __init__(self, cfg: Mapping[str, CfgVal]) -> None:
        self._cache = Home(user_home()).images
        limit = cfg.get("image_limit_mb")
        self._limit_mb = limit if isinstance(limit, int) else None  # the default, where it is not an option

    def locate_role(self, role: Role) -> str:
        """Returns the folder of a role's image, there or not."""
        return self.locate(role.image)

    def locate(self, image: str) -> str:
        """Returns the folder of an image, there or not.

        Raises:
            UsageError: the image is neither a folder nor an archive that can be found.
        """
        from torchx.schedulers.local.archives import (  # on demand: few images are archives
            ARCHIVES,
            version_of,
        )

        folder = Path(image).expanduser()
        if folder.is_dir():
            return str(folder.absolute())
        if not image.endswith(ARCHIVES):
            raise UsageError(
                f"image `{image}` is neither a folder nor an archive ({', '.join(ARCHIVES)})",
                hint="local_dir runs what is in a folder; to run in the working directory: -s local_cwd",
            )
        return str(self._cache / version_of(image))

    def fetch(self, image: str) -> str:
        """Makes the folder of an image and returns it.

        Raises:
            UsageError: the image is neither a folder nor an archive that can be read.
        """
        folder = Path(self.locate(image))
        if folder.parent == self._cache:
            with suppress(OSError):
                os.utime(folder)  # in use again: `torchx prune` spares it until the job is on record
        if not folder.is_dir():
            from torchx.schedulers.local.archives import LIMIT_MB, unpack

            unpack(image, folder, self._limit_mb or LIMIT_MB)
        return str(folder)

    def get_cwd(self, image: str) -> str | None:
        """Returns the folder of the image."""
        return self.locate(image)

    def get_entrypoint(self, img_root: str, role: Role) -> str:
        """Returns the program in the image; one that the image does not have is looked for on PATH."""
        program = Path(img_root, role.entrypoint)
        return str(program) if os.sep in role.entrypoint or program.exists() else role.entrypoint
