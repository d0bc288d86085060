"""A component that would take anything."""
# lint: 7:23 trainer: takes `**more`; name each argument instead
# run: trainer --x 1 => kwargs.py:7:23 trainer: takes `**more`; name each argument instead
from torchx.specs import AppDef


def trainer(a: int, **more: str) -> AppDef:
    return AppDef("a")
