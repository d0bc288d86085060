"""Prepares an application for a scheduler: copies and checks it, sets its order of starts and environment."""

from __future__ import annotations

import copy
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.scheduling.checks import require_roles
from torchx.specs.app import MISSING, AppDef, RetryPolicy, Role, resolve_overrides

with lazy_imports:
    from torchx.services import rules
    from torchx.tracker import configured

if TYPE_CHECKING:
    from torchx.config import Config


RESOURCES = ("cpu", "gpu", "memMB")
NOTHING = -1
"""The number of a resource that is not requested."""


def prepare(
    app: AppDef, scheduler: str, session: str, parent_run_id: str | None, load_config: Callable[[], Config]
) -> AppDef:
    """Returns a checked copy of an application, with its order of starts and the environment of all replicas.

    Args:
        app: the application; not changed.
        scheduler: the name of its scheduler.
        session: the session part of its handle.
        parent_run_id: the parent run.
        load_config: returns the configuration, which may name trackers.

    Raises:
        UsageError: it is invalid for every scheduler.
    """
    ready = AppDef(app.name, [resolve_overrides(role) for role in app.roles], copy.deepcopy(app.metadata))
    for role in ready.roles:
        if isinstance(role.retry_policy, str):  # accepts the name of a policy
            role.retry_policy = RetryPolicy.__members__.get(role.retry_policy, role.retry_policy)
    check(ready)
    if any(settings.SERVICE in role.metadata for role in ready.roles):
        rules.set_default_order(ready)
    env = run_env(scheduler, session, parent_run_id, load_config)
    for role in ready.roles:
        role.env.update(env)
    return ready


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
    if re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", name):
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


def run_env(
    scheduler: str, session: str, parent_run_id: str | None, load_config: Callable[[], Config]
) -> dict[str, str]:
    """Returns the environment variables of every replica of a run."""
    env = {
        settings.TORCHX_JOB_ID: f"{scheduler}://{session}/${{app_id}}",
        settings.TORCHX_INTERNAL_SESSION_ID: session_id(),
    }
    if parent_run_id:
        env[settings.TORCHX_PARENT_RUN_ID] = parent_run_id
    return env | _tracker_env(*configured_trackers(load_config()))


def _tracker_env(configs: Mapping[str, str | None], factories: Mapping[str, str]) -> dict[str, str]:
    if not configs:
        return {}
    env = {configured.tracker_config_env_var_name(name): config for name, config in configs.items() if config}
    env |= {configured.tracker_factory_env_var_name(name): made_by for name, made_by in factories.items()}
    return {settings.TORCHX_TRACKERS: ",".join(configs), **env}


@cache
def session_id() -> str:
    """Returns the id shared by all runs of this process; in a replica, that of its launcher."""
    return os.environ.get(settings.TORCHX_INTERNAL_SESSION_ID) or _random_uuid()


def _random_uuid() -> str:
    """Returns a random UUID (version 4); the module `uuid` takes longer to load than all of this one."""
    data = bytearray(os.urandom(16))
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    text = data.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def configured_trackers(config: Config) -> tuple[dict[str, str | None], dict[str, str]]:
    """Returns the configurations of trackers, and the factories of those without a plugin, by name.

    `$TORCHX_TRACKERS` takes precedence over `[torchx:tracker]`, whose values may be factories
    (`module:function`); `$TORCHX_TRACKER_<NAME>_CONFIG` over `config` in `[tracker:<name>]`.
    """
    section = config.section("torchx:tracker")
    named = os.environ.get(settings.TORCHX_TRACKERS)
    names = list(section)
    if named is not None:
        names = [name for name in re.split(r"\s*,\s*", named.strip()) if name]
    if not names:
        return {}, {}
    found: dict[str, str | None] = {}
    for name in names:
        setting = config.get(f"tracker:{name}", "config")
        found[name] = os.environ.get(configured.tracker_config_env_var_name(name)) or (
            setting.value if setting else None
        )
    factories = {n: section[n].value for n in names if n in section and ":" in section[n].value}
    return found, factories
