"""Components in every form that is right; the helper is none, and no problem."""
# ok: plain --msg hi => ["hi"]
# ok: quoted --n 3 => ["3"]
# ok: late --path /data => ["/data"]
# ok: Built --lr 0.5 => ["0.5"]
# ok: Plain => ["1"]
# ok: again --msg twice => ["twice"]
# ok: bound --b 2 => ["1", "2"]
# run: helper => fine.py:20:1 helper: returns `list`; a component returns AppDef
# run: _private => fine.py:_private needs --a
from dataclasses import dataclass
from functools import partial
from typing import Optional
import torchx.specs
import torchx.specs as specs
from torchx.specs import AppDef, Role
from torchx.specs import AppDef as App


def helper(words) -> list:
    return [str(w) for w in words]


def _app(*words, **more):
    return AppDef("fine", [Role("r", "img", entrypoint="echo", args=helper(words), **more)])


def plain(msg: str) -> specs.AppDef:
    return _app(msg)


def quoted(n: "int") -> "AppDef":
    return _app(n)


def late(path: "Optional[Later]" = None) -> "torchx.specs.AppDef":
    return _app(path)


def renamed() -> App:
    return _app()


class Later(str):
    """A type that is defined below its use."""


@dataclass
class Built:
    lr: float = 0.1

    def build(self) -> AppDef:
        return _app(self.lr)


class Plain:
    def __init__(self, n: int = 1):
        self.n = n

    def build(self) -> specs.AppDef:
        return _app(self.n)


again = plain


def two(a: int, b: int) -> AppDef:
    return _app(a, b)


bound = partial(two, 1)


def _private(a: int) -> AppDef:
    return _app(a)
