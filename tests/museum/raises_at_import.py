"""A file that fails when it is imported, two calls deep."""
# run: trainer => raises_at_import.py cannot be imported: KeyError: 'NO_SUCH_VARIABLE'  (raises_at_import.py:9, return {}[name])
from torchx.specs import AppDef

DEPTH = 2


def read(name: str) -> str:
    return {}[name]


VALUE = read("NO_SUCH_VARIABLE")


def trainer() -> AppDef:
    return AppDef("a")
