"""Run options: the options of a scheduler besides the application, and their validation."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from torchx.errors import UsageError
from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.pairs import split_elements, to_pairs
from torchx.specs.cases import camel_to_snake
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx import json_limits

CfgVal = str | int | float | bool | list[str] | dict[str, str] | None
"""The value of a run option."""

RunOptions = Mapping[str, CfgVal]
"""Run options by name."""

OptionValues = dict[str, CfgVal]
"""Run options by name, to add to."""

_TRUE = ("true", "1", "yes", "on")
_FALSE = ("false", "0", "no", "off")


class InvalidRunConfigException(UsageError, ValueError):
    """A run option is unknown, missing or of the wrong type.

    Args:
        invalid_reason: the problem, one line.
        cfg_key: the option.
        cfg: all given options.
        more: the hint and the code, as for :class:`torchx.errors.TorchxError`.
    """

    code = "invalid_run_option"

    def __init__(self, invalid_reason: str, cfg_key: str, cfg: RunOptions, **more: str | None) -> None:
        super().__init__(invalid_reason, facts={"option": cfg_key} if cfg_key else None, **more)
        self.cfg_key = cfg_key
        self.cfg = dict(cfg)


def get_type_name(tp: Any) -> str:
    """Returns the name of a type as users write it.

    >>> get_type_name(int), get_type_name(list[str])
    ('int', 'list[str]')
    """
    origin, args = get_origin(tp), get_args(tp)
    if isinstance(origin, type) and args:
        return f"{origin.__name__}[{', '.join(get_type_name(a) for a in args)}]"
    if tp is type(None):
        return "None"
    if isinstance(tp, type):
        return tp.__name__
    return str(tp)


@dataclass
class runopt:
    """One run option.

    Attributes:
        default: the value when none is given.
        opt_type: str, int, float, bool, ``list[str]`` or ``dict[str, str]``.
        is_required: whether a value must be given.
        help: its description for users.
    """

    default: CfgVal
    opt_type: Any
    is_required: bool
    help: str

    @property
    def is_type_list_of_str(self) -> bool:
        """True for a list of strings."""
        return self.opt_type is list or get_origin(self.opt_type) is list

    @property
    def is_type_dict_of_str(self) -> bool:
        """True for a mapping of strings to strings."""
        return self.opt_type is dict or get_origin(self.opt_type) is dict

    def cast_to_type(self, value: str) -> CfgVal:
        """Parses a value of this option.

        A bool is true, 1, yes, on or false, 0, no, off in any case; the elements of a list are
        separated by ``,`` or ``;`` (empty ones are dropped), the pairs ``key:value`` of a mapping too.

        Raises:
            ValueError: the text is not a value of this type.

        >>> runopt(None, dict[str, str], False, "").cast_to_type("a:1;b:x:y")
        {'a': '1', 'b': 'x:y'}
        """
        if self.opt_type is bool:
            if value.lower() not in _TRUE + _FALSE:
                raise ValueError(f"`{value}` is not one of true, 1, yes, on, false, 0, no, off")
            return value.lower() in _TRUE
        if self.is_type_list_of_str:
            return list(split_elements(value))
        if self.is_type_dict_of_str:
            return dict(_pair(element) for element in split_elements(value))
        if self.opt_type in (int, float):
            return self.opt_type(value)  # type: ignore[no-any-return]  # int or float
        return str(value)


def _pair(element: str) -> tuple[str, str]:
    key, colon, value = element.partition(":")
    if not colon:
        raise ValueError(f"`{element}` is not a `key:value` pair")
    return key.strip(), value.strip()


class runopts:
    """The run options of a scheduler, in the order in which they were added.

    >>> opts = runopts()
    >>> opts.add("partition", type_=str, help="where to run")
    >>> opts.add("tries", type_=int, default=3, help="how often")
    >>> opts.resolve(opts.cfg_from_str("tries=5"))
    {'tries': 5, 'partition': None}
    """

    def __init__(self) -> None:
        self._opts: dict[str, runopt] = {}

    def __iter__(self) -> Iterator[tuple[str, runopt]]:
        return iter(self._opts.items())

    def __len__(self) -> int:
        return len(self._opts)

    def __contains__(self, name: object) -> bool:
        return name in self._opts

    def add(
        self, cfg_key: str, type_: Any, help: str, default: CfgVal = None, required: bool = False
    ) -> None:
        """Adds an option.

        Args:
            cfg_key: its name.
            type_: its type, see :class:`runopt`.
            help: its description for users.
            default: the value when none is given.
            required: whether a value must be given; then it has no default.

        Raises:
            ValueError: it is required and has a default.
            TypeError: the default is not of the type.
        """
        if required and default is not None:
            raise ValueError(f"run option `{cfg_key}` is required, so it cannot have a default ({default!r})")
        if default is not None and not self.is_type(default, type_):
            raise TypeError(
                f"the default of run option `{cfg_key}` must be {get_type_name(type_)}, "
                f"got {default!r} ({type(default).__name__})"
            )
        self._opts[cfg_key] = runopt(default, type_, required, help)

    def get(self, name: str) -> runopt | None:
        """Returns an option by its name, or None; accepts ``someName`` for ``some_name``."""
        return self._opts.get(self.canonical_key(name))

    def canonical_key(self, name: str) -> str:
        """Returns the name under which an option was added: ``some_name`` for ``someName``."""
        snake = camel_to_snake(name)
        if name not in self._opts and snake in self._opts:
            return snake
        return name

    def resolve(self, cfg: RunOptions) -> OptionValues:
        """Checks options and fills in defaults, also for None values; returns a new mapping.

        Raises:
            InvalidRunConfigException: an option is unknown, missing or of the wrong type.
        """
        resolved: OptionValues = {}
        for name, value in cfg.items():
            key = self.canonical_key(name)
            if key not in self._opts:
                raise self._unknown(name, cfg)
            if key in resolved and resolved[key] != value:
                raise InvalidRunConfigException(
                    f"run option `{key}` is given twice, as `{key}` and in camel case, with two values",
                    key,
                    cfg,
                )
            resolved[key] = self._checked(key, value, cfg)
        for key, opt in self._opts.items():
            if opt.is_required and resolved.get(key) is None:
                hint = f"e.g. -cfg {key}={key.upper()}   {opt.help}"
                raise InvalidRunConfigException(
                    f"run option `{key}` is required", key, cfg, hint=hint, code="missing_run_option"
                )
            if resolved.get(key) is None:  # not given, or given as None: no value
                resolved[key] = copy.deepcopy(opt.default)
        return resolved

    def cfg_from_str(self, cfg_str: str, strict: bool = False) -> OptionValues:
        """Reads options from text such as ``a=1,b=x;y,c=z``; fills in no defaults.

        The last ``,`` or ``;`` before a key ends the value before it; quotes protect both.

        Args:
            cfg_str: the text; empty for no options.
            strict: whether an unknown or repeated option is an error; otherwise the first is dropped in
                silence, and the last value of the second counts.

        Raises:
            PairsError: the text holds no ``key=value`` pairs.
            InvalidRunConfigException: a value does not fit its option, or an option is unknown or repeated.

        >>> opts = runopts()
        >>> opts.add("nodes", type_=list[str], help="where")
        >>> opts.cfg_from_str("nodes=a,b;time=1")
        {'nodes': ['a', 'b']}
        """
        pairs = to_pairs(cfg_str)
        cfg: OptionValues = {}
        for name, text in pairs:
            key, opt = self.canonical_key(name), self.get(name)
            if opt is None:
                if strict:
                    raise self._unknown(name, dict(pairs))
                continue
            if strict and key in cfg:
                raise InvalidRunConfigException(f"run option `{key}` is given twice", key, cfg)
            try:
                cfg[key] = opt.cast_to_type(text)
            except ValueError as e:
                raise self._wrong_type(key, text, dict(pairs)) from e
        return cfg

    def cfg_from_json_repr(self, json_repr: str, strict: bool = False) -> OptionValues:
        """Reads options from a JSON object; fills in no defaults.

        A single text given for a list is a list of one; texts are read as on the command line; elements
        of lists and mappings become texts.

        Raises:
            InvalidRunConfigException: the text is no JSON object, a value does not fit its option, or
                (with ``strict``) an option is unknown.
        """
        try:
            given = json_limits.load_json(json_repr)
        except ValueError as e:
            raise InvalidRunConfigException(f"run options are not valid JSON: {e}", "", {}) from e
        if not isinstance(given, dict):
            raise InvalidRunConfigException(f"run options must be a JSON object, got `{json_repr}`", "", {})
        cfg: OptionValues = {}
        for name, value in given.items():
            key, opt = self.canonical_key(name), self.get(name)
            if opt is not None:
                cfg[key] = self._from_json(key, opt, value, given)
            elif strict:
                raise self._unknown(name, given)
        return cfg

    def update(self, other: runopts | Mapping[str, runopt]) -> None:
        """Adds the options of another, or of a table; they replace options of the same name."""
        if isinstance(other, runopts):
            other = other._opts
        self._opts.update(other)

    def __or__(self, other: runopts) -> runopts:
        """Returns the options of both; the right one's replace options of the same name."""
        both = runopts()
        both.update(self)
        both.update(other)
        return both

    def __repr__(self) -> str:
        """Returns the usage text."""
        return _usage(self)

    @staticmethod
    def is_type(obj: CfgVal, tp: Any) -> bool:
        """Returns True if a value is of a type; as ``isinstance``, and checks elements of lists and mappings.

        >>> runopts.is_type(["a"], list[str]), runopts.is_type([1], list[str])
        (True, False)
        """
        origin, args = get_origin(tp), get_args(tp)
        if origin is list and isinstance(obj, list):
            return all(isinstance(element, args) for element in obj)
        if origin is dict and isinstance(obj, dict):
            return all(isinstance(k, args[0]) and isinstance(v, args[1]) for k, v in obj.items())
        return origin is None and isinstance(obj, tp)

    def _checked(self, key: str, value: CfgVal, cfg: RunOptions) -> CfgVal:
        opt_type = self._opts[key].opt_type
        if value is None or self.is_type(value, opt_type):
            return copy.deepcopy(value)
        if opt_type is float and type(value) is int:
            return float(value)
        raise self._wrong_type(key, value, cfg)

    def _from_json(self, key: str, opt: runopt, value: Any, cfg: RunOptions) -> CfgVal:
        if opt.is_type_list_of_str and isinstance(value, list):
            return [str(element) for element in value]
        if opt.is_type_dict_of_str and isinstance(value, dict):
            return {str(k): str(v) for k, v in value.items()}
        if isinstance(value, str):
            try:
                if opt.is_type_list_of_str:
                    return [value]
                return opt.cast_to_type(value)
            except ValueError as e:
                raise self._wrong_type(key, value, cfg) from e
        return self._checked(key, value, cfg)

    def _wrong_type(self, key: str, value: CfgVal, cfg: RunOptions) -> InvalidRunConfigException:
        opt = self._opts[key]
        if isinstance(value, str):
            shown = f'"{value}"'
        else:
            shown = f"{value!r} ({type(value).__name__})"
        hint = None
        if opt.opt_type is bool:
            hint = "true or false"
        if opt.is_type_dict_of_str:
            hint = f"e.g. -cfg {key}=name:value,other:value"
        return InvalidRunConfigException(
            f"run option `{key}` takes {get_type_name(opt.opt_type)}, got {shown}", key, cfg, hint=hint
        )

    def _names(self) -> Iterable[str]:
        """Returns the names that are suggested for an unknown one."""
        return self._opts

    def _unknown(self, name: str, cfg: Data) -> InvalidRunConfigException:
        options = "no options"
        if self._opts:
            options = f"all options: {', '.join(self._opts)}"
        hint = did_you_mean(name, self._names(), options)
        return InvalidRunConfigException(
            f"unknown run option `{name}`", name, cfg, hint=hint, code="unknown_run_option"
        )


def _usage(opts: runopts) -> str:
    """Returns the usage text: one line with all options, then each with its help."""

    def line(key: str, opt: runopt) -> str:
        about = get_type_name(opt.opt_type) + ("" if opt.is_required else f", {opt.default}")
        text = "\n".join(f"            {row.strip()}".rstrip() for row in opt.help.strip().splitlines())
        return f"        {_placeholder(key)} ({about})\n{text}"

    required = [(key, opt) for key, opt in opts if opt.is_required]
    optional = [(key, opt) for key, opt in opts if not opt.is_required]
    pairs = [_placeholder(key) for key, _ in required] + [f"[{_placeholder(key)}]" for key, _ in optional]
    text = f"    usage:\n        {','.join(pairs)}"
    for title, group in (("required", required), ("optional", optional)):
        if group:
            text += f"\n\n    {title} arguments:\n" + "\n".join(line(key, opt) for key, opt in group)
    return text


def _placeholder(key: str) -> str:
    return f"{key}={key.upper()}"
