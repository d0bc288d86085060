"""Types that cannot be written on a command line."""
# lint: 16:13 trainer: argument `loss` is a `Callable[[float], float]`, which cannot be written on a command line
# lint: 16:45 trainer: argument `raw` is a `bytes`, which cannot be written on a command line
# lint: 16:57 trainer: argument `it` is a `t.Iterator[int]`, which cannot be written on a command line
# lint: 20:14 nonsense: argument `a` has the value `3` as its type
# lint: 20:20 nonsense: argument `b` has `[int]` as its type, which is not a type
# lint: 20:30 nonsense: argument `c` has "not a type" as its type, which is not a type
# run: hidden --lock x => wordless.py:24:12 hidden: argument `lock` is a `TwoTexts`, which cannot be written on a command line
import typing as t
from collections.abc import Callable
from torchx.specs import AppDef

from siblings.texts import TwoTexts


def trainer(loss: Callable[[float], float], raw: bytes, it: t.Iterator[int] = ()) -> AppDef:
    return AppDef("a")


def nonsense(a: 3, b: [int], c: "not a type") -> AppDef:
    return AppDef("a")


def hidden(lock: TwoTexts) -> AppDef:
    return AppDef("a")
