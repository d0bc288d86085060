"""Run options as a dataclass, with types and help."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

from torchx.lazy import lazy_imports
from torchx.specs.cases import snake_to_camel
from torchx.specs.run_options import (
    InvalidRunConfigException,
    OptionValues,
    RunOptions,
    get_type_name,
    runopts,
)

with lazy_imports:
    import ast
    import inspect

S = TypeVar("S", bound="StructuredOpts")

_PLAIN = (str, int, float, bool, list, dict)


class StructuredOpts(Mapping[str, Any]):
    """Base of run options in the form of a dataclass; a class without the decorator becomes one.

    Each field is an option; the text literal below it is its help. A field without default is required.
    A field whose type is a dataclass of this kind is a group: its options are called ``group.key``. The
    metadata ``{"cfg_key": "mail-user"}`` of a field gives an option a name that is not a Python identifier.
    ``someName`` is accepted for ``some_name`` when options are read.

    An instance is also a mapping of option names to values, with those it was read from that are not fields;
    ``opts | {"partition": "gpu"}`` is a dictionary of all of them.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Opts(StructuredOpts):
    ...     partition: str
    ...     max_tries: int = 3
    >>> Opts.from_cfg({"partition": "gpu", "maxTries": 5})
    Opts(partition='gpu', max_tries=5)
    >>> Opts("gpu") | {"maxTries": 5}
    {'partition': 'gpu', 'max_tries': 5}
    """

    _extra: ClassVar[RunOptions] = MappingProxyType({})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__bases__:
            _complete(base)  # before a decorator of this class collects their fields

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _complete(type(self))  # a dataclass has an __init__ of its own, which is called now
        type(self).__init__(self, *args, **kwargs)

    @classmethod
    def as_runopts(cls) -> runopts:
        """Returns these options as ``runopts``.

        Raises:
            TypeError: the type of a field is not supported.
        """
        opts, docs = runopts(), cls.get_docstrings()
        for field, tp in cls._typed_fields():
            key = _key(field)
            if _is_group(tp):
                for sub, opt in tp.as_runopts():
                    opts.add(f"{key}.{sub}", opt.opt_type, opt.help, opt.default, opt.is_required)
                continue
            if (get_origin(tp) or tp) not in _PLAIN:
                raise TypeError(
                    f"{cls.__name__}.{field.name} is {get_type_name(tp)}; a run option is str, int, float, "
                    "bool, list[str] or dict[str, str], or one of them or None"
                )
            default = _default(field)
            required = default is MISSING
            opts.add(key, tp, docs.get(field.name, key), None if required else default, required)
        return opts

    @classmethod
    def from_cfg(cls: type[S], cfg: RunOptions) -> S:
        """Returns the options as an object; names that are not fields are in the mapping only.

        None selects the default if the field has one and its type excludes None.

        Raises:
            InvalidRunConfigException: a required option is missing.
        """
        values: dict[str, Any] = {}
        known: set[str] = set()
        for field, tp in cls._typed_fields():
            key = _key(field)
            known.update(_names(field))
            if _is_group(tp):
                known.update(name for name in cfg if name.partition(".")[0] in _names(field))
            value = _value_in(cfg, field, tp)
            lacks = value is MISSING or (value is None and not _takes_none(cls, field))
            if lacks and _default(field) is MISSING:
                raise InvalidRunConfigException(
                    f"run option `{key}` is required", key, cfg, code="missing_run_option"
                )
            if not lacks:
                values[field.name] = copy.deepcopy(value)
        options = cls(**values)
        object.__setattr__(options, "_extra", {name: cfg[name] for name in cfg if name not in known})
        return options

    @classmethod
    def get_docstrings(cls) -> dict[str, str]:
        """Returns the help of each field, from the source of this class, its bases and its groups."""
        docs: dict[str, str] = {}
        _complete(cls)
        for base in reversed(cls.__mro__):
            if is_dataclass(base):
                docs.update(_field_docs(base))
        groups = {field.name: tp.get_docstrings() for field, tp in cls._typed_fields() if _is_group(tp)}
        return docs | {f"{name}.{key}": text for name, group in groups.items() for key, text in group.items()}

    def __getitem__(self, name: str) -> Any:
        group, dot, rest = name.partition(".")
        for field in _fields(type(self)):
            value = getattr(self, field.name)
            if name in _names(field):
                return value
            if dot and group in _names(field) and isinstance(value, StructuredOpts):
                return value[rest]
        return self._extra[name]

    def __iter__(self) -> Iterator[str]:
        for field, tp in self._typed_fields():
            value = getattr(self, field.name)
            if isinstance(value, StructuredOpts):
                yield from (f"{_key(field)}.{sub}" for sub in value)
            elif not _is_group(tp):
                yield _key(field)
        yield from self._extra

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        keys = {name: _key(field) for field in _fields(type(self)) for name in _names(field)}
        return {**self, **{keys.get(name, name): value for name, value in other.items()}}

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _typed_fields(cls) -> list[tuple[Field[Any], Any]]:
        """The fields with their types, without None."""
        return [(field, _without_none(tp)) for field, tp in _hints(cls)]


def _complete(cls: type) -> None:
    """Makes dataclasses of a class and its bases, where they are none yet."""
    for base in reversed(cls.__mro__):
        derived = issubclass(base, StructuredOpts) and base is not StructuredOpts
        if derived and "__dataclass_fields__" not in vars(base):
            dataclass(base)


def _fields(cls: Any) -> tuple[Field[Any], ...]:
    _complete(cls)
    return fields(cls)


def _hints(cls: type) -> list[tuple[Field[Any], Any]]:
    own = _fields(cls)
    # a group defined inside a function is not a name of the module
    local = {
        f.type: f.default_factory for f in own if isinstance(f.type, str) and _is_group(f.default_factory)
    }
    hints = get_type_hints(cls, localns=local)
    return [(field, hints[field.name]) for field in own]


def _without_none(tp: Any) -> Any:
    if get_origin(tp) not in (Union, UnionType):
        return tp
    rest = [arg for arg in get_args(tp) if arg is not NoneType]
    if len(rest) == 1:
        return rest[0]
    return tp


def _takes_none(cls: type, field: Field[Any]) -> bool:
    hint = next(tp for f, tp in _hints(cls) if f.name == field.name)
    return NoneType in get_args(hint)


def _is_group(tp: Any) -> bool:
    # in Python 3.10, list[str] is a type too
    return isinstance(tp, type) and get_origin(tp) is None and issubclass(tp, StructuredOpts)


def _value_in(cfg: RunOptions, field: Field[Any], tp: Any) -> Any:
    """Returns the value of a field, or MISSING; a group is made of the options with its name as prefix."""
    if _is_group(tp):
        group = _group(cfg, _names(field))
        if group or _default(field) is not None:
            return tp.from_cfg(group)
    return next((cfg[name] for name in _names(field) if name in cfg), MISSING)


def _key(field: Field[Any]) -> str:
    return str(field.metadata.get("cfg_key", field.name))


def _names(field: Field[Any]) -> tuple[str, ...]:
    """All names under which an option is found."""
    return tuple(dict.fromkeys((_key(field), field.name, snake_to_camel(field.name))))


def _group(cfg: RunOptions, names: tuple[str, ...]) -> OptionValues:
    found: OptionValues = {}
    for key, value in cfg.items():
        group, dot, rest = key.partition(".")
        if dot and group in names:
            found[rest] = value
    return found


def _default(field: Field[Any]) -> Any:
    if field.default_factory is MISSING:
        return field.default
    return field.default_factory()


def _field_docs(cls: type) -> dict[str, str]:
    """Reads the text literals below the fields; empty without source."""
    try:
        source = inspect.getsource(cls)
    except (OSError, TypeError):
        return {}
    if source[:1].isspace():
        source = "if True:\n" + source
    body = next(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)).body
    docs = {}
    for field, below in itertools.pairwise(body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs
