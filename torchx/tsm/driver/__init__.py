"""An older name of ``torchx.tsm``."""

from __future__ import annotations

from torchx import tsm
from torchx.tsm import *  # noqa: F403  # all of its public names, and no list to keep beside its own

__all__ = list(tsm.__all__)
