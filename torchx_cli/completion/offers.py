"""Completion candidates: applications, roles, components and their flags, run options, files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from torchx.lazy import lazy_imports
from torchx_cli.component_flags import flags_of, outline_of, outlines
from torchx_cli.door import feature

with lazy_imports:
    import ast

    from torchx import config
    from torchx import runner as torchx_runner
    from torchx.discovery.find import catalogue
    from torchx.discovery.source import docstrings
    from torchx.runner import queue
    from torchx.scheduling import query as scheduling_query
    from torchx_cli import applications, session
    from torchx_cli.terminal import times

if TYPE_CHECKING:
    from datetime import datetime

    from torchx.discovery.source.outline import Argument
    from torchx.runner.api import Runner

RECENT = 30
"""Maximum number of ended applications offered."""


class Offer(NamedTuple):
    """A candidate and its description; text ending in ``/``, ``=``, ``:`` or ``,`` is incomplete."""

    text: str
    help: str = ""


# --- values of flags -----------------------------------------------------------------------------


def of_flag(
    name: str, command: str, current: str, values: dict[str, list[str]], rest: list[str]
) -> Iterator[Offer]:
    """Yields the values of a flag.

    Args:
        name: the flag's parameter.
        command: the command.
        current: the partial value.
        values: the values of the other flags.
        rest: the positional arguments.
    """
    if name == "scheduler":
        yield from schedulers()
    elif name == "cfg":
        yield from run_options((values.get("scheduler") or [""])[-1], current)
    elif name == "output":
        yield from map(Offer, _FORMATS.get(command, ("json", "yaml")))
    elif name == "after":
        yield from handles("wait", current)
    elif name in _LISTS:
        yield from _list_items(current, _LISTS[name])
    elif name in _CHOICES:
        yield from map(Offer, _CHOICES[name])
    elif name == "roles" and rest:
        yield from _list_items(current, [role for role, _ in _roles(rest[0])])
    elif name == "env_file":
        yield from files(current)
    elif name == "workspace":
        yield from files(current, folders=True)
    elif name == "log_level":
        yield from map(Offer, session.LEVELS)


_FORMATS = {"results": ("csv", "json", "yaml"), "log": ("json",), "events": ("json",)}
"""Command -> the formats of its output, if they are not JSON and YAML."""

_LISTS = {
    "state": ("running", "failed", "succeeded", "cancelled", "pending"),
    "notify_on": ("end", "failure", "stall", "straggler"),
    "show": ("rank0", "last", "all"),
}
"""Flag -> the items of its list."""

_CHOICES = {
    "condition": (
        "done",
        "running",
        "ready",
        "stalled",
        "log:",
        "succeeded",
        "failed",
        "cancelled",
        "pending",
    ),
    "on_stall": ("report", "restart", "cancel"),
    "streams": ("stdout", "stderr", "combined"),
}
"""Flag -> its values."""


def _list_items(current: str, known: tuple[str, ...] | list[str]) -> Iterator[Offer]:
    before = current[: current.rfind(",") + 1]
    yield from (Offer(before + item) for item in known if item not in before.split(","))


def schedulers() -> Iterator[Offer]:
    """Yields the names of the schedulers."""
    with _runner() as runner:
        yield from map(Offer, runner.scheduler_backends())


def run_options(scheduler: str, current: str) -> Iterator[Offer]:
    """Yields the run options of a scheduler, or the values of the option being typed."""
    with _runner() as runner:
        named = config.load_config().get("cli:run", "scheduler")
        opts = runner.scheduler_run_opts(
            scheduler or (named.value if named else "") or runner.default_scheduler
        )
    at = current.rfind(",") + 1
    before, piece = current[:at], current[at:]
    key, equals, _ = piece.partition("=")
    if equals:
        option = opts.get(key)
        if option is not None and option.opt_type is bool:
            yield from (Offer(f"{before}{key}={value}") for value in ("true", "false"))
        elif option is not None and option.opt_type is str:
            typed = piece[len(key) + 1 :]
            yield from (Offer(f"{before}{key}={path.text}") for path in files(typed))
        return
    given = {part.partition("=")[0] for part in before.split(",")}
    yield from (Offer(f"{before}{name}=", opt.help) for name, opt in opts if name not in given)


# --- arguments -----------------------------------------------------------------------------------


def of_argument(command: str, before: list[str], current: str) -> Iterator[Offer]:
    """Yields the positional arguments of a command.

    Args:
        command: the command.
        before: the arguments before this one.
        current: the partial argument.
    """
    if _takes_handle(command, is_first=not before):
        replicas: list[Offer] = []
        if command in ("log", "attach", "exec", "port", "cp") and "/" in current.rpartition("://")[2]:
            replicas = list(of_replicas(current))
        offers = replicas or handles(command, current)
        yield from (offer for offer in offers if offer.text not in before)
    elif command == "run":
        yield from component_references(current)
    elif command == "schema":
        yield from _of_outputs(before)
    elif command in _FIRST and not before:
        yield from _FIRST[command](current)


def _takes_handle(command: str, *, is_first: bool) -> bool:
    if command == "queue":
        return not is_first
    return command in ("cancel", "delete", "top", "wait") or (command in _SINGLE and is_first)


def _of_outputs(before: list[str]) -> Iterator[Offer]:
    names = (name.split() for name in (*feature("schemas.outputs").OUTPUTS, "error"))
    below = (name[len(before) :] for name in names if name[: len(before)] == before)
    yield from (Offer(words[0]) for words in below if words)


_SINGLE = (
    *("rerun", "status", "log", "results", "describe", "report"),
    *("attach", "exec", "port", "events", "cp"),
)
"""The commands with one handle."""

_FIRST: dict[str, Callable[[str], Iterable[Offer]]] = {
    "queue": lambda _: map(Offer, queue.ACTIONS),
    "runopts": lambda _: schedulers(),
    "lint": lambda current: files(current, ".py"),
    "completion": lambda _: map(Offer, ("bash", "zsh", "fish")),
}
"""The offers for the only argument of a command."""


def handles(command: str, current: str) -> Iterator[Offer]:
    """Yields the handles of applications that a command accepts, running ones first."""
    ended = command not in ("cancel", "attach", "top", "wait", "exec", "port", "queue")
    states = ("SUBMITTED", "PENDING") if command == "queue" else ("SUBMITTED", "PENDING", "RUNNING")
    query = scheduling_query.AppQuery(states=frozenset() if ended else frozenset(states))
    running: list[Offer] = []
    others: list[Offer] = []
    with _runner() as runner:
        for backend in runner.cheap_schedulers():
            for app in islice(runner.select(backend, query), RECENT * 10):
                plain = backend == runner.default_scheduler and "://" not in current
                offer = Offer(
                    app.app_id if plain else app.app_handle, _description(app.state.name, app.submitted_at)
                )
                (running if app.ended_at is None else others).append(offer)
    if command != "delete":
        yield from running
    yield from others[:RECENT]
    if running or others:
        yield Offer("@last", "the most recent application")


def _description(state: str, when: datetime | None) -> str:
    if when is not None:
        return f"{state}  {times.ago(when)}"
    return state


def of_replicas(current: str) -> Iterator[Offer]:
    """Yields the roles of an application after ``HANDLE/``, and replicas after ``HANDLE/ROLE/``."""
    at = current.find("/", current.find("/", current.find("://") + 3) + 1 if "://" in current else 0)
    if at < 0:
        return
    handle, typed = current[:at], current[at + 1 :]
    roles = _roles(handle)
    role, slash, replicas = typed.partition("/")
    if not slash:
        yield from (Offer(f"{handle}/{name}", f"{n} replicas") for name, n in roles)
        return
    count = dict(roles).get(role, 0)
    before = replicas[: replicas.rfind(",") + 1]
    yield from (Offer(f"{handle}/{role}/{before}{k}") for k in range(min(count, 100)))


def _roles(text: str) -> list[tuple[str, int]]:
    with _runner() as runner:
        _, described = applications.find(runner, text)
    return [(role.role, len(role.replicas)) for role in described.roles_statuses]


# --- components ----------------------------------------------------------------------------------


def components() -> Iterator[Offer]:
    """Yields the named components."""
    yield from (
        Offer(component.name, component.description)
        for component in catalogue.list_components()
        if not component.problems
    )


def component_references(current: str) -> Iterator[Offer]:
    """Yields named components, component files, and the components of a file."""
    path, colon, _ = current.rpartition(":")
    if colon and path.endswith(".py"):
        for outline in outlines(path):
            yield Offer(f"{path}:{outline.name}", docstrings.summary(outline.docstring))
        return
    yield from components()
    for offer in files(current, ".py"):
        yield offer if offer.text.endswith("/") else Offer(offer.text + ":")


def of_component(name: str, args: list[str], current: str) -> Iterator[Offer]:
    """Yields the flags of a component and the values of choices, without running its code.

    Args:
        name: the component.
        args: the arguments after it.
        current: the partial argument.
    """
    outline = outline_of(name)
    if outline is None:
        yield from files(current)
        return
    arguments = {argument.name: argument for argument in outline.arguments}
    table = flags_of(outline)
    split = table.split(args)
    pending = None
    if split.pending:
        pending = arguments[split.pending.name]
    if pending is not None and _choices(pending):
        yield from map(Offer, _choices(pending))
    elif pending is not None or split.ended or not current.startswith("-"):
        yield from files(current)
    else:
        docs = docstrings.Docs(outline.docstring)
        for hit in table.exact.values():
            yield Offer(hit.spelling, docs.of(hit.flag.name))
        yield Offer("--help", "Show the help of the component.")


def _choices(argument: Argument) -> list[str]:
    node = argument.annotation
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value).rpartition(".")[2] != "Literal":
        return []
    if isinstance(node.slice, ast.Tuple):
        parts = node.slice.elts
    else:
        parts = [node.slice]
    return [str(part.value) for part in parts if isinstance(part, ast.Constant)]


# --- files and the rest --------------------------------------------------------------------------


def files(current: str, ending: str = "", *, folders: bool = False) -> Iterator[Offer]:
    """Yields the files that match a partial path; folders end in a slash.

    Args:
        current: the partial path.
        ending: only files with this suffix.
        folders: only folders.
    """
    start = current.rpartition("/")[2]
    shown = current[: len(current) - len(start)]
    try:
        place = os.path.expanduser(shown or ".")  # noqa: PTH111
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.name.startswith(start) or (entry.name.startswith(".") and not start.startswith(".")):
            continue
        if entry.is_dir():
            yield Offer(f"{shown}{entry.name}/")
        elif not folders and entry.name.endswith(ending):
            yield Offer(f"{shown}{entry.name}")


def _runner() -> Runner:
    return torchx_runner.get_runner(session.SESSION)
