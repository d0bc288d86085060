"""A component file inside a package, with the name of this library."""
# ok: siblings/torchx.py:trainer => ["siblings.torchx"]
from torchx.specs import AppDef, Role


def trainer() -> AppDef:
    return AppDef("a", [Role("r", "i", entrypoint="e", args=[__name__])])
