"""Stops containers: marks them with the reason, signals them, and kills them after the grace period."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from torchx.errors import StateError
from torchx.jobs.paths import Home, JobPaths
from torchx.lazy import lazy_imports
from torchx.schedulers.docker.containers import Container, damage_of, read
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.events import Events
from torchx.schedulers.docker.folder import own_folder
from torchx.schedulers.docker.lookup import containers_of, entries, find_containers, owner_of
from torchx.schedulers.docker.marks import CANCELLED
from torchx.schedulers.docker.replay import Progress, replay
from torchx.schedulers.docker.request import checkpoint_volume
from torchx.schedulers.docker.rules.job import job_of
from torchx.schedulers.docker.supervisor_launch import provide_supervisor, remove_folder
from torchx.schedulers.shared import owner

with lazy_imports:
    from torchx.jobs import pruning
    from torchx.jobs import record as job_record
    from torchx.machine import locks
    from torchx.schedulers.docker import record

GONE, CONFLICT, SAME = 404, 409, 304
KILLED_WITHIN = 10.0
"""Seconds that the engine may take to kill."""
GRACE = 10.0
"""Seconds between TERM and KILL for containers that specify none."""
PASSES = 20
"""Maximum passes of a cancellation over the containers, as a retry may start others meanwhile."""
SOON = 0.3
"""Seconds within which most containers end after the stop signal."""


def cancel(engine: Engine, app_id: str, *, now: bool = False) -> None:
    """Cancels an application: marks all its containers, sends the stop signal and returns.

    Containers still running after the grace period are killed by a non-daemon thread of this process, and by
    a supervisor if this process is killed.

    Args:
        engine: the engine.
        app_id: the application.
        now: kill immediately.
    """
    containers = find_containers(engine, app_id, tolerant=True).get(app_id)
    if not containers:
        return
    _require_own(containers, "cancelled", "docker stop")
    if damage_of(containers):
        _end_live(engine, containers, 0.0 if now else GRACE)
        return
    progress = replay(job_of(containers), containers)
    if progress.end is not None:
        if now:
            _end_live(engine, containers, 0.0)
        return
    left = _to_cancel(progress)
    for _ in range(PASSES):
        end_all(engine, left, CANCELLED, 0.0 if now else progress.job.grace)
        again = find_containers(engine, app_id).get(app_id)
        if not again:
            return
        # a retry may have started others meanwhile, and one that ended by itself may have lost its mark
        progress = replay(job_of(again), again)
        left = [c for c in _to_cancel(progress) if c.marked(CANCELLED) != c.full_name]
        if not left:
            return


def _end_live(engine: Engine, containers: Sequence[Container], grace: float) -> None:
    end_all(engine, [c for c in containers if c.live], CANCELLED, grace)


def _to_cancel(progress: Progress) -> list[Container]:
    """Returns the containers that run or may be started, and the failed ones that wait for their retry."""
    newest = [c for mine in progress.replicas for c in mine[-1:]]
    begun = [c for c in newest if c.live or c.status == "created"]
    waiting = {n for start in progress.starts for n in start.replicas}
    ended = [(n, c) for n in sorted(waiting) if (c := progress.newest(n)) is not None and c not in begun]
    return begun + [c for n, c in ended if c.exit_code or c.mark or n in progress.needed]


def _require_own(containers: Sequence[Container], verb: str, command: str) -> None:
    app_id = containers[0].app_id
    names = " ".join(container.full_name for container in containers)
    owner.require_own(app_id, owner_of(containers), verb, f"to do it anyway: {command} {names}")


def end_all(engine: Engine, containers: Sequence[Container], mark: str, grace: float) -> None:
    """Marks containers and sends all the stop signal; kills those still running after the grace period.

    Args:
        engine: the engine.
        containers: the containers to stop; those not running are only marked.
        mark: the reason.
        grace: seconds; 0 to kill immediately and return afterwards.
    """
    # one deadline for all: to signal many containers takes the engine some time, and so does to kill them
    deadline = time.monotonic() + grace
    signalled = all_of(in_parallel(partial(_mark_and_stop, engine, mark, grace), containers))
    running = [(c, deadline) for c, runs in zip(containers, signalled, strict=True) if runs]
    if running and grace > 0:
        # not a daemon: the process must not end before the containers have
        threading.Thread(target=_kill_after, args=(engine, running, mark), daemon=False).start()


def _mark_and_stop(engine: Engine, mark: str, grace: float, container: Container) -> bool:
    """Marks a container and sends the stop signal; returns True if it may still run for the grace period."""
    if mark != CANCELLED and not container.mark:
        # the user may have cancelled it meanwhile; another mark would hide that
        container = _refreshed(engine, container)
    path = f"/containers/{container.id}"
    if container.status == "restarting":
        # it does not run; this keeps the engine from restarting it, and only then can it be renamed
        _post(engine, f"{path}/stop", {"t": 0})
        _rename(engine, container, lambda c: c.marked(mark))
        return False
    if not _rename(engine, container, lambda c: c.marked(mark)):
        return _handle_ended(engine, mark, grace, container)
    if container.status == "created":
        container = _refreshed(engine, container)  # it was started just before it was marked
    if not container.live:
        return False
    try:
        if container.status == "paused":
            _post(engine, f"{path}/unpause")
        if container.allowed_restarts and engine.is_podman:
            # Podman counts a signal as a failure and would restart the container
            stop = partial(_stop_by_engine, engine, container.id, grace)
            threading.Thread(target=stop, daemon=False).start()
            return False
        engine.call("POST", f"{path}/kill", {"signal": container.stop_signal if grace > 0 else "SIGKILL"})
    except EngineError as error:
        if error.status == GONE:
            return False
        # Podman has another status for a container that has ended
        if error.status != CONFLICT and _refreshed(engine, container).live:
            raise
        return _handle_ended(engine, mark, grace, container)
    return grace > 0


def mark(engine: Engine, containers: Sequence[Container], reason: str) -> None:
    """Marks running containers with the reason for which they are about to be ended."""
    in_parallel(lambda each: _rename(engine, each, lambda c: c.marked(reason)), containers)


def mark_ready(engine: Engine, container: Container) -> None:
    """Records in the name of a service's container that it is ready, unless it is being ended."""
    now = time.time()

    def ready(current: Container) -> str:
        is_due = current.live and not current.mark and not current.ready
        return (replace(current, ready=True, ready_at=now) if is_due else current).full_name

    _rename(engine, _refreshed(engine, container), ready)


