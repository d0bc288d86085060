"""Short names of applications: `@last`, an app id, its start, or the name of an application."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from torchx import settings
from torchx.errors import AbsentError, StateError, TorchxError, UnreachableError
from torchx.lazy import lazy_imports
from torchx.machine import files, locks
from torchx.printable import few
from torchx.runner import origins
from torchx.specs.handles import (
    LogTarget,
    MalformedAppHandleException,
    PartOfJobException,
    UnknownAppException,
    make_app_handle,
    parse_app_handle,
    parse_log_target,
)
from torchx.sweeps.paths import BACKEND, is_delayed

with lazy_imports:
    from torchx.runner import once, survey
    from torchx.scheduling import query as app_query
    from torchx.sweeps import parts

if TYPE_CHECKING:
    from torchx.runner.host import Host
    from torchx.scheduling.base import ListAppResponse
    from torchx.scheduling.query import AppQuery

LAST = "@last"
"""The application last submitted from this machine."""

SESSION = "torchx"
"""The session in the handles of applications that are in no listing."""

_KEPT = 100
"""Number of handles kept for `@last`, which skips deleted applications."""

_OLDER = r"(.+)~([0-9]{1,4})"
"""The application that is a number of submissions older than the newest of a name: `train~1`."""

_RUN = r"([^/:]+://[^/]*/[^/]+|[^/]+)/([0-9]{1,9})(?:/0)?(/.*)?"
"""A run of a sweep, perhaps with a part of it: `train-x7k2/4`, `@last/4/trainer/0`."""

AMBIGUOUS = "ambiguous_name"
"""The code of the error about several applications."""

_LARGEST = 1 << 16
"""Maximum bytes of the file of handles."""

_LISTED = 5
"""Number of applications listed in an error."""

_LETTERS = 4
"""Letters after the name in an id that a command needs to change an application by the start of its id."""


def remember_last(handle: str) -> None:
    """Keeps a handle for `@last`, except inside an application."""
    if settings.TORCHX_JOB_ID in os.environ:
        return
    with suppress(Exception):  # the submission succeeded, so this is no error
        path = files.state_home() / "last"
        with locks.exclusive(path.with_suffix(".lock"), origins.LOCKED_WITHIN):
            kept = [handle, *(before for before in recall_last() if before != handle)][:_KEPT]
            files.write_file(path, "".join(f"{each}\n" for each in kept).encode())


def recall_last() -> list[str]:
    """Returns the kept handles, newest first."""
    try:
        return files.read_file(files.user_home() / "last", _LARGEST).decode().split()
    except (OSError, TorchxError, UnicodeDecodeError):
        return []


def resolve(
    runner: Host,
    text: str,
    prefer: Collection[str] = (),
    patience: float | None = None,
    only: str = "",
    *,
    acts: bool = False,
) -> str:
    """Returns the handle for a handle or a short name, see :func:`_resolve`.

    An application that waited for others has its own handle after its start.
    """
    handle = _resolve(runner, text, prefer, patience, only, acts)
    waiting = runner._find_delayed(handle)
    if waiting is None:
        return handle
    return waiting.handle


def _resolve(
    runner: Host, text: str, prefer: Collection[str], patience: float | None, only: str, acts: bool
) -> str:
    """Returns the handle for a handle or a short name.

    A whole app id wins over the name of an application, a name over the one of ``--once``, and that over the
    start of an app id. Of equal
    matches, the applications of this state home win. The default scheduler and the sweeps are searched
    first. A sweep with the number of a run is that run.

    Args:
        runner: used to query the schedulers.
        text: the handle or short name.
        prefer: if several applications match, consider only those in these states or of these schedulers.
        patience: maximum seconds of a query of several schedulers (default: a few).
        only: the scheduler to search (default: all).
        acts: the command changes the application. So a name, or the start of an id, matches applications of
            this state home only, all schedulers are searched for a name before the start of an id counts, and
            the start has the whole name with some letters more: `tr` or `57` may be a mistake.

    Raises:
        MalformedAppHandleException: the text is neither a handle nor a short name.
        UnknownAppException: every scheduler has answered, and no application matches.
        UnreachableError: no application matches, and a scheduler has not answered; a LateError if it may
            answer later.
        StateError: several applications match.
        PartOfJobException: the text is a part of an application, such as one of its roles.
    """
    if "/" in text:
        return _whole(runner, text, acts=acts)
    if not text.strip():
        raise MalformedAppHandleException(text)
    if text == LAST:
        return _last(runner)
    older = re.fullmatch(_OLDER, text)
    if older is not None:
        return _older(runner, older[1], int(older[2]), only, acts=acts)
    if text[0] == LAST[0]:
        raise UnknownAppException(text, [LAST])
    first, last = _backends(runner, only)
    backends = [*first, *last]
    if text[0].isdigit() and (handle := _recorded(runner, backends, text)):
        return handle
    silent: dict[str, Exception] = {}
    ranked: list[tuple[_Rank, ListAppResponse]] = []
    for queried in (first, last):
        found = _select(runner, queried, app_query.AppQuery(called=text), silent, patience)
        ranked += _ranked(runner, text, found, prefer)
        best = min((rank for rank, _ in ranked), default=None)
        if best is not None and best.suffices(acts=acts):
            break
    named = once.handle_of(text)
    if named and all(rank.kind >= _BEGUN for rank, _ in ranked) and runner.exists(named):
        return named
    if ranked:
        return _only(runner, text, ranked, acts=acts)
    return _unlisted(runner, text, backends, patience, silent)


def _whole(runner: Host, text: str, *, acts: bool) -> str:
    """Returns the handle of an application for a handle, or for a sweep with the number of a run."""
    if "://" in text:
        parse_app_handle(text)
    target = target_of(runner, text, acts=acts)
    if target is not None and target.role is None:
        return target.handle
    _reject_part(runner, text, target)
    if "://" not in text:
        raise MalformedAppHandleException(text)
    return text


def _unlisted(
    runner: Host, text: str, backends: list[str], patience: float | None, silent: dict[str, Exception]
) -> str:
    """Returns the handle for the id of an application that is in no listing.

    Raises:
        UnknownAppException: every scheduler has answered, and none has it.
        UnreachableError: a scheduler has not answered.
        PartOfJobException: it is the id of a part of an application.
    """
    # includes those that have answered, since a listing omits applications of other users
    handles = {name: make_app_handle(name, SESSION, text) for name in backends}
    known = survey.survey(backends, lambda name: runner.exists(handles[name]), patience)
    for name, answer in known.items():
        if isinstance(answer, PartOfJobException):
            raise answer
        if isinstance(answer, UnreachableError):  # too slow
            silent.setdefault(name, answer)
        if answer is True:  # recorded here; later calls report why the engine does not answer
            return make_app_handle(name, SESSION, _whole_id(runner, name, text))
    heard = [backend for backend in backends if backend not in silent]
    seen = _select(runner, heard, app_query.AppQuery(), {})
    if silent:
        raise _unreachable(silent, f"no other scheduler has an application `{text}`")
    raise UnknownAppException(
        text, [LAST, *(name for app in seen for name in (app.app_id, app.name) if name)]
    )


def target_of(runner: Host, text: str, *, acts: bool = False) -> LogTarget | None:
    """Returns the application of a run of a sweep, and its part; None for other texts.

    Args:
        runner: used to query the schedulers.
        text: a sweep with the number of a run that has started, perhaps with a role and replicas.
        acts: the command changes the run.

    Raises:
        StateError: several sweeps match, the files of one are damaged, or it has no such run.
    """
    match = re.fullmatch(_RUN, text)
    if match is None:
        return None
    try:
        sweep = parse_app_handle(resolve(runner, match[1], only=BACKEND, acts=acts))
    except TorchxError as error:
        if error.code == AMBIGUOUS or re.fullmatch(_OLDER, match[1]):
            raise
        return None  # the caller searches for another application
    if sweep.scheduler_backend != BACKEND or is_delayed(sweep.app_id):
        return None
    handle = parts.handle_of(sweep.app_id, match[2])
    with suppress(*survey.EXPECTED):  # its engine does not answer
        if handle and not runner.exists(handle):
            handle = ""
    if handle:
        return parse_log_target(f"{handle}{match[3] or ''}")
    return None


def _reject_part(runner: Host, text: str, target: LogTarget | None) -> None:
    """Rejects a role or a replica of an existing application, and a run of a sweep without an application.

    Raises:
        PartOfJobException: it is one.
        StateError: it is a run of a sweep that has not started, or that does not exist.
    """
    try:
        target = target or parse_log_target(text)
        if target.role is None:
            return
        handle = resolve(runner, target.handle)
        if not runner.exists(handle):
            return
    except TorchxError:
        return
    backend, _, app_id = parse_app_handle(handle)
    if backend == BACKEND:
        raise parts.part_error(app_id, target.role, gone=True)
    raise PartOfJobException(
        f"`{text}` is a part of an application, expected a whole one", hint=f"use its handle: {handle}"
    )


def _recorded(runner: Host, backends: Iterable[str], text: str) -> str:
    """Returns the handle of an application whose number is on record, or an empty string."""
    for backend in backends:
        with suppress(*survey.EXPECTED):  # not available
            if handle := runner.scheduler(backend).recorded(text):
                return handle
    return ""


def _backends(runner: Host, only: str) -> tuple[list[str], list[str]]:
    """Returns the schedulers that are queried first, and the others."""
    if only:
        return [only], []
    first = (runner.default_scheduler, BACKEND)
    backends = runner.listed_backends()
    return [name for name in backends if name in first], [name for name in backends if name not in first]


def _unreachable(silent: Mapping[str, Exception], known: str) -> UnreachableError:
    """Returns an error with the schedulers that have not answered, and the reason of the first."""
    name, reason = next(iter(silent.items()))
    why = (reason.message if isinstance(reason, TorchxError) else str(reason)).strip().partition("\n")[0]
    others = ""
    if len(silent) > 1:
        others = f"; {', '.join(list(silent)[1:])} did not answer either"
    kind = UnreachableError
    if any(isinstance(each, survey.LateError) for each in silent.values()):
        kind = survey.LateError
    return kind(
        f"{name} did not answer: {why or type(reason).__name__}{others}; {known}",
        hint=f"to diagnose: torchx doctor {name}   all applications: torchx list",
        facts={"scheduler": name},
    )


def _whole_id(runner: Host, backend: str, app_id: str) -> str:
    """Returns the id that a scheduler reports for an application, or the given one."""
    handle = make_app_handle(backend, SESSION, app_id)
    status = survey.survey([backend], lambda _: runner.description(handle, brief=True))[backend]
    if status is None or isinstance(status, Exception):
        return app_id
    return status.app_id


def _select(
    runner: Host,
    backends: list[str],
    query: AppQuery,
    silent: dict[str, Exception],
    patience: float | None = None,
) -> list[ListAppResponse]:
    """Returns the matching applications of schedulers; adds those that do not answer to ``silent``.

    An engine that does not exist here is silent too if an application was submitted to it: it is stopped.
    """
    answers = survey.survey(backends, lambda name: list(runner.select(name, query)), patience)
    for name, answer in answers.items():
        if isinstance(answer, AbsentError):
            if any(handle.startswith(f"{name}://") for handle in recall_last()):
                silent[name] = answer
        elif isinstance(answer, Exception):
            silent[name] = answer
    return [app for answer in answers.values() if not isinstance(answer, Exception) for app in answer]


def _newest(apps: Iterable[ListAppResponse]) -> list[ListAppResponse]:
    """Returns applications, the one last submitted first."""
    return sorted(apps, key=attrgetter("order"), reverse=True)


def _is_preferred(app: ListAppResponse, prefer: Collection[str]) -> bool:
    return (
        not prefer or app.state.name in prefer or parse_app_handle(app.app_handle).scheduler_backend in prefer
    )


_ID, _NAME, _BEGUN, _SHORT = range(4)


class _Rank(NamedTuple):
    """The quality of a match of an application and a text; the lowest one is the best.

    Attributes:
        kind: by its whole id, its name, the start of its id, or less than its name and some letters.
        is_elsewhere: it belongs to another user or another state home.
        is_other: it is in no preferred state.
    """

    kind: int
    is_elsewhere: bool
    is_other: bool

    def suffices(self, *, acts: bool) -> bool:
        """Returns True if no other scheduler has to be searched for a better match."""
        if self.kind >= _BEGUN and acts:
            return False
        return self.kind == _ID or not (self.is_elsewhere or self.is_other)


def _ranked(
    runner: Host, text: str, apps: Sequence[ListAppResponse], prefer: Collection[str]
) -> list[tuple[_Rank, ListAppResponse]]:
    """Returns the applications that match a text, each with its rank."""
    here = {app.app_handle for app in origins.from_here(runner, apps) if app.is_own}
    ranked = []
    for app in apps:
        if text in (app.app_id, app.app_id.partition(":")[2]):
            kind = _ID
        elif app.name == text:
            kind = _NAME
        elif not app_query.begins(app.app_id, text):
            continue
        elif f"{app.app_id.rpartition('-')[0].rpartition(':')[2]}-" in text[:-_LETTERS]:
            kind = _BEGUN
        else:
            kind = _SHORT
        ranked.append((_Rank(kind, app.app_handle not in here, not _is_preferred(app, prefer)), app))
    return ranked


def _best(
    text: str, ranked: Sequence[tuple[_Rank, ListAppResponse]], *, acts: bool
) -> tuple[int, list[ListAppResponse]]:
    """Returns the kind of the best matches, and these applications, newest first.

    Raises:
        StateError: only applications from elsewhere match, and the command acts.
    """
    allowed = [each for each in ranked if not acts or each[0].kind == _ID or not each[0].is_elsewhere]
    best = min(rank for rank, _ in allowed or ranked)
    matching = _newest(app for rank, app in allowed or ranked if rank == best)
    if allowed:
        return best.kind, matching
    app_id = matching[0].app_id
    raise StateError(
        f"`{text}` matches no application of yours from this state home, but {app_id} from elsewhere",
        hint=f"to change it, use its whole id: {app_id}",
        code="unknown_application",
        facts={"given": text},
    )


def _only(runner: Host, text: str, ranked: Sequence[tuple[_Rank, ListAppResponse]], *, acts: bool) -> str:
    """Returns the handle of the only application that matches best.

    Raises:
        StateError: there are several, :func:`_best` finds none, or the text is too short to act.
    """
    kind, matching = _best(text, ranked, acts=acts)
    if len(matching) == 1 and not (acts and kind == _SHORT):
        if kind == _SHORT:
            runner.report_completed(text, matching[0].app_handle)
        return matching[0].app_handle
    listed = few([f"{app.app_id} ({app.state.name})" for app in matching], _LISTED)
    message = f"`{text}` matches {len(matching)} applications: {listed}"
    if len(matching) == 1:
        message = f"`{text}` is only the beginning of an application: {listed}"
    hint = "use a whole id   all applications: torchx list"
    if kind == _NAME:
        name = shlex.quote(text)
        hint = f"the newest called {name}: {name}~0   the one before: {name}~1   "
        hint += f"all: torchx list --name {name}"
    raise StateError(
        message,
        hint=hint,
        code=AMBIGUOUS,
        facts={"given": text, "matches": [app.app_handle for app in matching[:_LISTED]]},
    )


def _older(runner: Host, name: str, number: int, only: str, *, acts: bool) -> str:
    """Returns the application submitted before the newest one: of the kept ones, or of one name.

    A name is searched for like all names: in the default scheduler and the sweeps first.

    Args:
        runner: used to query the schedulers.
        name: `@last`, or the name of applications.
        number: how many submissions before the newest one.
        only: the scheduler to search; empty for all.
        acts: only applications of this state home count.

    Raises:
        StateError: there are not that many.
        UnreachableError: there are not that many, and a scheduler has not answered.
    """
    silent: dict[str, Exception] = {}
    if name == LAST:
        handles = (handle for handle in recall_last() if runner.exists(handle))
        known = list(islice(handles, number + 1))
    else:
        apps: list[ListAppResponse] = []
        for queried in _backends(runner, only):
            found = _select(runner, queried, app_query.AppQuery(called=name), silent)
            if acts:
                found = origins.from_here(runner, found)
            apps += [app for app in found if app.name == name and app.is_own]
            if len(apps) > number:
                break
        known = [app.app_handle for app in _newest(apps)]
    if number < len(known):
        return known[number]
    if name == LAST:
        reason = f"the handles of {len(known)} submissions are known"
    else:
        reason = f"known {only or 'application'}s called `{name}`: {len(known)}"
    if silent:
        raise _unreachable(silent, f"of the others, {len(known)} are called `{name}`")
    raise StateError(
        f"there is no `{name}~{number}`: {reason}",
        hint="all applications: torchx list",
        code="unknown_application",
        facts={"given": f"{name}~{number}"},
    )


def _last(runner: Host) -> str:
    """Returns the last submitted application that still exists.

    If it is unknown, returns the newest of this machine, but never one of a shared engine: it may belong to
    another user, and the next step may be to cancel it.
    """
    for kept in recall_last():
        if runner.exists(kept):
            return kept
    own = [backend for backend in runner.listed_backends() if not origins.is_shared(runner, backend)]
    silent: dict[str, Exception] = {}
    listed = _select(runner, own, app_query.AppQuery(), silent)
    dated = [app for app in listed if app.submitted_at is not None]
    if not dated and silent:
        raise _unreachable(silent, f"no other scheduler of this machine has an application for {LAST}")
    if not dated:
        raise StateError(
            f"no application is known for {LAST}",
            hint="all applications: torchx list",
            code="unknown_application",
            facts={"given": LAST},
        )
    return _newest(dated)[0].app_handle
