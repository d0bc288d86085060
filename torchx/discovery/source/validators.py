"""Checks of component source, for programs that choose or add checks."""

from __future__ import annotations

import abc
import ast
from collections.abc import Sequence

from torchx.discovery.model import LinterMessage
from torchx.discovery.source.component_source import SourceFile, dotted
from torchx.discovery.source.linter import argument_problems
from torchx.discovery.source.outline import outline


class ComponentFunctionValidator(abc.ABC):
    """One check on the source of a component function."""

    @abc.abstractmethod
    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Returns the problems of a function.

        Args:
            app_specs_func_def: its syntax tree.
        """

    def _gen_linter_message(self, description: str, lineno: int) -> LinterMessage:
        return LinterMessage("TorchxFunctionValidator", description, lineno, 1)


class ArgTypeValidator(ComponentFunctionValidator):
    """Every argument has a type that can be written on a command line."""

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Returns the problems of a function's arguments."""
        alone = SourceFile("", "", ast.Module([*_ANY_NAME, app_specs_func_def], []))
        return list(argument_problems(outline(app_specs_func_def, alone), alone))


class ReturnTypeValidator(ComponentFunctionValidator):
    """The function has a certain return annotation.

    Args:
        supported_return_type: name of the type, without its module.
    """

    def __init__(self, supported_return_type: str) -> None:
        self._supported_return_type = supported_return_type

    def validate(self, app_specs_func_def: ast.FunctionDef) -> list[LinterMessage]:
        """Returns the problems of a function's return annotation."""
        node, wanted = app_specs_func_def.returns, self._supported_return_type
        if isinstance(node, ast.Constant):
            written = node.value
        else:
            written = dotted(node, {})
        if str(written).rpartition(".")[2] == wanted:
            return []
        got = "has no return annotation"
        if node:
            got = f"returns `{ast.unparse(node)}`"
        text = f"{got}; a component returns {wanted}"
        name, line, char = (
            app_specs_func_def.name,
            app_specs_func_def.lineno,
            app_specs_func_def.col_offset + 1,
        )
        return [LinterMessage(name, text, line, char)]


# the names that the file of a lone function defines are unknown
_ANY_NAME: Sequence[ast.stmt] = ast.parse("from anywhere import *").body
