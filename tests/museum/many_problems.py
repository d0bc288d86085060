"""Several components, several problems each: all are reported."""
# lint: 11:11 first: argument `a` has no type annotation; add one, e.g. `a: str`
# lint: 11:16 first: takes `**b`; name each argument instead
# lint: 15:1 second: returns `None`; a component returns AppDef
# lint: 15:20 second: argument `c` is a `bytes`, which cannot be written on a command line
# lint: 19:1 third: is `async`; make it a plain function
# run: second => many_problems.py:second is not a valid component:
from torchx.specs import AppDef


def first(a, **b) -> AppDef:
    return AppDef("a")


def second(a: int, c: bytes) -> None:
    return AppDef("a")


async def third() -> AppDef:
    return AppDef("a")


def fourth() -> AppDef:
    return AppDef("a")
