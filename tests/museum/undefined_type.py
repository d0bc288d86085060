"""Types that the file never imported."""
# lint: 9:13 trainer: argument `a` has the type `Optional`, which this file neither imports nor defines
# lint: 9:38 trainer: argument `b` has the type `Path`, which this file neither imports nor defines
# run: trainer => undefined_type.py:trainer is not a valid component:
from __future__ import annotations
from torchx.specs import AppDef


def trainer(a: Optional[int] = None, b: "Path" = ".") -> AppDef:
    return AppDef("a")
