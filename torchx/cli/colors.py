"""The former place of colours for terminals."""

from __future__ import annotations

from torchx.compat.cli import colour

GREEN = colour("GREEN")
BLUE = colour("BLUE")
GRAY = colour("GRAY")
ORANGE = colour("ORANGE")
ENDC = colour("ENDC")
