"""Restores a submitted application from its record and its pod templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from torchx.errors import UsageError
from torchx.json_shape import items_at, typed_at
from torchx.lazy import lazy_imports
from torchx.masking import MASK
from torchx.schedulers.kubernetes.api.objects import Object, count_of, label, text_at
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.manifests import attempt_number as attempts
from torchx.schedulers.kubernetes.manifests.escaping import MacroFiller, restored
from torchx.schedulers.kubernetes.manifests.hosts import hosts_in_env
from torchx.schedulers.kubernetes.manifests.pod import FIELD_PATH
from torchx.schedulers.kubernetes.manifests.workspace import CONTAINER as UNPACKER
from torchx.schedulers.kubernetes.manifests.workspace import FOLDER
from torchx.schedulers.kubernetes.names import CONTAINER, ROLE_INDEX, ROLE_NAME, split_run
from torchx.schedulers.kubernetes.record import HIDDEN
from torchx.schedulers.kubernetes.sweeps import launcher
from torchx.scheduling.preflight import without_checks

with lazy_imports:
    from torchx.specs import serialize

if TYPE_CHECKING:
    from torchx.json_limits import Data
    from torchx.specs.app import AppDef


def app_of(facts: Facts) -> AppDef:
    """Returns an application as submitted; without a readable record, as far as its jobs describe it."""
    record = facts.record
    if record:
        try:
            return serialize.app_from_dict(_whole(facts, record["app"]))
        except UsageError:
            pass  # a record with values that are invalid for an application
    jobs = facts.jobs or facts.mains
    return serialize.app_from_dict({"name": facts.name, "roles": [_role(job) for job in jobs]})


def _whole(facts: Facts, app: Data) -> Object:
    """Returns the record of an application with the arguments and environment of its manifests."""
    templates = dict(_templates(facts))
    roles = [
        _filled(facts, role, templates.get(number, {}), app["roles"])
        for number, role in enumerate(app["roles"])
    ]
    return {**app, "roles": roles}


def _templates(facts: Facts) -> Iterator[tuple[int, Data]]:
    """Yields the number and the pod template of each role; with several templates, that of replica 0."""
    for main in reversed(facts.mains):
        if facts.kind == "job":
            yield _number(label(main, ROLE_INDEX)), typed_at(main, dict, "spec", "template")
            continue
        for number, replicated in enumerate(items_at(main, dict, "spec", "replicatedJobs")):
            yield number, typed_at(replicated, dict, "template", "spec", "template")
        for task in reversed(items_at(main, dict, "spec", "tasks")):
            template = typed_at(task, dict, "template")
            yield _number(str(typed_at(template, dict, "metadata", "labels").get(ROLE_INDEX, ""))), template


def _filled(facts: Facts, role: Data, template: Data, roles: Sequence[Data]) -> Object:
    hidden = role.get(HIDDEN)
    if hidden is None:
        return dict(role)  # written by version 0.1.0: complete
    result = {key: value for key, value in role.items() if key != HIDDEN}
    unpacked = any(
        each.get("name") == UNPACKER for each in items_at(template, dict, "spec", "initContainers")
    )
    # Volcano has a template for each replica, with its id inserted
    main = _main(template)
    hosts = hosts_in_env(roles, items_at(main, dict, "env"))
    replica = None
    if facts.kind == "volcano" or facts.has_runs:
        replica = 0
    if facts.has_runs:
        base = split_run(facts.app_id)[0]
    else:
        base = facts.app_id
    filler = MacroFiller(base, replica, FOLDER if unpacked else "", hosts, run=facts.has_runs)
    marks = hidden.get("args") or {}
    result["args"] = [
        restored(str(arg), marks.get(str(number), []), filler)
        for number, arg in enumerate(_command(main)[1:])
    ]
    given = {entry.get("name"): entry for entry in items_at(main, dict, "env")}
    result["env"] = {
        name: _variable(given[name], marks, filler)
        for name, marks in (hidden.get("env") or {}).items()
        if name in given
    }
    return result


def _variable(entry: Data, marks: list[list[int | str]], filler: MacroFiller) -> str:
    if typed_at(entry, dict, "valueFrom", "secretKeyRef"):
        return MASK
    path = typed_at(entry, dict, "valueFrom", "fieldRef").get("fieldPath")
    if path:
        return f"{FIELD_PATH}{path}"
    return restored(text_at(entry, "value"), marks, filler)


def _role(job: Object) -> Object:
    main = _main(typed_at(job, dict, "spec", "template"))
    command = _command(main)
    return {
        "name": label(job, ROLE_NAME) or job["metadata"]["name"],
        "image": text_at(main, "image"),
        "entrypoint": command[0] if command else "",
        "args": command[1:],
        "num_replicas": typed_at(job, dict, "spec").get("completions") or 1,
    }


def _command(main: Data) -> list[str]:
    """Returns the command of a role, without the additions of the scheduler."""
    own = [
        *typed_at(main, list, "command")[:1],
        *attempts.own_arguments(launcher.own_arguments(typed_at(main, list, "args"))),
    ]
    return without_checks([str(each) for each in own])


def _main(template: Data) -> Data:
    containers = items_at(template, dict, "spec", "containers")
    named = [each for each in containers if each.get("name") == CONTAINER]
    return next(iter(named or containers), {})


def _number(text: str) -> int:
    number = count_of(text)
    if number is None:
        return -1
    return number
