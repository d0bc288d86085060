"""How containers are ended: marked with the reason, asked, and after a time of grace killed; then removed."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial

from torchx.errors import StateError
from torchx.schedulers.docker.containers import CANCELLED, Container, damage_of, read
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.events import Events
from torchx.schedulers.docker.lookup import entries, look
from torchx.schedulers.docker.owner import require_own
from torchx.schedulers.docker.replay import job_of, tell

GONE, CONFLICT, SAME = 404, 409, 304
KILLED_WITHIN = 10.0
"""Seconds that the engine may take to kill."""
GRACE = 10.0
"""Seconds between TERM and KILL for containers that do not say how long."""
SOON = 0.3
"""Seconds in which most containers end that are asked to."""


def cancel(engine: Engine, app_id: str, *, now: bool = False) -> None:
    """Ends an application that has not ended: marks and asks all at once, and returns.

    After the grace time what is left is killed: by a thread that keeps this process from ending before, and
    by a supervisor in case that it is ended all the same.

    Args:
        engine: where it runs.
        app_id: the application.
        now: kill at once.
    """
    containers = look(engine, app_id, tolerant=True).get(app_id)
    if not containers:
        return
    require_own(containers, "cancelled", "docker stop")
    if damage_of(containers):
        end_all(engine, [c for c in containers if c.live], CANCELLED, 0.0 if now else GRACE)
        return
    story = tell(job_of(containers), containers)
    if story.end is not None:
        if now:
            end_all(engine, [c for c in containers if c.live], CANCELLED, 0.0)
        return
    newest = [c for mine in story.replicas for c in mine[-1:]]
    begun = [c for c in newest if c.live or c.status == "created"]
    # what has failed and waits for its retry is ended too: that retry will not come
    waiting = {n for start in story.starts for n in start.replicas}
    ended = [c for n in sorted(waiting) if (c := story.newest(n)) is not None and c not in begun]
    end_all(engine, begun + [c for c in ended if c.exit_code], CANCELLED, 0.0 if now else story.job.grace)
    again = look(engine, app_id).get(app_id, ())
    fresh = [c for c in again if not c.mark and (c.live or c.status == "created")]
    if fresh:  # started by a retry at this very moment
        end_all(engine, fresh, CANCELLED, 0.0 if now else story.job.grace)


def end_all(engine: Engine, containers: Sequence[Container], mark: str, grace: float) -> None:
    """Marks containers and asks them to end, all at once; kills what is left after the grace time.

    Args:
        engine: where they run.
        containers: what is to end; those that do not run are marked alone.
        mark: why.
        grace: seconds; 0 to kill at once, and to return when that is done.
    """
    # for all of them from now on: a crowd takes the engine a while to ask, and as long again to kill
    deadline = time.monotonic() + grace
    asked = all_of(in_parallel(partial(_ask, engine, mark, grace), containers))
    running = [(c, deadline) for c, runs in zip(containers, asked, strict=True) if runs]
    if running and grace > 0:
        # no daemon, whoever calls: the process stays until what it has asked for is done
        threading.Thread(target=_kill_after, args=(engine, running, mark), daemon=False).start()


def _ask(engine: Engine, mark: str, grace: float, container: Container) -> bool:
    """Marks a container and asks it to end; tells whether it runs on for the time of grace."""
    if mark != CANCELLED and not container.mark:
        # what a person has asked for meanwhile counts, and a new name would hide it
        container = _as_it_is(engine, container)
    name = f"{container.name}.{container.mark or mark}"
    path = f"/containers/{container.id}"
    if container.status == "restarting":
        # nothing of it runs: this only keeps the engine from starting it; before, it cannot be renamed
        _quietly(engine, f"{path}/stop", {"t": 0})
        _rename(engine, container, name)
        return False
    if not container.mark and not _rename(engine, container, name):
        return _ask_again(engine, mark, grace, container)
    if not container.live:
        return False
    try:
        if container.status == "paused":
            _quietly(engine, f"{path}/unpause")
        if container.allowed_restarts and engine.is_podman:
            # it takes a signal for a failure, and would start this again
            stop = partial(_stop, engine, container.id, grace)
            threading.Thread(target=stop, daemon=False).start()
            return False
        engine.call("POST", f"{path}/kill", {"signal": container.stop_signal if grace > 0 else "SIGKILL"})
    except EngineError as error:
        if error.status not in (GONE, CONFLICT):
            raise
        return _ask_again(engine, mark, grace, container) if error.status == CONFLICT else False
    return grace > 0


def _as_it_is(engine: Engine, before: Container) -> Container:
    """Returns a container as it is now; as it was when it is gone."""
    try:
        return read(engine.call("GET", f"/containers/{before.id}/json")) or before
    except EngineError:
        return before


def _stop(engine: Engine, container: str, grace: float) -> None:
    """Lets the engine itself ask a container to end, and kill it after a time of grace."""
    with suppress(StateError):  # gone, or no engine answers any more
        query = {"t": math.ceil(grace)}
        engine.call("POST", f"/containers/{container}/stop", query, patience=grace + KILLED_WITHIN)


def _ask_again(engine: Engine, mark: str, grace: float, before: Container) -> bool:
    """Looks what became of a container that ended before it could be asked to."""
    try:
        container = read(engine.call("GET", f"/containers/{before.id}/json"))
    except EngineError:
        return False
    if container is None:
        return False
    if container.live or (not before.mark and not container.mark and not container.finished):
        time.sleep(0.05)  # the engine has started it again, or is about to
        return _ask(engine, mark, grace, container)
    if not before.mark and not (container.mark and _was_asked(container)):
        # one that ended by itself keeps its name, unless the engine would have started it again
        awaited = container.exit_code and container.restarts < container.allowed_restarts
        _rename(engine, container, f"{container.name}.{mark}" if awaited else container.name)
    return False


def _was_asked(container: Container) -> bool:
    """Tells whether a container that has ended did so as one that is asked to does: somebody else was faster.

    Where several end an application, as the supervisor and who has cancelled it, one of them comes too late.
    """
    name = (container.signal or "").removeprefix("SIG")
    number = str((container.exit_code or 128) - 128)
    wanted = container.stop_signal.removeprefix("SIG")
    return bool(name) and not container.oom and (name == "KILL" or wanted in (name, number))


def _kill_after(engine: Engine, asked: Sequence[tuple[Container, float]], mark: str) -> None:
    soon = time.monotonic() + SOON
    brief = in_parallel(lambda one: _has_ended(engine, one[0], min(soon, one[1])), asked)
    left = [one for one, over in zip(asked, brief, strict=True) if over is not True]
    if left and mark == CANCELLED and not job_of([container for container, _ in left]).needs_supervisor:
        from torchx.schedulers.docker.supervisor_launch import look_after  # on demand: most end at once

        with suppress(OSError, StateError):  # without one this thread does it alone
            look_after(left[0][0].app_id)

    def kill(one: tuple[Container, float]) -> None:
        container, deadline = one
        if not _has_ended(engine, container, deadline):
            with suppress(StateError, OSError):  # it has ended meanwhile, or the engine has
                engine.call("POST", f"/containers/{container.id}/kill", {"signal": "SIGKILL"})

    in_parallel(kill, left)


def _has_ended(engine: Engine, container: Container, deadline: float) -> bool:
    """Waits for the end of a container; tells whether it came in time."""
    try:
        patience = max(deadline - time.monotonic(), 0.05)
        engine.call("POST", f"/containers/{container.id}/wait", patience=patience)
    except EngineError:
        return True  # it is gone
    except Exception:
        time.sleep(max(deadline - time.monotonic(), 0.0))  # no engine answers any more
        return False
    return True


def _rename(engine: Engine, container: Container, name: str) -> bool:
    """Renames a container; False when that cannot be now: it is just ending, or is gone."""
    try:
        engine.call("POST", f"/containers/{container.id}/rename", {"name": name})
    except EngineError as error:
        if error.status in (CONFLICT, 400):
            return True  # somebody else has done so at this very moment
        if error.status != GONE:
            raise
        return False
    return True


def _quietly(engine: Engine, path: str, query: Mapping[str, int] | None = None) -> None:
    try:
        engine.call("POST", path, query)
    except EngineError as error:
        if error.status not in (GONE, CONFLICT, SAME):
            raise


def remove(engine: Engine, ids: Iterable[str]) -> list[Exception]:
    """Removes containers with their anonymous volumes, running or not; returns what went wrong."""

    def one(container: str) -> None:
        for _ in range(50):
            try:
                engine.call("DELETE", f"/containers/{container}", {"force": 1, "v": 1})
                return
            except EngineError as error:
                if error.status == GONE:
                    return
                if error.status != CONFLICT:  # somebody else is removing it
                    raise
            time.sleep(0.1)

    return [result for result in in_parallel(one, ids) if isinstance(result, Exception)]


def delete(engine: Engine, app_id: str) -> None:
    """Ends an application, waits for that, and removes its containers with their anonymous volumes.

    Raises:
        StateError: it is another user's, or one of its containers cannot be removed.
    """
    containers = look(engine, app_id, tolerant=True).get(app_id, [])
    if containers:
        require_own(containers, "deleted", "docker rm -f")
        cancel(engine, app_id)
        grace = GRACE if damage_of(containers) else job_of(containers).grace
        _wait_for_end(engine, app_id, time.monotonic() + grace + KILLED_WITHIN)
    # all that the engine lists of it, readable or not
    while listed := entries(engine, app_id):
        failed = remove(engine, [entry["Id"] for entry in listed])
        if failed:
            raise StateError(f"{app_id} cannot be removed: {failed[0]}") from failed[0]


def _wait_for_end(engine: Engine, app_id: str, end: float) -> None:
    """Waits until nothing of an application runs, at most until a moment of the monotonic clock."""
    with closing(Events(engine, app_id)) as events:
        while time.monotonic() < end:
            containers = look(engine, app_id, tolerant=True).get(app_id, ())
            if not any(c.live for c in containers):
                return
            if not events.wait(min(1.0, max(end - time.monotonic(), 0.0))):
                return
