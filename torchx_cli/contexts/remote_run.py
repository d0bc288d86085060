"""`torchx run` on another machine: the component is evaluated here, the application is sent as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from torchx.errors import UsageError
from torchx.masking import SecretValue
from torchx.specs import app as specs_app
from torchx.specs import serialize
from torchx.specs.workspace import Workspace
from torchx.workspace.tree import Tree, scan_workspaces
from torchx_cli.contexts.client import Command
from torchx_cli.contexts.connection import Connection, context_of
from torchx_cli.terminal.output import note_all

if TYPE_CHECKING:
    from torchx.specs.app import AppDef
    from torchx_cli.placement import Placement
    from torchx_cli.run_request import RunRequest


def submit(app: AppDef, request: RunRequest, form: str, placed: Placement) -> int:
    """Submits an application on another machine, and follows it as a run there does.

    Args:
        app: the application.
        request: the flags.
        form: the output format.
        placed: the scheduler there, its options and the workspace here.

    Raises:
        UsageError: a flag is not possible on another machine.
        UnreachableError: the machine cannot be reached.
    """
    if request.parent_run_id:
        raise UsageError("--parent_run_id is not possible with a context", code="conflicting_flags")
    connection = Connection(context_of(request.context))
    connection.prepare()
    roles = [specs_app.resolve_overrides(role) for role in app.roles]
    if placed.workspace:
        specs_app.lay_over(placed.workspace, roles)
    app.roles[:] = roles
    sent: dict[int, str] = {}
    for role, tree in scan_workspaces(roles, placed.cfg):
        note_all(tree.notes)
        if id(tree) not in sent:
            sent[id(tree)] = _send(connection, tree)
        role.workspace = Workspace({sent[id(tree)]: ""})
    secrets = {name: str(value) for role in roles for name, value in role.env.items() if _is_secret(value)}
    for role in roles:
        role.env = {name: value for name, value in role.env.items() if not _is_secret(value)}
    argv = ["run", "--stdin", *_flags(request, form)]
    for name in secrets:
        argv += ["--secret", name]
    data = {"app": serialize.app_to_dict(app), "scheduler": placed.scheduler, "cfg": placed.cfg}
    return Command(connection, argv, stdin=json.dumps(data).encode(), env=secrets).run()


def _is_secret(value: object) -> bool:
    return isinstance(value, SecretValue)


def _send(connection: Connection, tree: Tree) -> str:
    """Sends the files of a workspace that are missing there, and returns its folder there."""
    rows: list[list[object]] = []
    tree.digest  # noqa: B018 - it reads the files, so that removed ones are left out
    for entry in tree.entries:
        digest = tree.file_digest(entry) if entry.kind == "file" else ""
        rows.append([entry.path, entry.kind, entry.mode, entry.target, entry.size, digest])
    entries = {entry.path: entry for entry in tree.entries}
    return connection.send_files(rows, lambda path: tree.read(entries[path]))


def _flags(request: RunRequest, form: str) -> list[str]:
    """Returns the flags of a run that `--stdin` accepts."""
    switches = {
        "--detach": request.detach,
        "--wait": request.wait,
        "--log": request.log,
        "--fold": request.fold,
    }
    flags = [flag for flag, given in switches.items() if given]
    if request.dryrun:
        flags.append("--dryrun=full" if request.dryrun == "full" else "--dryrun")
    for flag, value in (("--show", request.show), ("--once", request.once)):
        if value:
            flags += [flag, value]
    if request.notify is not None:
        for target in request.notify.targets:
            flags += ["--notify", target]
        flags += ["--notify-on", ",".join(request.notify.on)]
    if form != "text":
        flags += ["-o", form]
    return flags
