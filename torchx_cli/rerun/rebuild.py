"""Rebuild a recorded application with other arguments of its component."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from torchx.command_line import ArgumentError, Hit, looks_like_flag, same
from torchx.discovery.call.command_line import flag_table
from torchx.discovery.find import finder
from torchx.errors import StateError, UsageError
from torchx.specs.app import AppDef, Role, resolve_overrides
from torchx_cli.recorded import spelled
from torchx_cli.run_request import RunRequest, make_app, split_component
from torchx_cli.terminal.masking import mask_text
from torchx_cli.terminal.output import note_all

if TYPE_CHECKING:
    from torchx.config import Config
    from torchx.discovery.model import Component
    from torchx.json_limits import Data, Object
    from torchx_cli.recorded import RecordedCommand

BY_KEY = ("env", "metadata", "port_map")
"""Fields of a role that are merged key by key."""

_ABSENT = object()


class Rebuilt:
    """An application whose component is called twice: as recorded, and with other arguments.

    Parts that do not depend on the changed arguments stay as recorded: variables of `--env`, edits by
    `run --stdin`, and everything of a component that has changed since.

    Args:
        command: the recorded command line.
        config: the configuration, which has default arguments of the component.
        handle: the application, for messages.

    Attributes:
        name: the component.
        argv: its recorded arguments.
        before: the application without changes.

    Raises:
        StateError: the component cannot be built with the recorded arguments any more.
    """

    def __init__(self, command: RecordedCommand, config: Config, handle: str) -> None:
        self._command, self._config = command, config
        self.name, self.argv = command.located_component, command.argv
        if not self.name:
            self.name, self.argv = split_component(self.argv, config, {})
        try:
            self.before = self._build(self.argv)
        except UsageError as error:
            raise StateError(
                f"the component no longer accepts the recorded arguments of {handle}: {error.message}",
                code="not_repeatable",
                hint=f"recorded: {mask_text(shlex.join([self.name, *self.argv]))}",
            ) from error

    def _build(self, argv: Sequence[str]) -> AppDef:
        app = make_app(RunRequest(component=self.name, argv=list(argv)), self._config)
        if app is None:
            raise UsageError("--help cannot be set")
        return AppDef(app.name, [resolve_overrides(role) for role in app.roles], app.metadata)

    def with_changes(
        self, recorded: AppDef, texts: Sequence[str], program: Sequence[str]
    ) -> tuple[AppDef, RecordedCommand]:
        """Returns the recorded application with other arguments, and its command line.

        Args:
            recorded: the application as recorded; not changed.
            texts: the changes as `NAME=VALUE`: parameters of a sweep, else flags of the component or its
                program.
            program: new positional arguments; empty to keep the recorded ones.

        Raises:
            UsageError: a flag is unknown, or a value is missing or of the wrong type.
        """
        with redirect_stdout(sys.stderr):
            component = finder.find_component(self.name)
        argv, others = self._command._replace(argv=self.argv).with_parameters(texts)
        argv = changed_arguments(component, argv, others, program)
        app = merged(recorded, self.before, self._build(argv))
        return app, self._command._replace(component=self.name, argv=argv)


def changed_arguments(
    component: Component, argv: Sequence[str], texts: Sequence[str], program: Sequence[str]
) -> list[str]:
    """Returns the arguments of a component with some of them changed.

    Args:
        component: the component.
        argv: its arguments.
        texts: the changes as `FLAG=VALUE`: flags of the component, else of its program.
        program: new positional arguments; empty to keep the recorded ones.

    Raises:
        UsageError: a flag is unknown, or the program has it more than once.
    """
    table = flag_table(
        component, extra="its program has no such argument to change; to give it others: -- ARGUMENTS"
    )
    split = table.split(argv)
    separated = list(argv[-len(split.rest) - 1 : -len(split.rest)]) == ["--"]
    rest = list(program) or split.rest
    given: list[Hit] = []
    for text in texts:
        name, equals, after = text.lstrip("-").partition("=")
        value = after if equals else None
        if len(name) == 1 and f"-{name}" in table.exact:
            flag = f"-{name}"
        else:
            flag = f"--{name}"
        if same(flag) not in table.exact and _count(rest, flag):
            rest = _with_value(rest, flag, value)
            continue
        notes: list[str] = []
        hit = table.find(flag, notes)
        note_all(notes)
        given.append(_with(hit, name, value))
    changed = {hit.flag.name for hit in given}
    flags = [hit for hit in split.hits if hit.flag.name not in changed]
    line = [part for hit in (*flags, *given) for part in spelled(hit)]
    if rest and any((separated, program, looks_like_flag(rest[0]))):
        line.append("--")
    return line + rest


def _with(hit: Hit, name: str, value: str | None) -> Hit:
    """Returns a flag with a value; a switch needs none."""
    if value is None and not hit.flag.is_bool:
        raise ArgumentError(
            f"--set {name} needs a value",
            flag="--set",
            hint=f"e.g. --set {name}=VALUE",
            code="missing_value",
        )
    return hit._replace(value="true" if value is None else value)


def _count(arguments: Sequence[str], flag: str) -> int:
    return sum(same(arg.partition("=")[0]) == same(flag) for arg in arguments)


def _with_value(arguments: Sequence[str], flag: str, value: str | None) -> list[str]:
    """Returns the arguments of a program with the value of one flag replaced.

    >>> _with_value(["train.py", "--lr", "0.1", "--epochs=3"], "--lr", "0.2")
    ['train.py', '--lr', '0.2', '--epochs=3']
    >>> _with_value(["train.py", "--lr", "0.1", "--epochs=3"], "--epochs", "5")
    ['train.py', '--lr', '0.1', '--epochs=5']
    """
    if value is None:
        hint = f"the program already has {flag}; to leave it out, give all its arguments: -- ARGUMENTS"
        text = f"--set {flag.lstrip('-')} needs a value"
        raise ArgumentError(text, flag="--set", hint=hint, code="missing_value")
    if _count(arguments, flag) > 1:
        raise ArgumentError(
            f"the program has {flag} more than once",
            flag="--set",
            hint="give all of its arguments: torchx rerun ... -- ARGUMENTS",
        )
    at = next(n for n, arg in enumerate(arguments) if same(arg.partition("=")[0]) == same(flag))
    changed = list(arguments)
    follows = at + 1 < len(changed) and not looks_like_flag(changed[at + 1])
    if "=" in changed[at] or not follows:
        changed[at] = f"{changed[at].partition('=')[0]}={value}"
    else:
        changed[at + 1] = value
    return changed


def merged(recorded: AppDef, before: AppDef, after: AppDef) -> AppDef:
    """Returns a recorded application with the differences between two others.

    Args:
        recorded: the application as recorded.
        before: as its component builds it from the recorded arguments.
        after: as its component builds it from other arguments.
    """
    olds, bases = ({role.name: role for role in app.roles} for app in (recorded, before))
    common = _common_variables(olds, bases)
    roles = []
    for role in after.roles:
        if role.name in olds and role.name in bases:
            roles.append(_merged_role(olds[role.name], bases[role.name], role))
        else:
            role.env = {**role.env, **common}
            roles.append(role)
    if after.name == before.name:
        name = recorded.name
    else:
        name = after.name
    return AppDef(name, roles, _merged_keys(recorded.metadata, before.metadata, after.metadata))


def _common_variables(olds: Mapping[str, Role], bases: Mapping[str, Role]) -> dict[str, str]:
    """Returns the variables that all recorded roles have in addition to those of the component."""
    added = [
        {(key, value) for key, value in old.env.items() if key not in bases[name].env}
        for name, old in olds.items()
        if name in bases
    ]
    if added:
        return dict(set.intersection(*added))
    return {}


def _merged_role(recorded: Role, before: Role, after: Role) -> Role:
    for field in fields(Role):
        old, base, new = (getattr(role, field.name) for role in (recorded, before, after))
        if field.name in BY_KEY:
            value: Any = _merged_keys(old, base, new)
        elif field.name == "args":
            value = _merged_items(old, base, new)
        else:
            value = old if base == new else new
        setattr(after, field.name, value)
    return after


def _merged_keys(old: Data, base: Data, new: Data) -> Object:
    changed = {key for key in (*base, *new) if base.get(key, _ABSENT) != new.get(key, _ABSENT)}
    kept = {key: value for key, value in old.items() if key not in changed or key in new}
    return {**kept, **{key: new[key] for key in new if key in changed}}


def _merged_items(old: list[str], base: list[str], new: list[str]) -> list[str]:
    """Returns arguments; of equal numbers, the recorded ones at the places that do not change."""
    if base == new:
        return old
    if not len(old) == len(base) == len(new):
        return new
    return [before if was == now else now for before, was, now in zip(old, base, new, strict=True)]
