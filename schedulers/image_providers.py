"""Public module of the image providers for local jobs."""

from __future__ import annotations

from torchx.schedulers.local.images import CWDImageProvider as CWDImageProvider
from torchx.schedulers.local.images import ImageProvider as ImageProvider
from torchx.schedulers.local.images import LocalDirectoryImageProvider as LocalDirectoryImageProvider
