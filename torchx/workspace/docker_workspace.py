"""The documented module of :class:`DockerWorkspaceMixin`, which is implemented with the schedulers."""

from __future__ import annotations

from torchx.schedulers.docker.images.mixin import DockerWorkspaceMixin as DockerWorkspaceMixin

__all__ = ["DockerWorkspaceMixin"]
