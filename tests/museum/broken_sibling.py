"""The fault is in a file that this one imports."""
# run: trainer => broken_sibling.py cannot be imported: ZeroDivisionError: division by zero  (siblings/faulty.py:3, HALF = 1 / 0)
from siblings.faulty import HALF
from torchx.specs import AppDef


def trainer() -> AppDef:
    return AppDef("a")
