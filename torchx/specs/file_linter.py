"""Documented names for checking the source of components and reading their docstrings."""

from torchx.discovery.find.documented import validate
from torchx.discovery.model import LinterMessage
from torchx.discovery.source.docstrings import get_fn_docstring
from torchx.discovery.source.validators import (
    ArgTypeValidator,
    ComponentFunctionValidator,
    ReturnTypeValidator,
)

__all__ = [
    "ArgTypeValidator",
    "ComponentFunctionValidator",
    "LinterMessage",
    "ReturnTypeValidator",
    "get_fn_docstring",
    "validate",
]
