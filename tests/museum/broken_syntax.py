"""A file that Python can't read."""
# lint: 7:16 : is not valid Python: '(' was never closed
# run: trainer => broken_syntax.py:7:16 is not valid Python: '(' was never closed
from torchx.specs import AppDef


def two_parens((a: int) -> AppDef:
    return AppDef("a"