def _refreshed(engine: Engine, before: Container) -> Container:
    """Returns the current state of a container, or the given one if it was removed."""
    return _inspected(engine, before) or before


def _inspected(engine: Engine, before: Container) -> Container | None:
    """Returns the current state of a container, or None if it was removed."""
    try:
        return read(engine.call("GET", f"/containers/{before.id}/json"))
    except EngineError:
        return None


def _stop_by_engine(engine: Engine, container: str, grace: float) -> None:
    """Stops a container by the engine's own ``stop``, which kills it after the grace period."""
    with suppress(StateError):  # removed, or the engine no longer answers
        query = {"t": math.ceil(grace)}
        engine.call("POST", f"/containers/{container}/stop", query, patience=grace + KILLED_WITHIN)


def _handle_ended(engine: Engine, mark: str, grace: float, before: Container) -> bool:
    """Handles a container that ended before it was signalled: marks it, or stops it if it was restarted."""
    container = _inspected(engine, before)
    if container is None:
        return False
    if container.live or (not before.mark and not container.mark and not container.finished):
        time.sleep(0.05)  # the engine has restarted it, or is about to
        return _mark_and_stop(engine, mark, grace, container)
    if not before.mark and not (container.mark and _was_stopped(container)):
        # a container that ended by itself keeps its name, unless it would have been restarted or retried
        awaited = container.exit_code and (
            container.restarts < container.allowed_restarts or (mark == CANCELLED and _has_retry(container))
        )
        if awaited:
            _rename(engine, container, lambda c: c.marked(mark))
        else:
            _rename(engine, container, lambda c: c.named("") if c.mark == mark else c.full_name)
    return False


