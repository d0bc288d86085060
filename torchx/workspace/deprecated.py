"""Names of older TorchX versions, kept for files that import them; otherwise unused."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Spec = TypeVar("Spec")
Config = TypeVar("Config")


@dataclass
class PkgInfo(Generic[Spec]):
    """The result of a workspace build.

    Attributes:
        img: the image.
        source_spec: the specification it was built from.
        metadata: additional data.
    """

    img: str
    source_spec: Spec
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class WorkspaceBuilder(abc.ABC, Generic[Spec, Config]):
    """Builds a workspace from a configuration.

    Attributes:
        cfg: the configuration.
    """

    cfg: Config

    @abc.abstractmethod
    def build_workspace(self, sync: bool = True) -> PkgInfo[Spec]:
        """Builds the workspace; with ``sync``, waits until it is built."""
