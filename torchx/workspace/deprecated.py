"""Names of older versions of TorchX, for files that still import them; nothing here uses them."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Spec = TypeVar("Spec")
Config = TypeVar("Config")


@dataclass
class PkgInfo(Generic[Spec]):
    """What a builder has made of a workspace.

    Attributes:
        img: the image.
        source_spec: what it was made from.
        metadata: notes.
    """

    img: str
    source_spec: Spec
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass
class WorkspaceBuilder(abc.ABC, Generic[Spec, Config]):
    """Builds a workspace as its configuration says.

    Attributes:
        cfg: the configuration.
    """

    cfg: Config

    @abc.abstractmethod
    def build_workspace(self, sync: bool = True) -> PkgInfo[Spec]:
        """Builds the workspace; with ``sync`` returns when it is there."""
