"""A type that is there for the type checker alone, and an AppDef that may be."""
# lint: 12:13 trainer: argument `data` has the type `Path`, which is imported under `if TYPE_CHECKING` only; import it always
# ok: fine --n 1 => []
from __future__ import annotations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from torchx.specs import AppDef


def trainer(data: Path) -> AppDef:
    from torchx.specs import AppDef, Role

    return AppDef("a", [Role("r", "i", entrypoint="e")])


def fine(n: int) -> AppDef:
    from torchx.specs import AppDef, Role

    return AppDef("a", [Role("r", "i", entrypoint="e")])
