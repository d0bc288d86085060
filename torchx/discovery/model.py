"""Components, their parameters, problems and arguments: plain data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx.discovery.source.places import shown
from torchx.json_limits import Object

if TYPE_CHECKING:
    from torchx.discovery.find.importing import SearchPath
    from torchx.discovery.source.docstrings import Docs
    from torchx.discovery.types.converters import Converter
    from torchx.specs.app import AppDef


class _Required:
    """The default of a required parameter."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
"""Marks a parameter as required."""

FLAG = "flag"
VARARGS = "varargs"


@dataclass(frozen=True)
class LinterMessage:
    """One problem in the source of a component.

    Attributes:
        name: the function concerned.
        description: the problem and its fix.
        line: the line, from 1.
        char: the column, from 1.
        severity: ``error``.
        path: the file.
    """

    name: str
    description: str
    line: int
    char: int
    severity: str = "error"
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            where = f"{shown(self.path)}:{self.line}:{self.char} "
        else:
            where = f"{self.line}:{self.char} "
        if self.name:
            return f"{where}{self.name}: {self.description}"
        return f"{where}{self.description}"


class LintReport(NamedTuple):
    """The result of a linter run.

    Attributes:
        messages: the problems, in source order.
        checked: the number of checked components.
    """

    messages: tuple[LinterMessage, ...]
    checked: int

    @property
    def faulty(self) -> int:
        """The number of components with problems."""
        return len({(m.path, m.name) for m in self.messages})

    @property
    def fine(self) -> int:
        """The number of components without problems."""
        return max(0, self.checked - self.faulty)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a component, or one field of a dataclass parameter.

    Attributes:
        name: its name; dotted for a field (``opt.lr``).
        annotation: its type, resolved.
        converter: the converter of its type.
        kind: ``flag``, or ``varargs`` for the ``*args`` of the function.
        default: its default, or :data:`REQUIRED`.
        flags: its flags, the long one first (``("--lr", "-l")``); empty for ``*args``.
        line: its line in the source, 0 if unknown.
        source: its source text (``lr: float = 0.001``).
        fields: of a dataclass parameter, its fields.
        by_position: whether it is positional-only or precedes ``*args``.
        docs: the source of its help text.
    """

    name: str
    annotation: Any
    converter: Converter
    kind: str = FLAG
    default: Any = REQUIRED
    flags: tuple[str, ...] = ()
    line: int = 0
    source: str = ""
    fields: tuple[Parameter, ...] = ()
    by_position: bool = False
    docs: Docs | None = field(default=None, repr=False, compare=False)

    @property
    def required(self) -> bool:
        """Whether a call needs it."""
        if self.kind == VARARGS or self.default is not REQUIRED:
            return False
        if self.fields:
            return any(f.required for f in self.fields)
        return True

    @property
    def type_name(self) -> str:
        """Its type as shown to users: ``FLOAT``, ``adam | sgd``."""
        return self.converter.label

    @property
    def help(self) -> str:
        """Its description in the docstring, on one line; may be empty."""
        if self.docs:
            return self.docs.of(self.name)
        return ""

    def leaves(self) -> Iterator[Parameter]:
        """Yields the parameters with a flag of their own: itself, or the fields of a dataclass."""
        if not self.fields:
            yield self
        for each in self.fields:
            yield from each.leaves()


@dataclass(frozen=True)
class Component:
    """A function that makes an application, ready to be called.

    Attributes:
        name: the requested name.
        fn: the function; for a class, one that makes an object and calls its ``build()``.
        path: its source file; empty if unknown.
        line: the line of its definition, 0 if unknown.
        parameters: its parameters, in order.
        docs: its docstring.
        is_builtin: whether it is part of this distribution.
        search: the search path of its imports.
    """

    name: str
    fn: Callable[..., AppDef]
    path: str
    line: int
    parameters: tuple[Parameter, ...]
    docs: Docs = field(repr=False, compare=False)
    is_builtin: bool = False
    search: SearchPath | None = field(default=None, repr=False, compare=False)

    @cached_property
    def description(self) -> str:
        """Its docstring without the sections on arguments; may be empty."""
        return self.docs.description

    @property
    def fn_name(self) -> str:
        """The name of the function."""
        return str(getattr(self.fn, "__name__", self.name))

    @property
    def validation_errors(self) -> list[str]:
        """Always empty: finding an invalid component raises an error."""
        return []

    @property
    def leaves(self) -> list[Parameter]:
        """Its parameters with a flag of their own, fields of dataclasses too; then its ``*args``."""
        leaves = [leaf for parameter in self.parameters for leaf in parameter.leaves()]
        return sorted(leaves, key=lambda leaf: leaf.kind == VARARGS)

    @property
    def varargs(self) -> Parameter | None:
        """Its ``*args``, or None."""
        return next((p for p in self.parameters if p.kind == VARARGS), None)


class ComponentInfo(NamedTuple):
    """A row in the list of components; made from source alone.

    Attributes:
        name: its full name.
        description: the first paragraph of its docstring, on one line.
        origin: ``built-in``, or the entry point and the distribution it comes from.
        path: its source file.
        line: the line of its definition.
        problems: the findings of the linter; a component with problems cannot run.
    """

    name: str
    description: str
    origin: str
    path: str
    line: int
    problems: tuple[LinterMessage, ...] = ()


@dataclass(frozen=True)
class Arguments:
    """The arguments of one call of a component.

    Attributes:
        values: a value for each parameter that has a flag.
        varargs: the arguments for ``*args``.
        notes: notes for the user about the parsing, for stderr.
        wants_help: whether ``--help`` was given; all other fields are unset then.
        origins: the origins of the values that are not from the command line, by the names there.
    """

    values: Object = field(default_factory=dict)
    varargs: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wants_help: bool = False
    origins: dict[str, str] = field(default_factory=dict)
