"""Functions that were plainly meant as components and do not say so."""
# lint: 9:1 direct: has no return annotation; add `-> AppDef`
# lint: 13:1 by_name: returns `dict`; a component returns AppDef
# run: direct => forgot_return.py:9:1 direct: has no return annotation; add `-> AppDef`
# run: helper => forgot_return.py:18:1 helper: has no return annotation; add `-> AppDef`
import torchx.specs as specs


def direct(a: int):
    return specs.AppDef("a")


def by_name(a: int) -> dict:
    app = specs.AppDef("a")
    return app


def helper(a: int):
    return a + 1
