"""What is called, and is no plain function."""
# lint: 10:1 later: is `async`; make it a plain function
# run: later => not_plain_functions.py:10:1 later: is `async`; make it a plain function
# run: Config => `not_plain_functions.py:Config` is a class without a method `build`; add one that returns AppDef
# run: SIZE => `not_plain_functions.py:SIZE` has type int, and a component is a function
# run: sized => no component `sized` in not_plain_functions.py
from torchx.specs import AppDef


async def later() -> AppDef:
    return AppDef("a")


class Config:
    pass


SIZE = 3
