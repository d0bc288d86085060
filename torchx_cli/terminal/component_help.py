"""Help page of a component: description, flags, types, defaults and an example."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torchx.discovery.call.arguments import RawValue
from torchx.discovery.call.command_line import is_switch
from torchx.discovery.model import REQUIRED, VARARGS, Component, Parameter
from torchx.discovery.types.converters import ChoiceConverter
from torchx.masking import mask
from torchx.printable import one_line, printable
from torchx_cli.terminal.output import colour as painted
from torchx_cli.terminal.output import columns, filled, padded

_GAP = "  "
_BOLD, _YELLOW, _DIM = "1", "33", "2"
_LONGEST_DEFAULT = 26
_WIDEST_FLAGS = 34
_NARROW = 72


class _Row(NamedTuple):
    """One flag with its description and default."""

    flags: str
    text: str
    default: str
    required: bool = False


def render(
    component: Component, width: int, colour: bool = False, configured: Mapping[str, RawValue] | None = None
) -> str:
    """Returns the help page of a component, to be printed with ``say``.

    Args:
        component: the component.
        width: the maximum line width in columns.
        colour: whether to colour flags and required values.
        configured: the defaults that configuration files set, by parameter.
    """
    width = max(width, 20)
    about = printable(component.description or f"{component.name}: no description")
    parts = ["\n".join(_paragraphs(about, width))]
    given = configured or {}
    rows = [_printable_row(_row(p, given.get(p.name))) for p in component.leaves]
    if rows:
        parts.append("\n".join(_table(rows, width, colour)))
    if component.varargs and len(rows) > 1:
        rest = one_line(component.varargs.name).upper()
        parts.append(
            "\n".join(filled(f"Flags go before {rest}: the first of these, or --, ends them.", width))
        )
    parts.append("\n".join(_example(component, width)))
    return "\n\n".join(parts) + "\n"


def as_data(component: Component, configured: Mapping[str, RawValue]) -> dict[str, Any]:
    """Returns the help page of a component as plain data.

    Args:
        component: the component.
        configured: the defaults that configuration files set, by parameter.
    """
    return {
        "name": component.name,
        "description": component.description,
        "arguments": [_argument(leaf, configured.get(leaf.name)) for leaf in component.leaves],
    }


def _argument(parameter: Parameter, given: RawValue | None) -> dict[str, Any]:
    if given is None:
        default = _written(parameter)
    else:
        default = str(given.value)
    return {
        "name": parameter.name if parameter.flags else f"*{parameter.name}",
        "type": parameter.type_name,
        "required": parameter.required and given is None,
        "default": mask({parameter.name: default})[parameter.name],
        "help": parameter.help,
    }


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Fills each paragraph; indented blocks (examples, code) keep their lines."""
    for number, block in enumerate(re.split(r"\n\s*\n", text.strip("\n"))):
        if number:
            yield ""
        lines = block.split("\n")
        if any(line.startswith((" ", "\t", ">>>", "-", "*")) for line in lines):
            for line in lines:
                indent = line[: len(line) - len(line.lstrip())]
                yield from filled(line, width, "", indent) or [""]
        else:
            yield from filled(" ".join(lines), width)


def _printable_row(row: _Row) -> _Row:
    """Returns a row without control characters, which docstrings and defaults may contain."""
    return row._replace(flags=one_line(row.flags), text=printable(row.text), default=one_line(row.default))


def _row(parameter: Parameter, given: RawValue | None) -> _Row:
    if parameter.kind == VARARGS:
        text = parameter.help or "arguments passed on unchanged"
        return _Row(f"{parameter.name.upper()}…", text, "")
    spellings = sorted(parameter.flags, key=len)
    text = parameter.help
    if is_switch(parameter):
        flags = ", ".join([*spellings, "--no-" + parameter.flags[0][2:]])
        flags = flags.replace(", --no-", " / --no-")
    elif isinstance(parameter.converter, ChoiceConverter) or len(parameter.type_name) > 16:
        flags = ", ".join(spellings)
        if text:
            text = f"{text}: {parameter.type_name}"
        else:
            text = parameter.type_name
    else:
        flags = f"{', '.join(spellings)} {parameter.type_name}"
    argument = _argument(parameter, given)
    default = _default(parameter, argument, given)
    if len(default) > _LONGEST_DEFAULT:  # too wide for its column
        text, default = f"{text} ({default})" if text else default, ""
    return _Row(flags, text, default, argument["required"])


