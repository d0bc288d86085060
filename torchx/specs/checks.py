"""Checks of applications that hold for every engine: fields, sizes, texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType

from torchx.errors import UsageError
from torchx.json_limits import MOST_REPLICAS
from torchx.settings import AFTER, SERVICE
from torchx.specs.app import MISSING, AppDef, RetryPolicy, Role

LONGEST_TEXT = 131_071
"""Maximum bytes of one argument or variable: the kernel's limit is 128 KiB with a final zero byte."""
LONGEST_ALL = 1_500_000
"""Maximum bytes of all arguments and variables of a replica; the usual limit of the kernel is 2 MiB."""

RESOURCES = ("cpu", "gpu", "memMB")
NOTHING = -1
"""The number of a resource that is not requested."""


def check_kinds(app: object) -> None:
    """Rejects objects that are not applications, for callers without a type checker.

    Raises:
        UsageError: it is not an ``AppDef``, or its roles are not ``Role`` objects.
    """
    if not isinstance(app, AppDef):
        hint = None
        if isinstance(app, str):
            hint = "run a component by its name with run_component"
        raise UsageError(f"an application is an AppDef, got {app!r}", hint=hint)
    if not isinstance(app.roles, (list, tuple)):
        raise UsageError(
            f"application `{app.name}` has one {type(app.roles).__name__}, expected a list of roles"
        )
    roles: list[object] = [*app.roles]
    for role in roles:
        if not isinstance(role, Role):
            raise UsageError(f"application `{app.name}` is made of roles, got {role!r}")


def check(app: AppDef) -> None:
    """Rejects an application that is invalid for every scheduler.

    Raises:
        UsageError: it has no roles or too many replicas, or a role without entrypoint or replicas, with
            fields of wrong types, or with arguments that are not text.
    """
    for role in app.roles:
        where = f"role `{role.name}` of application `{app.name}`"
        if not role.entrypoint or role.entrypoint == MISSING:
            raise UsageError(f"{where} has no entrypoint")
        _check_types(role, where)
        _check_name(role.name, app.name)
        _check_counts(role, where)
        _check_texts(role, where)
    require_roles(app)
    names = Counter(role.name for role in app.roles)
    for name, count in names.items():
        if count > 1:
            raise UsageError(f"application `{app.name}` has two roles of the name `{name}`")


def notes(app: AppDef) -> Iterator[str]:
    """Yields notes about values that are valid, but probably not intended."""
    used = re.sub(r"[^A-Za-z0-9_.-]+", "-", app.name or "").strip("-.")
    if used != (app.name or ""):
        contains = "does not contain the name"
        if used:
            contains = f"has `{used}` for the name"
        yield f"the id {contains} `{app.name}`: it has only a-z, 0-9, -, _ and ."
    for role in app.roles:
        nothing = [f"{name}={NOTHING}" for name in RESOURCES if getattr(role.resource, name, 0) == NOTHING]
        if 0 < len(nothing) < len(RESOURCES):  # all of them: no resource
            yield f"role `{role.name}` has {', '.join(nothing)}, which requests nothing"


def require_roles(app: AppDef) -> None:
    """Checks that an application has roles, and that nothing in it exceeds a limit of all engines.

    Raises:
        UsageError: it has no roles, too many replicas or retries, or too long arguments or variables.
    """
    if not app.roles:
        raise UsageError(f"application `{app.name}` has no roles, so there is nothing to run")
    replicas = sum(role.num_replicas for role in app.roles)
    retries = max(role.max_retries for role in app.roles)
    for count, counted in ((replicas, "replicas"), (retries, "retries of a role")):
        if count > MOST_REPLICAS:
            limit = f"the maximum is {MOST_REPLICAS:,}"
            raise UsageError(f"application `{app.name}` has {count:,} {counted}; {limit}")
    for role in app.roles:
        require_passable(role.name, role.args, role.env)


