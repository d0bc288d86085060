"""Types that no word on a command line can stand for."""
# lint: 16:13 trainer: argument `loss` is a `Callable[[float], float]`, which no word on a command line can stand for
# lint: 16:45 trainer: argument `raw` is a `bytes`, which no word on a command line can stand for
# lint: 16:57 trainer: argument `it` is a `t.Iterator[int]`, which no word on a command line can stand for
# lint: 20:14 nonsense: argument `a` has the value `3` for a type
# lint: 20:20 nonsense: argument `b` has `[int]` for a type, which is none
# lint: 20:30 nonsense: argument `c` has "not a type" for a type, which is none
# run: hidden --lock x => wordless.py:24:12 hidden: argument `lock` is a `TwoTexts`, which no word on a command line can stand for
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