def _default(parameter: Parameter, argument: Mapping[str, Any], given: RawValue | None) -> str:
    value = argument["default"]
    if given is not None:
        return f"default {value}, from {given.origin}"
    if parameter.required:
        return "required"
    if value is None:
        return ""
    if is_switch(parameter):
        if parameter.default:
            return "default yes"
        return "default no"
    if value:
        return f"default {value}".replace("\n", "\\n")
    return 'default ""'


def _written(parameter: Parameter) -> str | None:
    """Returns a default as on a command line; None without one."""
    value: Any = parameter.default
    if value is None or value is REQUIRED:
        return None
    try:
        return parameter.converter.write(value)
    except (TypeError, ValueError, AttributeError):  # a default of the wrong type
        return str(value)


def _table(rows: list[_Row], width: int, colour: bool) -> Iterator[str]:
    """Formats flags, text and default in columns; on a narrow page the text is below the flag."""
    last = max(len(r.default) for r in rows)
    first = max((len(r.flags) for r in rows if len(r.flags) <= _WIDEST_FLAGS), default=_WIDEST_FLAGS)
    room = width - len(_GAP) * 3 - first - last
    if width < _NARROW or room < 16:
        for row in rows:
            yield from _stacked(row, width, colour)
        return
    used = min(room, max(1, *(columns(r.text) for r in rows)))
    for row in rows:
        lines = filled(row.text, used) or [""]
        if len(row.flags) > first:  # too long for its column: the rest starts on the next line
            yield from _wrapped_flags(row.flags, width, colour)
            head = " " * (len(_GAP) + first)
        else:
            head = _GAP + _paint(row.flags, _BOLD, colour) + " " * (first - len(row.flags))
        tail = ""
        if row.default:
            tail = _GAP + _paint(row.default, _YELLOW if row.required else _DIM, colour)
        yield (head + _GAP + padded(lines[0], used) + tail).rstrip()
        for line in lines[1:]:
            yield " " * (len(_GAP) * 2 + first) + line


def _stacked(row: _Row, width: int, colour: bool) -> Iterator[str]:
    yield from _wrapped_flags(row.flags, width, colour)
    if row.text and row.default:
        text = f"{row.text} ({row.default})"
    else:
        text = row.text or row.default
    indent = _GAP * 3
    yield from filled(text, width, indent, indent)


def _wrapped_flags(flags: str, width: int, colour: bool) -> Iterator[str]:
    for line in filled(flags, width - len(_GAP)):
        yield _GAP + _paint(line, _BOLD, colour)


def _paint(text: str, code: str, colour: bool) -> str:
    if colour and text:
        return painted(text, code)
    return text


def _example(component: Component, width: int) -> Iterator[str]:
    """Yields an example command line with sample values for the required flags."""
    args = ["torchx", "run", "-s", "local_cwd", component.name]
    groups = [" ".join(map(shlex.quote, args))]
    for parameter in component.leaves:
        if parameter.required or (parameter.name == "script" and component.is_builtin):
            groups.append(f"{parameter.flags[0]} {shlex.quote(_sample(parameter))}")
    if component.varargs:
        groups.append("-- " + shlex.quote(_sample(component.varargs)))
    lines = [groups[0]]
    for group in groups[1:]:
        if len(lines[-1]) + 1 + len(group) + 2 > width:
            lines[-1] += " \\"
            lines.append("  " + group)
        else:
            lines[-1] += " " + group
    yield from lines


def _sample(parameter: Parameter) -> str:
    if parameter.kind == VARARGS:
        if parameter.converter.label == "TEXT":
            return "ARGS"
        return parameter.converter.sample
    last = parameter.name.rpartition(".")[2]
    if parameter.converter.label in ("TEXT", "ANY"):
        return last.upper()
    return parameter.converter.sample
