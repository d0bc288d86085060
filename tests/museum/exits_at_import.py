"""A script that ends its program when it is imported."""
# run: trainer => exits_at_import.py cannot be imported: SystemExit: 3  (exits_at_import.py:11, sys.exit(3))
import sys
from torchx.specs import AppDef


def trainer() -> AppDef:
    return AppDef("a")


sys.exit(3)
