"""What the image of a role means on this machine."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path

from torchx.schedulers.local_request import ReplicaParam
from torchx.specs.app import Role
from torchx.specs.runopts import CfgVal


class ImageProvider(abc.ABC):
    """Brings images to this machine, and tells what a role's program is within one."""

    @abc.abstractmethod
    def fetch(self, image: str) -> str:
        """Makes an image available and returns the folder of it; an empty text when there is none."""

    def fetch_role(self, role: Role) -> str:
        """As :meth:`fetch`, for a whole role; may add to the role's environment."""
        return self.fetch(role.image)

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory of the replicas; None for that of the caller."""
        return None

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

    def get_cwd(self, image: str) -> str | None:
        """Returns the working directory."""
        return self._cwd
