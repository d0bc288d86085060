"""Arguments whose flags would be those of others."""
# lint: 10:11 helps: argument `help` would take the place of --help; give it another name
# lint: 14:37 shorts: argument `b` takes the flag -x, which another argument has already
# lint: 14:62 shorts: argument `x` takes the flag -x, which another argument has already
from typing import Annotated

from torchx.specs import AppDef


def helps(help: str) -> AppDef:
    return AppDef("a")


def shorts(a: Annotated[int, "-x"], b: Annotated[int, "-x"], x: int) -> AppDef:
    return AppDef("a")
