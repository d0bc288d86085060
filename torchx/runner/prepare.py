"""Prepares an application for a scheduler: copies and checks it, sets its order of starts and environment."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.scheduling.base import AnyScheduler, BuildsImages
from torchx.settings import AFTER
from torchx.specs.app import AppDef, RetryPolicy, Role, resolve_overrides
from torchx.specs.checks import check
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx.services import rules
    from torchx.tracker import configured

if TYPE_CHECKING:
    from torchx.config import Config


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


_COMMAND = (
    r"(?s)python3?\0(?P<script>[^-/\0${][^\0${]*).*|"
    r"bash\0-c\0[^\0]*\btorchrun (?:(?! -m ).)*? (?P<of_torchrun>[\w.-][\w./-]*\.py)\b.*"
)
"""The program and arguments of `utils.python` and `dist.torchrun`, separated by zero bytes."""


def require_scripts(app: AppDef, engine: AnyScheduler) -> None:
    """Rejects an application whose script is missing in its workspace, or on this machine if it runs here.

    Raises:
        UsageError: a script does not exist.
    """
    for role, script, folders, found in _scripts(app, engine):
        if folders and not found:
            folder = Path(folders[0]).absolute()
            raise UsageError(
                f"the script `{script}` of role `{role.name}` does not exist in {folder}",
                hint=did_you_mean(
                    script, [path.name for path in folder.glob("*.py")], "a path is relative to this folder"
                ),
                code="missing_script",
            )


def changed_since(app: AppDef, engine: AnyScheduler, then: float) -> str:
    """Returns the script of an application that was changed after a time; empty without one."""
    found = ((script, path) for _, script, _, paths in _scripts(app, engine) for path in paths)
    return next((script for script, path in found if path.stat().st_mtime > then), "")


def _scripts(app: AppDef, engine: AnyScheduler) -> Iterator[tuple[Role, str, list[str], list[Path]]]:
    """Yields the roles that run a script, the script, the folders that may have it, and its paths there."""
    for role in app.roles:
        match = re.fullmatch(_COMMAND, "\0".join([role.entrypoint, *role.args]))
        if match is not None and not role.metadata.get(AFTER):  # an earlier role may write the script
            script, folders = match[match.lastgroup or 0], _folders(role, engine)
            yield (
                role,
                script,
                folders,
                [path for folder in folders if (path := Path(folder, script)).exists()],
            )


def _folders(role: Role, engine: AnyScheduler) -> list[str]:
    """Returns the folders of this machine that have the files of a role; empty if others may have them."""
    sent = {}
    if role.workspace is not None:
        sent = role.workspace.projects
    if not sent:
        if engine.workspaces_on_request:
            return [".", role.image]
        return []
    whole = [source for source, target in sent.items() if not target and Path(source).is_dir()]
    if len(sent) == 1 and not isinstance(engine, BuildsImages):
        return whole
    return []
