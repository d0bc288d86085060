"""`torchx describe`: what an application is made of."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING, Any

import typer

from torchx_cli.flags import Handle, Json, Output
from torchx_cli.output import chosen_format, emit, paint, paint_state
from torchx_cli.session import session_of
from torchx_cli.times import ago, iso

if TYPE_CHECKING:
    from torchx.scheduler import DescribeAppResponse


def describe_(ctx: typer.Context, handle: Handle, output: Output = "", json: Json = False) -> None:
    """Show what an application is made of: its roles, their programs, environment and resources."""
    from torchx_cli.applications import find

    form = chosen_format(output, json)
    with session_of(ctx).runner() as runner:
        full, described = find(runner, handle, whole=True)
    data = as_data(full, described)
    if form != "text":
        emit(data, form)
    else:
        print("\n".join(_lines(data, described)))


def as_data(handle: str, described: DescribeAppResponse) -> dict[str, Any]:
    """Returns an application as plain data, secrets masked."""
    from torchx.specs.app import AppDef
    from torchx.specs.handles import parse_app_handle
    from torchx.specs.serialize import app_to_dict
    from torchx_cli.masking import mask, secret_values
    from torchx_cli.plain import to_plain

    scheduler, session, app_id = parse_app_handle(handle)
    app = AppDef(described.name or app_id, described.roles, described.metadata)
    data: dict[str, Any] = mask(
        {
            "handle": handle,
            "app_id": app_id,
            "name": described.name,
            "scheduler": scheduler,
            "session": session,
            "state": described.state.name,
            "msg": described.msg,
            "submitted_at": iso(described.submitted_at),
            "started_at": iso(described.started_at),
            "ended_at": iso(described.ended_at),
            "log_dir": described.log_dir,
            "ui_url": described.ui_url,
            "cfg": to_plain(described.cfg),
            "app": app_to_dict(app, strict=False),
        },
        secret_values(app),
    )
    return data


def _lines(data: dict[str, Any], described: DescribeAppResponse) -> list[str]:
    out = sys.stdout
    lines = [f"{paint(data['app_id'], 'bold', out)}  {paint_state(data['state'], out)}  {data['scheduler']}"]
    rows: list[tuple[str, str]] = [("handle", data["handle"])]
    if described.submitted_at is not None:
        local = described.submitted_at.astimezone()
        rows.append(("submitted", f"{local:%Y-%m-%d %H:%M:%S} ({ago(described.submitted_at)})"))
    options = {key: value for key, value in data["cfg"].items() if value is not None}
    rows.append(("options", ", ".join(f"{key}={_text(value)}" for key, value in options.items())))
    rows += [("logs", data["log_dir"] or ""), ("see", data["ui_url"] or ""), ("reason", data["msg"])]
    rows += [(f"metadata {key}", _text(value)) for key, value in data["app"]["metadata"].items()]
    lines += _aligned(rows, "")
    for role in data["app"]["roles"]:
        count = role["num_replicas"]
        lines += ["", f"{paint(role['name'], 'bold', out)}  {count} replica{'' if count == 1 else 's'}"]
        lines += _aligned(_role_rows(role), "  ")
    return lines


def _role_rows(role: dict[str, Any]) -> list[tuple[str, str]]:
    resource = role["resource"]
    retries = f"{role['max_retries']} ({role['retry_policy']})" if role["max_retries"] else ""
    asked = ", ".join(f"{key} {resource[key]}" for key in ("cpu", "gpu", "memMB") if resource[key] > 0)
    rows = [
        ("command", shlex.join([role["entrypoint"], *role["args"]])),
        ("image", role["image"]),
        ("resource", asked),
        ("at least", "" if role["min_replicas"] is None else str(role["min_replicas"])),
        ("retries", retries),
        ("ports", ", ".join(f"{name} {port}" for name, port in role["port_map"].items())),
        *(("mount", ", ".join(f"{k}={_text(v)}" for k, v in mount.items())) for mount in role["mounts"]),
        *(("env", f"{name}={value}") for name, value in role["env"].items()),
    ]
    rows += [(f"metadata {key}", _text(value)) for key, value in role["metadata"].items()]
    return rows


def _aligned(rows: list[tuple[str, str]], indent: str) -> list[str]:
    rows = [row for row in rows if row[1]]
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{indent}{paint(name.ljust(width), 'dim', sys.stdout)}  {value}" for name, value in rows]


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    import json

    return json.dumps(value)
