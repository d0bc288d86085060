"""The documented place of :class:`DockerWorkspaceMixin`, which lives among the schedulers."""

from __future__ import annotations

from torchx.schedulers.docker.images.mixin import DockerWorkspaceMixin as DockerWorkspaceMixin

__all__ = ["DockerWorkspaceMixin"]
