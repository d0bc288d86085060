"""An application as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx import settings
from torchx.lazy import lazy_imports
from torchx.scheduling.responses import status_of
from torchx.specs.app import AppDef
from torchx.specs.serialize import app_to_dict
from torchx_cli.applications import named_identity
from torchx_cli.terminal.masking import allow_references, mask, remember
from torchx_cli.terminal.plain import to_plain
from torchx_cli.terminal.times import iso

with lazy_imports:
    from torchx.specs import app_metadata

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse


def as_data(handle: str, described: DescribeAppResponse, first: Object | None = None) -> Object:
    """Returns an application as plain data with secrets masked."""
    identity = named_identity(handle, described.name)
    status = status_of(described).to_json()
    hidden = (settings.COMMAND_LINE, settings.COMMAND_NAMES, settings.SOURCE)
    names = described.metadata.get(settings.COMMAND_NAMES)  # without values, where other users can read it
    metadata = {key: value for key, value in described.metadata.items() if key not in hidden}
    app = AppDef(described.name or identity["app_id"], described.roles, metadata)
    command_line = described.metadata.get(settings.COMMAND_LINE, names)
    allow_references(command_line or "", app)
    remember(app.roles)
    data: dict[str, Any] = mask(
        {
            **identity,
            "state": described.state.name,
            "msg": described.msg,
            "submitted_at": iso(described.submitted_at),
            "started_at": iso(described.started_at),
            "ended_at": iso(described.ended_at),
            "duration": status["duration"],
            "first_failure": first,
            "roles": status["roles"],
            "log_dir": described.log_dir,
            "ui_url": described.ui_url,
            "workspaces": described.workspaces,
            "cfg": to_plain(described.cfg),
            "command_line": command_line,
            "tags": app_metadata.tags_of(metadata),
            "note": app_metadata.note_of(metadata),
            "app": app_to_dict(app, strict=False),
        },
    )
    return data


def shown(runner: Runner, handle: str, described: DescribeAppResponse) -> dict[str, Any]:
    """Returns an application as plain data for people: without the images of an engine that uses none."""
    data = as_data(handle, described)
    if not runner.scheduler_of(handle).uses_images(described):
        for role in data["app"]["roles"]:
            role["image"] = ""
    return data
