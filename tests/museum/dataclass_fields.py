"""Dataclasses as arguments: right, and with fields that words can't stand for."""
# ok: right --opt.lr 0.5 --opt.steps.warm_up 3 => ["0.5", "3"]
# run: right --opt.lr fast => --opt.lr takes a float, got "fast"  (dataclass_fields.py:40, opt.lr: float = 0.1)
# run: right --opt.rl 1 => unknown flag `--opt.rl` for dataclass_fields.py:right
# run: needs => dataclass_fields.py:needs needs --data.path and --data.kind
# run: needs --data.path a --data.kind csv => `data` was rejected: no csv please  (dataclass_fields.py:44, data: Data)
# run: wrong => dataclass_fields.py:48:11 wrong: argument `bad` is a `Bad`, whose field `hook` is a `Callable[[], int]`, which cannot be written on a command line
from dataclasses import dataclass, field
from typing import Callable

from torchx.specs import AppDef, Role


@dataclass
class Steps:
    warm_up: int = 1


@dataclass
class Optimiser:
    lr: float = 0.1
    steps: Steps = field(default_factory=Steps)


@dataclass
class Data:
    path: str
    kind: str

    def __post_init__(self):
        if self.kind == "csv":
            raise ValueError("no csv please")


@dataclass
class Bad:
    hook: Callable[[], int]


def right(opt: Optimiser = Optimiser()) -> AppDef:
    return AppDef("a", [Role("r", "i", entrypoint="e", args=[str(opt.lr), str(opt.steps.warm_up)])])


def needs(data: Data) -> AppDef:
    return AppDef("a")


def wrong(bad: Bad) -> AppDef:
    return AppDef("a")
