"""Short names of applications: `@last`, an app id, the start of one, or the name of an application."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import AbsentError, StateError, TorchxError, UnreachableError
from torchx.machine import files
from torchx.runner.survey import EXPECTED, survey
from torchx.scheduling.base import Shared
from torchx.scheduling.query import AppQuery, begins
from torchx.specs.handles import (
    MalformedAppHandleException,
    PartOfJobException,
    UnknownAppException,
    make_app_handle,
    parse_app_handle,
)
from torchx.specs.home import TORCHX_HOME

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.base import ListAppResponse

LAST = "@last"
"""Stands for the application that was submitted last from this machine."""

SESSION = "torchx"
"""The session in the handles of applications that no listing has told of."""

_KEPT = 10
"""How many handles are kept for it: of those that were deleted it is the one before."""

_LARGEST = 1 << 16
"""Bytes of the file that keeps them."""

_TOLD = 5
"""How many applications an error lists."""


def remember_last(handle: str) -> None:
    """Keeps a handle for `@last`; what an application itself submits does not count."""
    if settings.TORCHX_JOB_ID in os.environ:
        return
    try:
        path = TORCHX_HOME() / "last"
        kept = [handle, *(before for before in recall_last() if before != handle)][:_KEPT]
        files.write_file(path, "".join(f"{each}\n" for each in kept).encode())
    except (OSError, TorchxError):
        return  # the application runs: a convenience must not turn that into an error


def recall_last() -> list[str]:
    """Returns the handles that were kept, the last one first."""
    try:
        return files.read_file(TORCHX_HOME() / "last", _LARGEST).decode().split()
    except (OSError, TorchxError, UnicodeDecodeError):
        return []


def resolve(runner: Runner, text: str) -> str:
    """Returns the handle that a person means.

    A handle stands for itself. Anything shorter is looked for in the default scheduler first, and in
    the others when that does not have it: a whole app id, then the name of an application, then the
    start of an app id.

    Raises:
        MalformedAppHandleException: it is neither a handle nor a short name of one.
        UnknownAppException: every scheduler has answered, and none has it.
        UnreachableError: none has it of those that have answered.
        StateError: more than one application answers to it.
    """
    if "://" in text:
        parse_app_handle(text)
        return text
    if not text or "/" in text or text.isspace():
        raise MalformedAppHandleException(text)
    if text == LAST:
        return _last(runner)
    backends = sorted(runner.scheduler_backends(), key=lambda name: name != runner.default_scheduler)
    silent: dict[str, Exception] = {}
    for asked in (backends[:1], backends[1:]):
        for apps in _select(runner, asked, AppQuery(called=text), silent):
            found = _matches(text, apps)
            if len(found) == 1:
                return found[0].app_handle
            if found:
                raise _ambiguous(text, found)
    # those that have answered too: a listing leaves out applications of other users
    known = survey(backends, lambda name: runner.exists(make_app_handle(name, SESSION, text)))
    for name, answer in known.items():
        if isinstance(answer, PartOfJobException):
            raise answer
        if answer is True:  # it is on record here; whatever is asked of it will say why there is no answer
            return make_app_handle(name, SESSION, _whole_id(runner, name, text))
    heard = [backend for backend in backends if backend not in silent]
    seen = [app for apps in _select(runner, heard, AppQuery(), {}) for app in apps]
    if silent:
        raise _unreachable(silent, f"no other scheduler has an application `{text}`")
    raise UnknownAppException(text, [name for app in seen for name in (app.app_id, app.name) if name])


def _unreachable(silent: Mapping[str, Exception], known: str) -> UnreachableError:
    """Returns the error that names the schedulers that have not answered, and why the first has not."""
    name, reason = next(iter(silent.items()))
    why = (reason.message if isinstance(reason, TorchxError) else str(reason)).strip().partition("\n")[0]
    others = f"; {', '.join(list(silent)[1:])} did not answer either" if len(silent) > 1 else ""
    return UnreachableError(
        f"{name} did not answer: {why or type(reason).__name__}{others}; {known}",
        hint=f"what is wrong: torchx doctor {name}   all applications: torchx list",
    )


def _whole_id(runner: Runner, backend: str, app_id: str) -> str:
    """Returns the id that a scheduler tells of an application; the one that was typed where it is silent."""
    handle = make_app_handle(backend, SESSION, app_id)
    told = survey([backend], lambda _: runner.description(handle, brief=True))[backend]
    return app_id if told is None or isinstance(told, Exception) else told.app_id


def _select(
    runner: Runner, backends: list[str], query: AppQuery, silent: dict[str, Exception]
) -> list[list[ListAppResponse]]:
    """Returns the wanted applications of each scheduler; those that do not answer are noted as silent."""
    answers = survey(backends, lambda name: list(runner.select(name, query)))
    silent.update(
        (name, answer)
        for name, answer in answers.items()
        if isinstance(answer, Exception) and not isinstance(answer, AbsentError)
    )
    return [answer for answer in answers.values() if not isinstance(answer, Exception)]


def _matches(text: str, apps: Iterable[ListAppResponse]) -> list[ListAppResponse]:
    apps = list(apps)
    return (
        [app for app in apps if text in (app.app_id, app.app_id.partition(":")[2])]
        or [app for app in apps if app.name == text]
        or [app for app in apps if begins(app.app_id, text)]
    )


def _ambiguous(text: str, found: list[ListAppResponse]) -> StateError:
    told = ", ".join(f"{app.app_id} ({app.state.name})" for app in found[:_TOLD])
    more = f" and {len(found) - _TOLD} more" if len(found) > _TOLD else ""
    return StateError(
        f"`{text}` can mean {len(found)} applications: {told}{more}",
        hint=f"the one that was submitted last is {LAST}",
    )


def _last(runner: Runner) -> str:
    """Returns the application that was submitted last from here, of those that are still there.

    Where that is not known, the newest of this machine: never one of other people's on a shared engine, as
    what comes next may end it.
    """
    for kept in recall_last():
        if runner.exists(kept):
            return kept
    own = [backend for backend in runner.scheduler_backends() if not _is_shared(runner, backend)]
    silent: dict[str, Exception] = {}
    apps = [app for found in _select(runner, own, AppQuery(), silent) for app in found]
    dated = [app for app in apps if app.submitted_at is not None]
    if not dated and silent:
        raise _unreachable(silent, f"no other scheduler of this machine has an application for {LAST}")
    if not dated:
        raise StateError(
            f"{LAST} means nothing: no application is known", hint="all applications: torchx list"
        )
    return max(dated, key=lambda app: (app.submitted_at, app.app_id)).app_handle


def _is_shared(runner: Runner, backend: str) -> bool:
    try:
        return runner.has(backend, Shared)
    except EXPECTED:
        return True  # it cannot be asked
