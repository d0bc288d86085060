"""A package that is not installed."""
# run: trainer => missing_package.py cannot be imported: ModuleNotFoundError: No module named 'surely_not_installed'  (missing_package.py:3, import surely_not_installed.deep)
import surely_not_installed.deep
from torchx.specs import AppDef


def trainer() -> AppDef:
    return AppDef("a")