def _has_retry(container: Container) -> bool:
    """Returns True if the rules of a failed container's replica have a retry left."""
    used = container.retry.get("used", {})
    for ordinal, (role, replica) in enumerate(job_of([container]).members):
        if (role.name, replica) == (container.role, container.replica):
            scopes = {"APPLICATION": "application", "ROLE": f"role {role.name}"}
            return bool(used.get(scopes.get(role.policy, str(ordinal)), 0) < role.max_retries)
    return False


def _was_stopped(container: Container) -> bool:
    """Returns True if a container was ended by a stop signal, which another process must have sent.

    The supervisor and a cancelling command may stop the same container.
    """
    name = (container.signal or "").removeprefix("SIG")
    number = str((container.exit_code or 128) - 128)
    expected = container.stop_signal.removeprefix("SIG")
    return bool(name) and not container.oom and (name == "KILL" or expected in (name, number))


def join_kills() -> None:
    """Waits for the threads of this process that kill containers after the grace period."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _kill_after(engine: Engine, signalled: Sequence[tuple[Container, float]], mark: str) -> None:
    soon = time.monotonic() + SOON
    brief = in_parallel(lambda one: _has_ended(engine, one[0], min(soon, one[1])), signalled)
    left = [one for one, over in zip(signalled, brief, strict=True) if over is not True]
    if left and mark == CANCELLED and not job_of([container for container, _ in left]).needs_supervisor:
        with suppress(OSError, StateError):  # without a supervisor, only this thread kills them
            provide_supervisor(left[0][0].app_id)

    def kill(one: tuple[Container, float]) -> None:
        container, deadline = one
        if not _has_ended(engine, container, deadline):
            with suppress(StateError, OSError):  # the container or the engine has stopped meanwhile
                engine.call("POST", f"/containers/{container.id}/kill", {"signal": "SIGKILL"})

    in_parallel(kill, left)


def _has_ended(engine: Engine, container: Container, deadline: float) -> bool:
    """Waits for a container to end; returns False if the deadline passes first."""
    try:
        patience = max(deadline - time.monotonic(), 0.05)
        engine.call("POST", f"/containers/{container.id}/wait", patience=patience)
    except EngineError:
        return True  # it was removed
    except Exception:
        time.sleep(max(deadline - time.monotonic(), 0.0))  # the engine no longer answers
        return False
    return True


def _rename(engine: Engine, container: Container, due: Callable[[Container], str]) -> bool:
    """Renames a container; returns False if it is ending or was removed.

    The request names the container by the name that was read, not by its id: the engine rejects it if another
    process has renamed the container meanwhile. Then the container is read again, so that no mark is lost.

    Args:
        engine: the engine.
        container: the container.
        due: returns the name that a container should have.
    """
    read_name = container.full_name
    for _ in range(PASSES):
        name = due(container)
        if name == read_name:
            break
        try:
            engine.call("POST", f"/containers/{read_name}/rename", {"name": name})
            break
        except EngineError as error:
            if error.status not in (GONE, CONFLICT, 400):
                raise
            current = _inspected(engine, container)
            if current is None or (error.status == GONE and current.full_name == read_name):
                return False
            taken = error.status == CONFLICT and current.full_name == read_name
        read_name = current.full_name
        # a container that is not ours may have the name
        if taken:
            container = replace(current, name=f"{container.name}.0")
        else:
            container = current
    return True


def _post(engine: Engine, path: str, query: Mapping[str, int] | None = None) -> None:
    try:
        engine.call("POST", path, query)
    except EngineError as error:
        if error.status not in (GONE, CONFLICT, SAME):
            raise


def remove(engine: Engine, ids: Iterable[str]) -> list[Exception]:
    """Removes containers, running or not, with their anonymous volumes; returns the errors."""

    def one(container: str) -> None:
        for _ in range(50):
            try:
                engine.call("DELETE", f"/containers/{container}", {"force": 1, "v": 1})
                return
            except EngineError as error:
                if error.status == GONE:
                    return
                if error.status != CONFLICT:  # another process is removing it
                    raise
            time.sleep(0.1)

    return [result for result in in_parallel(one, ids) if isinstance(result, Exception)]


def remove_all(engine: Engine, app_id: str) -> None:
    """Removes all containers of an application, readable or not, and its folder on this machine.

    Raises:
        StateError: a container or the folder cannot be removed.
    """
    remove_containers(engine, app_id)
    remove_folder(app_id)
    record.forget_old(app_id)
    paths = own_folder(app_id)
    if paths is not None:
        remove_own_folder(paths)


def remove_own_folder(paths: JobPaths) -> None:
    """Removes the folder of an application that was submitted here, and the reports about its stalls.

    Raises:
        StateError: it cannot be removed.
    """
    try:
        with suppress(FileNotFoundError):
            pruning.remove_job(paths, Path(job_record.JobRecord.load(paths.record).log_dir))
    except StateError as error:
        if error.code not in job_record.UNREADABLE:
            raise
        pruning.remove_unreadable(Home(paths.folder.parent.parent), paths)


def remove_containers(engine: Engine, app_id: str) -> None:
    """Removes all containers of an application, readable or not, and its volume.

    Raises:
        StateError: a container cannot be removed.
    """
    mounts = False
    while own := {c.id for c in containers_of(engine, app_id) if not c.removed}:
        listed = [entry for entry in entries(engine, app_id) if entry["Id"] in own]
        mounts = mounts or checkpoint_volume(app_id) in str([entry.get("Mounts") for entry in listed])
        failed = remove(engine, own)
        if failed:
            raise StateError(f"application {app_id} cannot be removed: {failed[0]}") from failed[0]
    if mounts:
        remove_volume(engine, app_id)


def remove_volume(engine: Engine, app_id: str) -> None:
    """Removes the volume for the checkpoints of an application, if it exists."""
    with suppress(EngineError):
        engine.call("DELETE", f"/volumes/{checkpoint_volume(app_id)}")


def delete(engine: Engine, app_id: str) -> None:
    """Cancels an application, waits for its end, and removes its containers with their anonymous volumes.

    Also removes the records of the application on this machine.

    Raises:
        StateError: it belongs to another user, or a container cannot be removed.
    """
    containers = find_containers(engine, app_id, tolerant=True).get(app_id, [])
    if containers:
        _require_own(containers, "deleted", "docker rm -f")
        cancel(engine, app_id)
        if damage_of(containers):
            grace = GRACE
        else:
            grace = job_of(containers).grace
        _wait_for_end(engine, app_id, time.monotonic() + grace + KILLED_WITHIN)
    paths = own_folder(app_id)
    if paths is not None:
        with suppress(OSError):
            locks.wait_free(paths.lock, pruning.FREE_WITHIN)  # its supervisor records the end
    remove_all(engine, app_id)


def _wait_for_end(engine: Engine, app_id: str, end: float) -> None:
    """Waits until no container of an application runs, or until ``end`` on the monotonic clock."""
    with closing(Events(engine, app_id)) as events:
        while time.monotonic() < end:
            containers = find_containers(engine, app_id, tolerant=True).get(app_id, ())
            if not any(c.live for c in containers):
                return
            if not events.wait(min(1.0, max(end - time.monotonic(), 0.0))):
                return
