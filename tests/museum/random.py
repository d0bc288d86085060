"""A component file with the name of a module of the standard library, which others use."""
# ok: trainer => ["True"]
import random
import tempfile
from torchx.specs import AppDef, Role


def trainer() -> AppDef:
    name = tempfile.mktemp()
    return AppDef("a", [Role("r", "i", entrypoint="e", args=[str(hasattr(random, "Random") and bool(name))])])
