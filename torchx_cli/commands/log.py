"""`torchx log`: print or follow the logs of an application."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.command_line import ArgumentError
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.scheduling.logs import LogQuery, Stream, whole_characters
from torchx.scheduling.protocols import UnavailableError
from torchx.specs.handles import parse_numbers
from torchx.specs.status import AppState
from torchx_cli.applications import ACTIVE, find, short_name, target_of, with_role
from torchx_cli.door import feature
from torchx_cli.flags import Fold, Json, Show, count, lines_option, option, since_option, until_option
from torchx_cli.flags import LogTarget as Target
from torchx_cli.session import session_of
from torchx_cli.terminal.output import note, output_format, say_json

with lazy_imports:
    import json

    from torchx import torchrun
    from torchx.scheduling import checks
    from torchx_cli import shown
    from torchx_cli.terminal import masking, notices, rank_text, streaming, times

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse
    from torchx.scheduling.logs import LogChunk
    from torchx.specs.handles import LogTarget


EXAMPLES = """\b
Examples:
  torchx log -f @last
  torchx log -n 100 @last/trainer/0
  torchx log --regex loss --since 10m train
"""


def log_(
    ctx: typer.Context,
    target: Target,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Keep printing new lines until the application ends.")
    ] = False,
    tail: Annotated[bool, typer.Option("-t", "--tail", help="Same as --follow.")] = False,
    lines: Annotated[str, lines_option("Only the last N existing lines.")] = "",
    since: Annotated[str, since_option("lines")] = "",
    until: Annotated[str, until_option("lines")] = "",
    regex: Annotated[
        str, option("--regex", metavar="PATTERN", help="Only lines that match this pattern.")
    ] = "",
    rank: Annotated[
        str, option("--rank", metavar="N", help="Only lines of these torchrun ranks: 3 or 0-3,8.")
    ] = "",
    streams: Annotated[
        str, option("--streams", metavar="NAME", help="stdout, stderr or combined (default).")
    ] = "",
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Print the time before each line.")
    ] = False,
    no_prefix: Annotated[
        bool, typer.Option("--no-prefix", help="Print lines without the name of their replica.")
    ] = False,
    show: Show = "",
    fold: Fold = False,
    output: Annotated[
        str, option("-o", "--output", metavar="FORMAT", help="json: one JSON object per line.")
    ] = "",
    json: Json = False,
    masked: Annotated[bool, typer.Option("--mask", help="Mask secrets.", hidden=True)] = False,
) -> None:
    """Print the logs of a running or ended application.

    Prints the lines of all replicas in the order they were written.
    """
    form = output_format(output, json)
    if form == "yaml":
        raise ArgumentError("-o takes text or json, got `yaml`", flag="-o", given=form)
    query = make_query(regex, since, until, lines, streams, follow or tail)
    ranks = None
    if rank:
        ranks = parse_numbers(rank, "--rank")
    with session_of(ctx).runner() as runner:
        parsed = target_of(runner, target)
        handle, described = _find(runner, parsed.handle, outline=True, follow=query.follow)
        query = of_target(query, parsed, described, show)
        if ranks is not None:
            roles = [role.role for role in described.roles_statuses]
            query = dataclasses.replace(query, regex=torchrun.lines_of_ranks(ranks, roles, query.regex))
        chunks = _noting(runner.log_chunks(handle, query), lambda: _note_failure(runner, handle, query))
        if ranks is not None:
            missing = rank_text.without_ranks(described.state, f"rank {rank}")
            if roles:
                missing += f"; for replicas: torchx log {short_name(runner, handle)}/{roles[0]}/{rank}"
            chunks = _noting(chunks, lambda: note(missing))

        if masked:
            masking.remember(find(runner, handle, full=True)[1].roles)
            chunks = map(_masked, chunks)
        if form == "json":
            _print_as_json(chunks, fold=fold, live=query.follow)
            return
        printer = streaming.printer_of(
            sys.stdout,
            counts_of(described),
            query.replicas,
            fold=fold,
            prefix=not no_prefix,
            timestamps=timestamps,
            live=query.follow,
        )
        follower = notices.Notices(runner, handle, printer.remark, new=False)
        printer.before_attempt = follower.catch_up
        with follower if query.follow else nullcontext():
            printer.print_log(chunks, live=query.follow)


def counts_of(described: DescribeAppResponse) -> list[tuple[str, int]]:
    """Returns the roles of an application, each with its number of replicas."""
    return [(role.role, len(role.replicas)) for role in described.roles_statuses]


def _masked(chunk: LogChunk) -> LogChunk:
    text = chunk.data.decode("utf-8", "surrogateescape")
    return dataclasses.replace(chunk, data=masking.mask_text(text).encode("utf-8", "surrogateescape"))


def _print_as_json(chunks: Iterable[LogChunk], *, fold: bool, live: bool) -> None:
    if fold:
        feature("fold.printing").print_chunks(chunks, live=live)
    else:
        print_json(chunks)


def _find(
    runner: Runner, text: str, *, outline: bool = False, follow: bool = False
) -> tuple[str, DescribeAppResponse]:
    """Returns the application; if its engine is unreachable, the local record of its logs."""
    try:
        return find(runner, text, outline=outline, prefer=ACTIVE if follow else ())
    except UnavailableError as error:
        if follow or error.last_known is None:
            raise
        return runner.resolve_handle(text), error.last_known


def _noting(chunks: Iterable[LogChunk], note_absence: Callable[[], None]) -> Iterator[LogChunk]:
    """Yields chunks; if there are none, calls a function that says why."""
    empty = True
    for chunk in chunks:
        empty = False
        yield chunk
    if empty:
        note_absence()


def _note_failure(runner: Runner, handle: str, query: LogQuery) -> None:
    """Says why an application without output has failed."""
    _, described = _find(runner, handle)
    if described.state is not AppState.FAILED or not described.msg:
        return
    started = any(replica.attempts for role in described.roles_statuses for replica in role.replicas)
    if not started:
        note(f"no replica was started: {described.msg}")
    elif not (query.regex or query.since or query.until):
        note(described.msg)


def make_query(regex: str, since: str, until: str, lines: str, streams: str, follow: bool) -> LogQuery:
    """Returns the query for the given flags, for all replicas.

    Raises:
        UsageError: the value of a flag is invalid.
    """
    try:
        re.compile(regex)
    except re.error as error:
        raise ArgumentError(
            f"--regex takes a pattern, got `{regex}`: {error}", flag="--regex", given=regex
        ) from None
    if streams not in ("", *(stream.value for stream in Stream)):
        raise ArgumentError(
            f"--streams takes stdout, stderr or combined, got `{streams}`", flag="--streams", given=streams
        )
    return LogQuery(
        regex=regex or None,
        since=times.optional_time("--since", since),
        until=times.optional_time("--until", until),
        tail=count("-n", lines),
        follow=follow,
        stream=Stream(streams) if streams else Stream.COMBINED,
    )


def of_target(query: LogQuery, target: LogTarget, described: DescribeAppResponse, show: str = "") -> LogQuery:
    """Returns the query restricted to the role and replicas of a target, or to those of `--show`.

    Raises:
        StateError: the role or replica does not exist, or the application belongs to another user.
        UsageError: `--show` selects nothing, or both are given.
    """
    target = with_role(target, described)
    if target.role is None:
        chosen = {}
        if show:
            chosen = shown.select(show, counts_of(described))
        return dataclasses.replace(query, replicas=chosen)
    if show:
        raise UsageError("--show cannot be combined with HANDLE/ROLE", code="conflicting_flags")
    checks.require_readable(described.app_id, described.owner)
    replicas = checks.replicas_in(described.roles_statuses)
    checks.require_replicas(described.app_id, replicas, target.role, target.replicas)
    return dataclasses.replace(query, replicas={target.role: frozenset(target.replicas)})


def print_json(chunks: Iterable[LogChunk]) -> None:
    """Prints a JSON object for each line: role, replica, attempt, stream, time, line and partial.

    An incomplete line is printed in parts; `partial` marks parts without a line end. Multi-byte characters
    are never split.
    """
    held: dict[tuple[object, ...], LogChunk] = {}  # incomplete characters
    for chunk in chunks:
        source = (chunk.role, chunk.replica, chunk.attempt, chunk.stream)
        before = held.pop(source, None)
        if before is not None:
            chunk = dataclasses.replace(chunk, data=before.data + chunk.data)
        end = whole_characters(chunk.data)
        if end < len(chunk.data):
            held[source] = dataclasses.replace(chunk, data=chunk.data[end:])
        _print_lines(chunk, chunk.data[:end])
    for chunk in held.values():
        _print_lines(chunk, chunk.data)


def _print_lines(chunk: LogChunk, data: bytes) -> None:
    head = {
        "role": chunk.role,
        "replica": chunk.replica,
        "attempt": chunk.attempt,
        "stream": chunk.stream.value,
        "time": streaming.stamp(chunk.time) if chunk.time else None,
    }
    *whole, last = data.split(b"\n")
    lines = [(line, False) for line in whole] + ([(last, True)] if last else [])
    for line, partial in lines:
        text = line.decode("utf-8", "backslashreplace")
        say_json(json.dumps({**head, "line": text, "partial": partial}))
    sys.stdout.flush()
