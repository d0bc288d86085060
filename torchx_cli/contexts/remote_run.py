"""`torchx run` on another machine: components are evaluated here, the applications are sent as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from torchx import json_limits, json_shape
from torchx.errors import UsageError
from torchx.masking import SecretValue
from torchx.specs import app as specs_app
from torchx.specs import serialize
from torchx.specs.notify import Notify
from torchx.specs.workspace import Workspace
from torchx.workspace.tree import Tree, scan_workspaces
from torchx_cli import resubmission
from torchx_cli.commands import run
from torchx_cli.contexts.client import Command
from torchx_cli.contexts.connection import Connection, context_of
from torchx_cli.environment import Environment
from torchx_cli.placement import Placement
from torchx_cli.run_request import RunRequest
from torchx_cli.sweep import submit as sweep_submit
from torchx_cli.sweep_flags import SweepFlags
from torchx_cli.terminal.masking import remember
from torchx_cli.terminal.output import note_all

if TYPE_CHECKING:
    from torchx.json_limits import Data
    from torchx.specs.app import AppDef, Role
    from torchx.sweeps.parameters import Row
    from torchx_cli.session import Session

SHAPE: Data = {
    json_shape.REQUIRED: ("runs", "scheduler", "cfg", "request", "sweep", "notify", "secrets"),
    "runs": [{json_shape.REQUIRED: ("parameters", "app"), "parameters": {}, "app": {}}],
    "scheduler": str,
    "cfg": {},
    "secrets": [str],
}
"""The JSON of a submission; its other fields are checked by the classes that take them."""
FLAGS = ("component", "dryrun", "wait", "log", "detach", "fold", "show", "shown", "name", "once")
"""The fields of a request that are carried out there."""


def submit(runs: Sequence[tuple[Row, AppDef]], request: RunRequest, form: str, placed: Placement) -> int:
    """Submits applications on another machine, and follows them as a run there does.

    Args:
        runs: the parameters and the application of each run of a sweep, or one application.
        request: the flags.
        form: the output format.
        placed: the scheduler there, its options and the workspace here.

    Raises:
        UsageError: a flag is not possible on another machine.
        UnreachableError: the machine cannot be reached.
    """
    if request.parent_run_id:
        raise UsageError("--parent_run_id is not possible with a context", code="conflicting_flags")
    after = [text.removeprefix(f"{request.context}+") for text in request.sweep.after]
    connection = Connection(context_of(request.context))
    connection.prepare()
    roles = _placed_roles([app for _, app in runs], connection, placed)
    secrets: dict[str, str] = {}
    for role in roles:
        secrets |= {name: str(value) for name, value in role.env.items() if isinstance(value, SecretValue)}
        role.env = {name: value for name, value in role.env.items() if not isinstance(value, SecretValue)}
    flags = {name: getattr(request, name) for name in FLAGS}
    data = {
        "runs": [{"parameters": row, "app": serialize.app_to_dict(app)} for row, app in runs],
        "scheduler": placed.scheduler,
        "cfg": placed.cfg,
        # a sweep from another folder is another one
        "request": {**flags, "argv": [*request.argv, str(Path.cwd()), placed.workspace]},
        "sweep": {**asdict(request.sweep), "after": after},
        "notify": request.notify and {"targets": request.notify.targets, "on": request.notify.on},
        "secrets": list(secrets),
    }
    argv = ["context", "submit", "-o", form]
    return Command(connection, argv, stdin=json.dumps(data).encode(), env=secrets).run()


def _placed_roles(apps: Sequence[AppDef], connection: Connection, placed: Placement) -> list[Role]:
    """Returns the roles of applications, with the folders there to which their workspaces were sent."""
    for app in apps:
        app.roles[:] = [specs_app.resolve_overrides(role) for role in app.roles]
        if placed.workspace:
            specs_app.lay_over(placed.workspace, app.roles)
    roles = [role for app in apps for role in app.roles]
    sent: dict[int, str] = {}
    for role, tree in scan_workspaces(roles, placed.cfg):
        if id(tree) not in sent:
            note_all(tree.notes)
            sent[id(tree)] = _send(connection, tree)
        role.workspace = Workspace({sent[id(tree)]: ""})
    return roles


def _send(connection: Connection, tree: Tree) -> str:
    """Sends the files of a workspace that are missing there, and returns its folder there."""
    rows: list[list[object]] = []
    tree.digest  # noqa: B018 - it reads the files, so that removed ones are left out
    for entry in tree.entries:
        digest = tree.file_digest(entry) if entry.kind == "file" else ""
        rows.append([entry.path, entry.kind, entry.mode, entry.target, entry.size, digest])
    entries = {entry.path: entry for entry in tree.entries}
    return connection.send_files(rows, lambda path: tree.read(entries[path]))


def receive(session: Session, form: str) -> int:
    """Submits applications that another machine has sent as JSON on stdin.

    Raises:
        UsageError: the JSON is invalid.
    """
    try:
        data = json_limits.load_json(sys.stdin.read(json_limits.LARGEST + 1))
        json_shape.check(data, SHAPE, "")
        request = RunRequest(**data["request"], sweep=SweepFlags(**data["sweep"]))
        request.environment = Environment(secrets=data["secrets"])
        request.notify = data["notify"] and Notify(**data["notify"])
        place = {"scheduler": data["scheduler"], "cfg": data["cfg"]}
        rows = [each["parameters"] for each in data["runs"]]
    except (ValueError, TypeError) as error:
        raise UsageError(f"invalid request of another machine: {error}") from None
    with session.runner() as runner:
        all_ = [resubmission.from_description({"app": each["app"], **place}, runner) for each in data["runs"]]
        if not request.sweep:
            return run.submit_again(all_[0], request, form, runner, session.config)
        runs = [(row, one.app) for row, one in zip(rows, all_, strict=True)]
        for _, app in runs:
            request.environment.apply(app)
        remember(runs[0][1].roles)
        placed = Placement(all_[0].scheduler, dict(all_[0].cfg), "")
        if request.dryrun:
            return sweep_submit.dryrun(request, form, runs, runner, placed)
        others = sweep_submit.awaited(request, runner)
        return sweep_submit.submit_runs(request, form, runner, runs, placed, others, None)
