"""The server: answers the calls of an agent over stdin and stdout, each in a process of its own."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from torchx.errors import TorchxError, UsageError
from torchx.excerpts import plain_line
from torchx.exit_codes import TIMED_OUT
from torchx.json_limits import Data, Object
from torchx.suggestions import did_you_mean
from torchx.version import __version__
from torchx_cli.mcp import calls, paging, tools
from torchx_cli.mcp.tools import Tool
from torchx_cli.terminal.error_output import failure_of
from torchx_cli.terminal.masking import mask_text

PROGRESS_EVERY = 10.0
"""Seconds between two messages about the progress of a call."""

MOST_MESSAGES = 3
"""Maximum number of messages of a failed command in an answer."""


INSTRUCTIONS = (
    "torchx launches applications made of replicas on this machine, Docker, Slurm, Kubernetes. A handle, an "
    "id or @last names one. After a submission call `wait`, which blocks; after a failure call `why`. If "
    "an answer is cut, `more` has cursors: repeat the call with `cursor` to read a part. Hints name "
    "commands: `torchx why NAME` is the tool `why`, `runopts` is `run_options`, `builtins` is `components`. "
    "Flags are arguments: `--time-limit` is `time_limit`, `-cfg` is `scheduler_args`, `-n` is `lines`."
)


def make(allowed: frozenset[str]) -> Server[Any]:
    """Returns the server with the tools that are allowed."""
    offered = tools.offered(allowed)
    listed = [
        types.Tool(
            name=name,
            description=tool.description,
            input_schema=tools.schema(tool),
            annotations=types.ToolAnnotations(read_only_hint=not tool.group),
        )
        for name, tool in offered.items()
    ]

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        async with anyio.create_task_group() as group:
            group.start_soon(_report, context, params.name)
            data, failed = await _answered(offered, params.name, params.arguments or {})
            group.cancel_scope.cancel()
        text = paging.text_of(paging.shortened(data, paging.LARGEST_WITH_FRAME))
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)

    return Server(
        "torchx",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _answered(offered: Mapping[str, Tool], name: str, arguments: Data) -> tuple[Any, bool]:
    """Returns the answer of a call, and whether it is an error."""
    try:
        tool = offered.get(name)
        if tool is None:
            raise _not_offered(name)
        return await answer(name, tool, arguments)
    except TorchxError as error:
        return {"error": failure_of(error).as_data()}, True


def _not_offered(name: str) -> UsageError:
    tool = tools.TOOLS.get(name)
    if tool is None or not tool.group:
        hint = did_you_mean(name, tools.TOOLS, f"tools: {', '.join(tools.TOOLS)}")
        return UsageError(f"`{name}` is not a tool", hint=hint, code="unknown_command")
    hint = f"start the server with: torchx mcp --allow {tool.group}"
    return UsageError(f"`{name}` is not allowed", hint=hint, code="not_allowed")


async def _report(context: ServerRequestContext[Any], name: str) -> None:
    """Reports that a call continues, if the client has requested that."""
    begin = time.monotonic()
    while True:
        await anyio.sleep(PROGRESS_EVERY)
        elapsed = time.monotonic() - begin
        await context.session.report_progress(elapsed, message=f"{name} continues after {elapsed:.0f} s")


async def answer(name: str, tool: Tool, arguments: Data) -> tuple[Any, bool]:
    """Runs the command of a call; returns its answer, and whether it is an error."""
    given = dict(arguments)
    cursor = given.pop("cursor", "")
    if not isinstance(cursor, str):
        raise UsageError("`cursor` must be a string")
    argv = tools.command_line(name, tool, given)
    if tool.kind == "lines":
        return await _lines(tool, argv, cursor, last="lines" in given)
    reader = calls.Whole()
    ended = await calls.run(argv, reader)
    output = reader.data.decode("utf-8", "replace")
    data: Any
    try:
        if tool.kind == "text" and not ended.code:
            data = {"text": output.strip()}
        else:
            data = json.loads(output)
    except ValueError:
        return _failure(ended), True
    if ended.code and _is_error(data):
        return {"error": tools.for_agent(tool, data["error"])}, True
    paged = paging.page(data, cursor)
    is_list = isinstance(data, list)  # the applications that `wait` has waited for
    if ended.code == TIMED_OUT and is_list and any(each["exit_code"] is None for each in data):
        return {"result": paged, "next": "not yet: call this tool again with the same arguments"}, False
    if tool.group == "run":
        return _with_notes(paged, ended.errors), False
    return paged, False


def _with_notes(data: Any, messages: str) -> Any:
    """Returns the answer of a command with its messages, if there are any."""
    notes = [_line(line) for line in messages.splitlines()]
    if not notes:
        return data
    if isinstance(data, list):
        data = {"result": data}
    return {**data, "notes": notes}


async def _lines(tool: Tool, argv: list[str], cursor: str, *, last: bool) -> tuple[Any, bool]:
    """Returns lines of a log: those after a cursor, or the last ones."""
    if cursor and not re.fullmatch(r":?[0-9]{1,18}", cursor):
        raise paging.invalid(cursor)
    reader = calls.Lines(int(cursor.removeprefix(":") or 0), last=last and not cursor)
    ended = await calls.run(argv, reader)
    reader.end()
    lines = list(reader.lines)
    if ended.code:
        errors = [{"error": tools.for_agent(tool, line["error"])} for line in lines if _is_error(line)]
        return [*errors, _failure(ended)][0], True
    data: Object = {"lines": lines}
    if reader.is_cut and last and not cursor:
        data["omitted"] = (
            f"{reader.begin} earlier lines are left out: narrow the query, or repeat it without `lines`"
        )
    elif reader.is_cut:
        data["more"] = [
            {"from": reader.begin, "shown": len(lines), "cursor": f":{reader.begin + len(lines)}"}
        ]
    return data, False


def _is_error(data: Any) -> bool:
    return isinstance(data, dict) and "error" in data


def _failure(ended: calls.Ended) -> Object:
    """Returns the error of a command that has printed no data: its last messages."""
    lines = [_line(line.strip()) for line in ended.errors.splitlines() if line.strip()]
    message = "; ".join(lines[-MOST_MESSAGES:]) or "the command printed nothing"
    return {"error": {"code": "error", "message": message, "hint": None, "exit_code": ended.code}}


def _line(text: str) -> str:
    return mask_text(plain_line(text))[: calls.LONGEST_LINE]


async def _serve(allowed: frozenset[str]) -> None:
    server = make(allowed)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


def serve(allowed: frozenset[str]) -> None:
    """Serves one agent until stdin is closed."""
    anyio.run(_serve, allowed)
