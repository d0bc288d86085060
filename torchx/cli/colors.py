"""The former place of colours for terminals."""

from __future__ import annotations

from torchx.compat.cli import colour

GREEN = colour("GREEN")
ENDC = colour("ENDC")