def require_passable(role: str, args: Iterable[object], env: Mapping[str, object]) -> None:
    """Checks that the kernel can start a program with these arguments and variables.

    Raises:
        UsageError: one of them, or all together, are too long.
    """
    sizes = [("an argument", _size(str(text)), LONGEST_TEXT) for text in args]
    sizes += [
        (f"a variable {name:.60}", _size(f"{name}={value}"), LONGEST_TEXT) for name, value in env.items()
    ]
    sizes.append(("arguments and variables", sum(size for _, size, _ in sizes), LONGEST_ALL))
    for what, size, most in sizes:
        if size > most:
            raise UsageError(
                f"role `{role}` has {what} of {size:,} bytes; a program can get {most:,}",
                hint="put long values into a file",
            )


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


_TYPES: tuple[tuple[str, tuple[type, ...], str], ...] = (
    ("name", (str,), "a string"),
    ("entrypoint", (str,), "a string"),
    ("args", (list, tuple), "a list of strings"),
    ("env", (dict,), "a dict of strings"),
    ("num_replicas", (int,), "a whole number"),
    ("min_replicas", (int, NoneType), "a whole number or None"),
    ("max_retries", (int,), "a whole number"),
    ("retry_policy", (RetryPolicy,), "REPLICA, ROLE or APPLICATION"),
)


def _check_types(role: Role, where: str) -> None:
    for field, types, expected in _TYPES:
        value = getattr(role, field)
        if not isinstance(value, types):
            hint = None
            if field == "args" and isinstance(value, str):
                hint = f"e.g. [{value!r}]"
            raise UsageError(f"{where} has {field}={value!r}, expected {expected}", hint=hint)


def _check_name(name: str, app: str) -> None:
    if not name:
        raise UsageError(f"application `{app}` has a role without a name")
    if not name.isprintable() and re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", name):
        raise UsageError(f"application `{app}` has a role named {name!r}, with control characters")


def _check_counts(role: Role, where: str) -> None:
    if role.num_replicas <= 0:
        raise UsageError(f"{where} needs at least one replica, got num_replicas={role.num_replicas}")
    if role.min_replicas is not None and not 0 < role.min_replicas <= role.num_replicas:
        raise UsageError(
            f"{where} has min_replicas={role.min_replicas}; expected a number between 1 and "
            f"num_replicas={role.num_replicas}"
        )
    if role.max_retries < 0:
        raise UsageError(f"{where} has max_retries={role.max_retries}; expected 0 or more")
    for name in RESOURCES:
        number = getattr(role.resource, name, 0)
        if number < 0 and number != NOTHING:
            raise UsageError(f"{where} has {name}={number}; expected 0 or more, or {NOTHING} for no request")


def _check_texts(role: Role, where: str) -> None:
    texts: list[object] = [role.entrypoint, *role.args, *role.env, *role.env.values()]
    for text in texts:
        has = f"{where} has {text!r} among its arguments or its environment"
        if not isinstance(text, str):
            raise UsageError(f"{has}, expected a string", hint=f"write str({text!r})")
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:  # a lone surrogate, possible in JSON
            raise UsageError(f"{has}, which contains a lone surrogate") from None


def has_services(app: AppDef) -> bool:
    """Returns True if an application has services, or roles that start after others."""
    return any(SERVICE in role.metadata or role.metadata.get(AFTER) for role in app.roles)


_HOSTS = r"(?<!\$)(?:\$\$)*\$\{hosts\.([^{}]+)\}"


def hosts_in(app: AppDef) -> list[str]:
    """Returns the roles whose hosts are requested by macros, in arguments and environment values.

    >>> from torchx.specs import AppDef, Role
    >>> hosts_in(AppDef("a", [Role("r", "", args=["${hosts.server}:80", "$${hosts.x}", "${x}"])]))
    ['server']
    """
    texts = (text for role in app.roles for text in (*role.args, *role.env.values()))
    return [
        name
        for text in texts
        if isinstance(text, str) and "{hosts." in text
        for name in re.findall(_HOSTS, text)
    ]
