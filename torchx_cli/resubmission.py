"""Submits a recorded application again, from its record or from the output of `describe -o json`."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx import json_shape, settings
from torchx.config import scheduler_options
from torchx.errors import StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.specs.app import AppDef
from torchx.specs.workspace import Workspace
from torchx_cli.run_request import DESCRIPTION_EXAMPLE, json_options, typed_options
from torchx_cli.terminal.masking import MASK

with lazy_imports:
    from torchx.specs import app_metadata, handles, serialize
    from torchx.sweeps import paths

if TYPE_CHECKING:
    from torchx.config import Config
    from torchx.json_limits import Data, Object
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.specs.app import AnyDryRunInfo, Role
    from torchx.specs.run_options import CfgVal, RunOptions
    from torchx_cli.run_request import RunRequest

NOT_KEPT = "<not kept>"
"""Replaces the environment and arguments of containers in overlays, in a record."""

RERUN_OF = "rerun-of"
"""The tag with the run of a sweep that an application repeats."""

BUILT = "torchx-workspace"
"""The repository of images with workspaces that are not pushed."""


DESCRIPTION: Data = {
    json_shape.REQUIRED: ("scheduler", "app"),
    "scheduler": str,
    "cfg": ({}, NoneType),
    "workspaces": ({json_shape.ANY_KEY: str}, NoneType),
    "handle": (str, NoneType),
}
"""The shape of the output of describe, without that of its application."""


class Submission(NamedTuple):
    """An application as it was submitted.

    Attributes:
        app: the application.
        scheduler: the scheduler.
        cfg: its run options.
        workspaces: the folder with the copy of each role's workspace.
        handle: the submitted application; may be empty.
        restored: the roles whose workspaces are restored already.
        images: the image of each role before its workspace was built into it, if known.
    """

    app: AppDef
    scheduler: str
    cfg: RunOptions
    workspaces: Mapping[str, str]
    handle: str = ""
    restored: Collection[str] = ()
    images: Mapping[str, str] = MappingProxyType({})


def from_record(handle: str, described: DescribeAppResponse) -> Submission:
    """Returns an application as it was submitted, from its record.

    Raises:
        StateError: the record does not contain the roles.
    """
    if not described.roles:
        raise StateError(
            f"{described.app_id} cannot be submitted again: its record does not contain its roles",
            hint="it was submitted by another program or another user, or its record was removed",
            code="not_repeatable",
        )
    scheduler = handles.parse_app_handle(handle).scheduler_backend
    return Submission(described.app(), scheduler, described.cfg, described.workspaces, handle)


def from_description(data: Data, runner: Runner) -> Submission:
    """Returns an application as it was submitted, from the output of `describe -o json`.

    Masked values are replaced by those of the record, if the application still exists.

    Raises:
        UsageError: the data is not the output of `describe -o json`.
    """
    try:
        json_shape.check(data, {**DESCRIPTION, "app": serialize.SHAPE}, "")
        json_shape.check(data["app"], serialize.SHAPE, "app", closed=True)
    except ValueError as error:
        raise UsageError(f"{error} (from --stdin)", hint=DESCRIPTION_EXAMPLE) from None
    scheduler, cfg, workspaces = data["scheduler"], data.get("cfg") or {}, data.get("workspaces") or {}
    app, handle = data["app"], data.get("handle")
    if cfg:
        opts = runner.scheduler_run_opts(scheduler)
        unknown = {key: value for key, value in cfg.items() if value is not None and opts.get(key) is None}
        json_options(unknown, scheduler, opts)  # raises: a misspelled option must not be lost
    if isinstance(handle, str) and _contains(data, MASK):
        original = _recorded(handle, runner)
        app, cfg = _unmasked(app, original["app"]), _unmasked(cfg, original["cfg"])
    restored = []
    if not handle:  # nothing was submitted before
        restored = [role["name"] for role in app["roles"]]
    return Submission(serialize.app_from_dict(app), scheduler, cfg, workspaces, handle or "", restored)


def _recorded(handle: str, runner: Runner) -> Object:
    """Returns an application and its run options as plain data; both are None if it is unknown."""
    described = runner.description(handle)
    if described is None:
        return {"app": None, "cfg": None}
    return {"app": serialize.app_to_dict(described.app(), strict=False), "cfg": dict(described.cfg)}


def _unmasked(data: Any, original: Any) -> Any:
    """Returns data with its masked texts replaced by those at the same place of the original."""
    if isinstance(data, dict) and isinstance(original, dict):
        return {key: _unmasked(value, original.get(key)) for key, value in data.items()}
    if isinstance(data, list) and isinstance(original, list) and len(data) == len(original):
        return [_unmasked(value, before) for value, before in zip(data, original, strict=True)]
    if isinstance(data, str) and MASK in data and original is not None:
        return original
    return data


def _contains(data: Any, text: str) -> bool:
    if isinstance(data, Mapping):
        return any(_contains(value, text) for value in data.values())
    if isinstance(data, (list, tuple)):
        return any(_contains(value, text) for value in data)
    return isinstance(data, str) and text in data


def named_after_run(app: AppDef) -> None:
    """Gives an application that was a run of a sweep a name and a tag with its number; changes it."""
    sweep, number = paths.sweep_of_run(str(app.metadata.get(settings.RUN, "")))
    if sweep:
        app.name = f"{app.name}-run{number}"
        app_metadata.set_tags(app, {RERUN_OF: f"{sweep}/{number}"})


def request_again(
    submission: Submission, request: RunRequest, runner: Runner, config: Config
) -> AnyDryRunInfo:
    """Makes the request for an application as it was submitted, with the options of a new request.

    Args:
        submission: the application.
        request: another scheduler, and run options.
        runner: makes the request.
        config: the configuration, which has options of another scheduler.

    Raises:
        StateError: parts of the application were not kept.
        UsageError: an option is invalid.
    """
    notes: list[str] = []
    submission.app.metadata.pop(settings.RUN, None)  # it is no longer a run of a sweep
    scheduler = request.scheduler or submission.scheduler
    for role in submission.app.roles:
        _check_kept(role)
        notes += _restore_workspace(role, submission, scheduler)
    if scheduler == submission.scheduler:
        cfg, missing = _kept_options(submission, runner)
    else:
        cfg, missing = _transferred_options(submission, scheduler, runner)
        opts = runner.scheduler_run_opts(scheduler)
        request.add_options(scheduler_options(config, scheduler, opts), cfg)
    notes += [f"{scheduler} has no run option `{key}`{why}; it is omitted" for key, why in missing.items()]
    if request.scheduler_args:
        cfg |= typed_options(request.scheduler_args, scheduler, runner.scheduler_run_opts(scheduler))
    info = runner.dryrun(submission.app, scheduler, cfg)
    info.notes[:0] = notes
    return info


def _kept_options(submission: Submission, runner: Runner) -> tuple[dict[str, CfgVal], dict[str, str]]:
    """Returns the options that the scheduler still has, and the others, each with a remark."""
    opts = runner.scheduler_run_opts(submission.scheduler)
    cfg = {key: value for key, value in submission.cfg.items() if value is not None}
    missing = {key: " any more" for key in cfg if opts.get(key) is None}
    return {key: value for key, value in cfg.items() if key not in missing}, missing


def _transferred_options(
    submission: Submission, scheduler: str, runner: Runner
) -> tuple[dict[str, CfgVal], dict[str, str]]:
    """Returns the options for another scheduler, and those that it does not have, each with a remark.

    Options with their default value are left to the other scheduler.
    """
    opts, former = runner.scheduler_run_opts(scheduler), runner.scheduler_run_opts(submission.scheduler)
    cfg: dict[str, CfgVal] = {}
    missing: dict[str, str] = {}
    for key, value in submission.cfg.items():
        before, now = former.get(key), opts.get(key)
        if value is None or (before is not None and before.default == value):
            continue
        if now is None:
            missing[key] = ""
        elif before is not None and before.opt_type != now.opt_type:
            missing[key] = f" like {submission.scheduler}"
        else:
            cfg[key] = value
    return cfg, missing


def _check_kept(role: Role) -> None:
    """Checks that the record contains all parts of a role.

    Raises:
        StateError: a part is missing.
    """
    secret = [name for name, value in role.env.items() if value == MASK]
    if secret:
        raise StateError(
            f"the record lacks the secret value of {', '.join(secret)} of role `{role.name}`",
            hint="give it with the flag --secret, as NAME or NAME=@FILE",
            code="missing_secret",
            facts={"names": secret},
        )
    if any(_contains(part, MASK) for part in (role.entrypoint, role.args, role.metadata)):
        raise StateError(
            f"role `{role.name}` has masked values, and its application is not on record",
            code="not_repeatable",
        )
    if _contains(role.metadata, NOT_KEPT):
        raise StateError(
            f"role `{role.name}` has overlays with containers whose environment and arguments the record "
            "does not contain",
            hint="submit it with its component again: torchx run ...",
            code="not_repeatable",
        )


def is_in_image(role: Role, submission: Submission) -> bool:
    """Returns True if the image of a role contains its workspace."""
    repository = role.image.rpartition(":")[0]
    return bool(repository) and repository in (BUILT, submission.cfg.get("image_repo"))


def existing_copy(role: Role, submission: Submission) -> str:
    """Returns the folder with the copy of a role's workspace; empty if it does not exist any more."""
    folder = submission.workspaces.get(role.name)
    return folder if folder and os.path.isdir(folder) else ""  # noqa: PTH112  # a string, not a Path


def _restore_workspace(role: Role, submission: Submission, scheduler: str) -> Iterator[str]:
    """Sets the workspace of a role to the files of the earlier submission, where these still exist.

    Yields:
        Notes for the user.

    Raises:
        StateError: its image was built for another scheduler, and the one it was built on is not known.
    """
    if role.workspace is None or not role.workspace.projects or role.name in submission.restored:
        return
    if is_in_image(role, submission):
        if scheduler == submission.scheduler:
            role.workspace = None
            return
        if role.name not in submission.images:
            raise StateError(
                f"the image {role.image} of role `{role.name}` was built for {submission.scheduler}",
                hint=f"to build one for {scheduler}: torchx run -s {scheduler} COMPONENT ...",
                code="not_repeatable",
            )
        role.image = submission.images[role.name]
    if folder := existing_copy(role, submission):
        role.workspace = Workspace({folder: ""})
        yield f"the workspace of role `{role.name}` is copied from the earlier application"
    else:
        names = ", ".join(role.workspace.projects)
        yield f"the workspace of role `{role.name}` is copied again from {names}, with its current files"
