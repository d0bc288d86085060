"""Arguments of a call: command line, JSON and configuration merged over the defaults, and converted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from torchx.command_line import Split, same
from torchx.discovery.call.command_line import parse_command_line
from torchx.discovery.call.signature import group_of
from torchx.discovery.errors import ArgumentError
from torchx.discovery.model import REQUIRED, VARARGS, Arguments, Component, Parameter
from torchx.discovery.source.places import shown
from torchx.discovery.types.converters import BadValue, shown_value
from torchx.json_limits import Data, load_json
from torchx.printable import listed
from torchx.suggestions import did_you_mean

COMMAND_LINE = ""
"""The origin of a value from the command line; errors do not show it."""


class RawValue(NamedTuple):
    """A value before its conversion.

    Attributes:
        value: a text, the texts of a repeated flag, or data from JSON or Python.
        origin: its source, as shown in errors.
        key: its name in that source.
    """

    value: Any
    origin: str
    key: str


RawValues = dict[str, RawValue]
"""The values of parameters by name."""


def parse_arguments(
    component: Component,
    argv: Sequence[str],
    *,
    config: Data | None = None,
    section: Data | None = None,
    config_origin: str = "the JSON of --stdin",
    section_origin: str = "the configuration",
    last_wins: bool = False,
    strict: bool = True,
) -> Arguments:
    """Parses the arguments of a call.

    Precedence: the command line, ``config``, ``section``, the default.

    Args:
        component: the component to call.
        argv: the arguments after its name.
        config: arguments as JSON data, by name.
        section: arguments from a configuration file, by name; a value may be an object with ``value`` and
            ``origin``, which errors then show.
        config_origin: the name of ``config`` in errors.
        section_origin: the name of ``section`` in errors, for values without an origin of their own.
        last_wins: use the last value of a repeated flag instead of rejecting it.
        strict: reject names in ``config`` or ``section`` that are not arguments; otherwise ignore them.

    Raises:
        ArgumentError: a flag or name is unknown, or a value is missing, repeated or of the wrong type.
    """
    line = parse_command_line(component, argv, last_wins=last_wins)
    if line.wants_help:
        return Arguments(wants_help=True)
    layers = [
        _flat(component, _named(component, section, section_origin, strict)),
        _flat(component, _named(component, config, config_origin, strict)),
        _flat(component, _typed(line, last_wins)),
    ]
    given = _merged(layers)
    top = [p for p in component.parameters if p.kind != VARARGS]
    every = {p.name: p for each in top for p in _every(each)}
    values = {n: _take(component, every[n], g) for n, g in given.items() if n in every}
    missing = [name for p in top for name in _missing(p, values)]
    if missing:
        raise _missing_error(component, missing)
    rest = _varargs(component, line, given)
    found = {p.name: _assemble(component, p, values) for p in top}
    return Arguments(found, rest, line.notes, origins={g.key: g.origin for g in given.values() if g.origin})


def _typed(line: Split, last_wins: bool) -> RawValues:
    """Returns the values of a command line."""
    return {
        name: RawValue(texts[-1] if last_wins or len(texts) == 1 else texts, COMMAND_LINE, f"--{name}")
        for name, texts in line.values().items()
    }


def _merged(layers: Iterable[RawValues]) -> RawValues:
    """Merges layers, the highest precedence last.

    A whole dataclass replaces its fields, and a field replaces the whole.
    """
    given: RawValues = {}
    for layer in layers:
        for name in layer:
            for other in [o for o in given if o.startswith(name + ".") or name.startswith(o + ".")]:
                del given[other]
        given.update(layer)
    return given


def configured(component: Component, section: Data) -> RawValues:
    """Returns the arguments from a configuration file, by the names of the parameters.

    Args:
        component: the component.
        section: its section, as for :func:`parse_arguments`.
    """
    return _named(component, section, "the configuration", False)


def _named(component: Component, source: Data | None, origin: str, strict: bool) -> RawValues:
    """Maps the names of a mapping to those of the parameters."""
    known = {p.name: p for top in component.parameters for p in _every(top)}
    found: RawValues = {}
    for key, each in (source or {}).items():
        if hasattr(each, "origin"):
            value, where = (each.value, str(each.origin))
        else:
            value, where = (each, origin)
        if key in known:
            name = key
        else:
            name = key.lstrip("-").replace("-", "_")
        if name in known:
            found[name] = RawValue(value, where, key)
        elif strict:
            hint = did_you_mean(key, known, f"arguments of {component.name}: {', '.join(known)}")
            raise ArgumentError(
                f"unknown argument `{key}` for {component.name} (from {where})",
                flag=key,
                hint=hint,
                code="unknown_flag",
            )
    return found


def _every(parameter: Parameter) -> Iterator[Parameter]:
    yield parameter
    for each in parameter.fields:
        yield from _every(each)


LONGEST_SHOWN = 500
"""Characters of a value that an error repeats."""


def _flat(component: Component, layer: Mapping[str, RawValue]) -> RawValues:
    """Replaces a dataclass given as JSON by its fields; separately given fields take precedence."""
    flat: RawValues = {}
    for top in component.parameters:
        for parameter in _every(top):
            given = layer.get(parameter.name) or flat.get(parameter.name)
            if given is None:
                continue
            if parameter.fields and (fields := _fields(component, parameter, given)) is not None:
                flat.pop(parameter.name, None)
                flat.update(fields)
            else:
                flat[parameter.name] = given
    return flat


def _fields(component: Component, parameter: Parameter, given: RawValue) -> RawValues | None:
    """Returns the fields that a JSON object names, None for any other value."""
    data = given.value
    if isinstance(data, str):
        try:
            data = load_json(data)
        except ValueError as error:
            raise _bad(component, parameter, given, BadValue(f"it is not valid JSON: {error}")) from None
    if not isinstance(data, Mapping):
        return None
    known = {f.name.rpartition(".")[2]: f for f in parameter.fields}
    for key in data:
        if key not in known:
            where = ""
            if given.origin:
                where = f" (from {given.origin})"
            hint = did_you_mean(str(key), known, f"fields: {', '.join(known)}")
            raise ArgumentError(f"`{parameter.name}` has no field `{key}`{where}", flag=given.key, hint=hint)
    return {known[k].name: RawValue(v, given.origin, f"{given.key}.{k}") for k, v in data.items()}


def _assemble(component: Component, parameter: Parameter, given: Data) -> Any:
    """Returns the value of a parameter: the given one, a dataclass built from its fields, or the default."""
    if parameter.name in given:
        return given[parameter.name]
    group = group_of(parameter.converter)
    touched = [name for name in given if name.startswith(parameter.name + ".")]
    if group is None or (not touched and parameter.default is not REQUIRED):
        return parameter.default
    values = {f.name.rpartition(".")[2]: _assemble(component, f, given) for f in parameter.fields}
    try:
        return group.kind(**values)
    except Exception as error:  # a user's __post_init__ may raise anything
        raise ArgumentError(
            f"`{parameter.name}` was rejected: {error}{_place(component, parameter)}"
        ) from error


def _take(component: Component, parameter: Parameter, given: RawValue) -> Any:
    if given.value is None and parameter.default is None:  # `n: int = None` implies that None is accepted
        return None
    try:
        if given.origin == COMMAND_LINE:
            if isinstance(given.value, list):
                texts = given.value
            else:
                texts = [given.value]
            return parameter.converter.read_all(texts)
        return parameter.converter.accept(given.value)
    except BadValue as error:
        raise _bad(component, parameter, given, error) from error


def _varargs(component: Component, line: Split, given: Mapping[str, RawValue]) -> list[Any]:
    parameter = component.varargs
    if parameter is None:
        return []
    if not line.rest and parameter.name in given:
        found = given[parameter.name]
        if isinstance(found.value, str):
            each = found.value.split()
        else:
            each = found.value
        if not isinstance(each, list | tuple):
            raise ArgumentError(f"`{found.key}` takes a list (from {found.origin})", flag=found.key)
        return [_take(component, parameter, RawValue(word, found.origin, found.key)) for word in each]
    return [
        _take(component, parameter, RawValue(word, COMMAND_LINE, f"*{parameter.name}")) for word in line.rest
    ]


def _missing(parameter: Parameter, given: Data) -> Iterator[str]:
    if parameter.name in given:
        return
    if not parameter.fields:
        if parameter.required:
            yield parameter.flags[0]
        return
    touched = any(name.startswith(parameter.name + ".") for name in given)
    if touched or parameter.default is REQUIRED:
        for each in parameter.fields:
            yield from _missing(each, given)


def _missing_error(component: Component, missing: Sequence[str]) -> ArgumentError:
    hint = f"its arguments: torchx run {component.name} --help"
    return ArgumentError(
        f"{component.name} needs {listed(missing, 'and')}",
        flag=missing[0],
        hint=hint,
        code="missing_argument",
    )


def _bad(component: Component, parameter: Parameter, given: RawValue, error: BadValue) -> ArgumentError:
    origin = ""
    if given.origin:
        origin = f" (from {given.origin})"
    got = shown_value(given.value)
    if len(got) > LONGEST_SHOWN:
        got = f"{got[:LONGEST_SHOWN]}..."
    detail = f": {error.detail}" if error.detail else ""
    expected = parameter.converter.takes
    text = f"{given.key}{origin} takes {expected}, got {got}{detail}{_place(component, parameter)}"
    hint = None
    group = group_of(parameter.converter)
    if group is not None and group.fields and given.key.startswith("-"):
        hint = f"or a flag for each field: {given.key}.{group.fields[0].name} VALUE"
    if error.near:
        hint = f"did you mean `{error.near}`?"
    return ArgumentError(text, flag=same(given.key), hint=hint)


def _place(component: Component, parameter: Parameter) -> str:
    """Tells where a parameter is declared; of a built-in component its name says enough."""
    where = ""
    if component.is_builtin:
        where = component.name
    if not where and component.path and parameter.line:
        where = f"{shown(component.path)}:{parameter.line}"
    return f"  ({', '.join(part for part in (where, parameter.source) if part)})"
