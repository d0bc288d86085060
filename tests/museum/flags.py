"""Arguments whose flags would be those of others."""
# lint: 10:11 helps: argument `help` conflicts with --help; rename it
# lint: 14:37 shorts: argument `b` uses the flag -x of another argument
# lint: 14:62 shorts: argument `x` uses the flag -x of another argument
from typing import Annotated

from torchx.specs import AppDef


def helps(help: str) -> AppDef:
    return AppDef("a")


def shorts(a: Annotated[int, "-x"], b: Annotated[int, "-x"], x: int) -> AppDef:
    return AppDef("a")
