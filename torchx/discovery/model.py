"""What discovery hands out: components, their parameters, the problems found in them, their arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx.discovery.places import shown

if TYPE_CHECKING:
    from torchx.discovery.docstrings import Docs
    from torchx.discovery.importing import SearchPath
    from torchx.discovery.shapes import Shape
    from torchx.specs.app import AppDef


class _Required:
    """The default of a parameter that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()
"""Stands for the default of a parameter that must be given."""

FLAG = "flag"
VARARGS = "varargs"


@dataclass(frozen=True)
class LinterMessage:
    """One problem in the source of a component.

    Attributes:
        name: the function it is about.
        description: what is wrong and what to do.
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
        where = f"{shown(self.path)}:{self.line}:{self.char} " if self.path else f"{self.line}:{self.char} "
        return f"{where}{self.name}: {self.description}" if self.name else f"{where}{self.description}"


class LintReport(NamedTuple):
    """What the linter found.

    Attributes:
        messages: the problems, in the order of the source.
        checked: how many components were looked at.
    """

    messages: tuple[LinterMessage, ...]
    checked: int

    @property
    def faulty(self) -> int:
        """How many components have problems."""
        return len({(m.path, m.name) for m in self.messages})

    @property
    def fine(self) -> int:
        """How many components have none."""
        return max(0, self.checked - self.faulty)


@dataclass(frozen=True)
class Parameter:
    """One parameter of a component; of a dataclass parameter also each of its fields.

    Attributes:
        name: its name; that of a field is dotted (``opt.lr``).
        annotation: its type, resolved.
        shape: how words become values of that type.
        kind: ``flag``, or ``varargs`` for the ``*args`` of the function.
        default: its default, :data:`REQUIRED` when it has none.
        flags: how it is written, the long one first (``("--lr", "-l")``); empty for ``*args``.
        line: the line of the source it stands in, 0 when not known.
        source: what stands there (``lr: float = 0.001``).
        fields: of a dataclass parameter, its fields.
        by_position: the function takes it by position only, or it stands before ``*args``.
        docs: where its help text comes from.
    """

    name: str
    annotation: Any
    shape: Shape
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
        """Whether the function can't be called without it."""
        if self.kind == VARARGS or self.default is not REQUIRED:
            return False
        return any(f.required for f in self.fields) if self.fields else True

    @property
    def type_name(self) -> str:
        """Its type for people: ``FLOAT``, ``adam | sgd``."""
        return self.shape.label

    @property
    def help(self) -> str:
        """What the docstring says of it, on one line; empty when that is nothing."""
        return self.docs.of(self.name) if self.docs else ""

    def leaves(self) -> Iterator[Parameter]:
        """Yields what has a flag of its own: the parameter, or the fields of a dataclass."""
        if not self.fields:
            yield self
        for each in self.fields:
            yield from each.leaves()


@dataclass(frozen=True)
class Component:
    """A function that makes an application, ready to be called.

    Attributes:
        name: as it was asked for.
        fn: the function; for a class, one that makes an object and calls its ``build()``.
        path: its source file, empty when not known.
        line: the line of its definition, 0 when not known.
        parameters: its parameters, in order.
        docs: its docstring.
        is_builtin: whether it came with this distribution.
        search: where its imports are looked up.
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
        """What the docstring says of it, without the parts on arguments; empty when that is nothing."""
        return self.docs.description

    @property
    def fn_name(self) -> str:
        """The name of the function."""
        return str(getattr(self.fn, "__name__", self.name))

    @property
    def validation_errors(self) -> list[str]:
        """Always empty: a component with problems is refused when it is looked up."""
        return []

    @property
    def varargs(self) -> Parameter | None:
        """Its ``*args``, None when it has none."""
        return next((p for p in self.parameters if p.kind == VARARGS), None)


class ComponentInfo(NamedTuple):
    """A line in the listing of components; made from the source alone.

    Attributes:
        name: how to ask for it.
        description: the first paragraph of its docstring, on one line.
        origin: ``built-in``, or the entry point and the distribution it comes from.
        path: its source file.
        line: the line of its definition.
        problems: what the linter has against it; such a component can't be run.
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
        varargs: the words for ``*args``.
        notes: what a person should be told of how the words were read, for stderr.
        wants_help: ``--help`` was among the words; nothing else of this counts then.
    """

    values: dict[str, Any] = field(default_factory=dict)
    varargs: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wants_help: bool = False
