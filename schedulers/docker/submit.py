"""Submits a request: creates and starts all its containers, or none."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.jobs.end import LARGEST_REQUEST
from torchx.jobs.paths import Home, JobPaths, state_home
from torchx.jobs.ticket import Ticket
from torchx.json_limits import Data, Object, compact_json
from torchx.lazy import lazy_imports
from torchx.machine import files
from torchx.schedulers.docker import networks
from torchx.schedulers.docker.cancel import GONE, cancel, remove, remove_volume
from torchx.schedulers.docker.container_body import Environment
from torchx.schedulers.docker.containers import read
from torchx.schedulers.docker.engine.client import LOADED_PATIENCE, Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.folder import begin, own_folder, record_of, save_request
from torchx.schedulers.docker.gpus import lease
from torchx.schedulers.docker.images.program import is_missing
from torchx.schedulers.docker.images.pull import provide
from torchx.schedulers.docker.labels import ENDS_AT, JOB, USER
from torchx.schedulers.docker.lookup import containers_of, entries
from torchx.schedulers.docker.record import job_data, label_data
from torchx.schedulers.docker.replay import first_starts
from torchx.schedulers.docker.request import CHECKPOINTS, DockerContainer, DockerJob
from torchx.schedulers.docker.rules.job import Job, job_from
from torchx.schedulers.docker.supervisor_launch import spawn_supervisor
from torchx.schedulers.shared import owner
from torchx.schedulers.shared.options import progress_of, provide_checkpoint_dir
from torchx.scheduling.checks import require_application
from torchx.settings import POLICIES
from torchx.specs.app import AppDef, AppDryRunInfo
from torchx.specs.run_options import RunOptions

with lazy_imports:
    from torchx.schedulers.docker import heartbeats
    from torchx.schedulers.docker.images import user as images_user
    from torchx.schedulers.docker.images import workspace
    from torchx.schedulers.shared import queue
    from torchx.supervisor import foreign_policies, launch


def schedule(engine: Engine, info: AppDryRunInfo[DockerJob], session: str) -> str:
    """Creates and starts the containers of a request, and returns the id of the application.

    Raises:
        UsageError: the request is invalid, or was submitted before.
        StateError: the engine does not answer, an image is missing, or a container cannot be started.
    """
    app = require_application(info)
    data = job_data(app, info.cfg, session)
    if info.cfg.get(POLICIES):
        data[POLICIES] = foreign_policies.references_of(info.cfg)
    usual, engine.patience = engine.patience, LOADED_PATIENCE
    try:
        info.notes += submit(engine, info.request, app, info.cfg, data, progress_of(info))
    finally:
        engine.patience = usual
    return info.request.app_id


def submit(
    engine: Engine,
    request: DockerJob,
    app: AppDef,
    cfg: RunOptions,
    data: Data,
    report: Callable[[str], None],
) -> list[str]:
    """Creates and starts the containers of an application.

    Args:
        engine: the engine.
        request: the containers.
        app: the application.
        cfg: the run options.
        data: the data to record, from :func:`job_data`.
        report: called with a line about slow operations.

    Returns:
        Notes for the user, a line each; also why it waits, if its resources are not free.

    Raises:
        StateError: the containers cannot be created or started; all of them are removed.
        UsageError: the request is invalid, or was submitted before.
    """
    home, job = Home(state_home()), job_from(request.app_id, data)
    if entries(engine, request.app_id) or own_folder(request.app_id) is not None:
        raise UsageError(
            f"application {request.app_id} already exists: a dry-run can be submitted only once",
            hint="make a new dry-run",
        )
    text = compact_json(label_data(data))
    notes = _build(engine, request, report)
    if engine.address.path:
        provide_checkpoint_dir(data["cfg"])
    bodies = [_body(container, text) for container in request.containers]
    images = dict.fromkeys(container.image for container in request.containers)
    notes += [note for note in (provide(engine, image, report) for image in images) if note]
    named = list(zip([container.name for container in request.containers], bodies, strict=True))
    reservation, more = lease(engine, request.app_id, bodies, app, cfg, data["submitted_at"])
    notes += more
    record = record_of(engine.address, request.app_id, app, data, home)

    def fill(folder: Path) -> None:
        """Adds the heartbeats and steps, the request and the ticket to the folder of the record."""
        heartbeats.create(folder, len(named), cfg)
        save_request(folder, named)
        if isinstance(reservation, Ticket):
            # whatever the context of the docker command is by then
            queue.fill(folder, reservation, {**os.environ, "DOCKER_HOST": f"unix://{engine.address.path}"})

    if isinstance(reservation, Ticket):
        launch.launch(home, record, fill=fill, supervise=False)
        return notes + queue.enqueue(home, request.app_id)
    with reservation, launch.recorded(home, record, fill) as lock:
        networks.provide_for(engine, bodies)
        start_containers(engine, job, home.job(request.app_id), named, [lock, *reservation.descriptors])
    return notes


def start_containers(
    engine: Engine, job: Job, paths: JobPaths, containers: list[tuple[str, Object]], held: Sequence[int]
) -> None:
    """Creates and starts containers, and their supervisor; removes all of them if any of this fails.

    Args:
        engine: the engine.
        job: the rules of the application.
        paths: its folder.
        containers: the name and the body of each.
        held: the descriptors of its lock and of its leases, which the supervisor inherits.

    Raises:
        StateError: the containers cannot be created or started.
    """
    _begin_run([body for _, body in containers], job)
    _start(engine, job.app_id, containers, first_starts(job), lambda: supervise(engine, job, paths, held))
    cancel_if_requested(engine, job.app_id, paths)


def cancel_if_requested(engine: Engine, app_id: str, paths: JobPaths) -> None:
    """Cancels the containers of an application if that was requested while they were created.

    Raises:
        StateError: the engine does not answer.
    """
    if paths.cancel.exists():
        cancel(engine, app_id, now=b"kill" in files.read_file(paths.cancel, LARGEST_REQUEST))


def _build(engine: Engine, request: DockerJob, report: Callable[[str], None]) -> list[str]:
    """Builds missing images, and replaces their names in the request by ids or digests."""
    notes: list[str] = []
    for plan in request.builds:
        image, more = workspace.provide_image(engine, plan, report)
        notes += more
        for container in request.containers:
            if container.image == plan.name:
                container.image = container.environment[settings.TORCHX_IMAGE] = image
    return notes


def _body(container: DockerContainer, data: str) -> Object:
    """Returns the body to send; the request itself stays unchanged by the allocation of GPUs."""
    labels = {**container.body["Labels"], JOB: data, USER: owner.user_name()}
    return {**container.body, "Labels": labels, "HostConfig": dict(container.body["HostConfig"])}


def _begin_run(bodies: list[Object], job: Job) -> None:
    """Sets the end of the first run in the containers of a job with a time limit."""
    if job.limits.limit is None:
        return
    ends_at = math.ceil(time.time() + job.limits.limit)
    for body in bodies:
        body["Labels"][ENDS_AT] = str(ends_at)
        body["Env"] = list(body["Env"])
        Environment(body["Env"])[settings.TORCHX_ENDS_AT] = str(ends_at)


def _start(
    engine: Engine,
    app_id: str,
    bodies: list[tuple[str, Object]],
    first: Collection[int],
    then: Callable[[], None],
) -> None:
    """Creates all containers, starts the first ones, and calls ``then``; removes all if that fails."""

    def create(named: tuple[str, Object]) -> str:
        name, body = named
        made = networks.while_unique(
            engine, lambda: engine.call("POST", "/containers/create", {"name": name}, body)
        )
        return str(made["Id"])

    def start(container: tuple[str, str]) -> bool:
        """Returns False if the container was cancelled meanwhile: its name has a mark then."""
        name, identity = container
        try:
            networks.while_unique(engine, lambda: engine.call("POST", f"/containers/{name}/start"))
        except EngineError as error:
            now = read(engine.call("GET", f"/containers/{identity}/json"))
            if error.status != GONE or now is None or not now.mark:
                raise
            return False
        return True

    names = [name for name, _ in bodies]
    try:
        _provide_volumes(engine, [body for _, body in bodies])
        created = in_parallel(create, bodies)
        _check(names, created)
        made = [c for c in created if isinstance(c, str)]
        _check_programs(engine, bodies, made)
        _provide_checkpoints(engine, bodies, made)
        starting = [pair for n, pair in enumerate(zip(names, made, strict=True)) if n in first]
        started = in_parallel(start, starting)
        _check([name for name, _ in starting], started)
        then()
    except BaseException:
        left = remove(engine, [container.id for container in containers_of(engine, app_id)])
        remove_volume(engine, app_id)
        if left:
            raise StateError(f"containers of the failed start cannot be removed: {left[0]}") from left[0]
        raise
    if False in started:  # the cancellation may have missed those that were created after it
        cancel(engine, app_id)


def _provide_volumes(engine: Engine, bodies: Iterable[Object]) -> None:
    """Creates the volumes that containers share: on Podman, two that create one at the same time fail."""
    mounts = [mount for body in bodies for mount in body["HostConfig"].get("Mounts") or []]
    uses = Counter(mount.get("Source") for mount in mounts if mount.get("Type") == "volume")
    for name in [name for name, count in uses.items() if name and count > 1]:
        with suppress(EngineError):  # reported with the container
            engine.call("POST", "/volumes/create", None, {"Name": name})


def _check_programs(engine: Engine, bodies: list[tuple[str, Object]], made: list[str]) -> None:
    """Checks for each program once per image, so that nothing is started if one is missing."""
    firsts: dict[tuple[str, str], tuple[str, str]] = {}
    for (name, body), container in zip(bodies, made, strict=True):
        if body["HostConfig"].get("Init") and not body.get("Entrypoint"):
            firsts.setdefault((body["Image"], body["Cmd"][0]), (name, container))

    def check(first: tuple[tuple[str, str], tuple[str, str]]) -> bool:
        (_, program), (_, container) = first
        return is_missing(engine, container, program)

    for (key, (name, _)), missing in zip(
        firsts.items(), all_of(in_parallel(check, firsts.items())), strict=True
    ):
        if missing:
            raise StateError(f"{name} cannot be started: no program `{key[1]}` in its image {key[0]}")


def _provide_checkpoints(engine: Engine, bodies: list[tuple[str, Object]], made: list[str]) -> None:
    """Makes the volume for checkpoints writable for the users of the containers; checks a given folder.

    Raises:
        StateError: a user cannot write into the given folder.
    """
    firsts: dict[tuple[str, str], tuple[str, Object]] = {}
    for (_, body), container in zip(bodies, made, strict=True):
        for mount in body["HostConfig"].get("Mounts") or []:
            if mount.get("Target") == CHECKPOINTS:
                firsts.setdefault((body["Image"], str(body.get("User"))), (container, mount))
    for (image, _), (container, mount) in firsts.items():
        user = images_user.user_of(engine, container)
        if user is None:
            continue
        if mount["Type"] == "volume":
            images_user.open_volume(engine, made, CHECKPOINTS)
            return
        if engine.address.path and images_user.is_denied(engine, user, mount["Source"]):
            raise StateError(
                f"the folder for checkpoints, {mount['Source']}, is not writable for {user.name}, "
                f"the user of {image}",
                hint="make it writable for that user, or leave out checkpoint_dir: the default is a volume",
            )


def _check(names: list[str], results: list[Any]) -> None:
    for name, result in zip(names, results, strict=True):
        if isinstance(result, EngineError):
            raise _explain(name, result) from result
    all_of(results)


def _explain(name: str, error: EngineError) -> StateError:
    """Returns an error with the reason why a container cannot be created or started."""
    text = error.message
    low = text.lower()
    if error.status == 409 and "already in use" in low:
        return StateError(
            f"a container {name} already exists",
            hint=f"if it is not needed, remove it: docker rm -f {name}",
        )
    if "port is already allocated" in low or "address already in use" in low:
        port = text.partition("0.0.0.0:")[2].partition(" ")[0]
        port_name = "a port that it publishes"
        if port:
            port_name = f"port {port.split(':')[0].rstrip(':')}"
        return StateError(
            f"{name} cannot be started: {port_name} is in use on the engine's machine",
            hint="list the containers and their ports: docker ps",
        )
    if "executable file not found" in low or ("no such file or directory" in low and "exec" in low):
        program = text.partition('exec: "')[2].partition('"')[0]
        if program:
            cause = f"no program `{program}` in its image"
        else:
            cause = text
        return StateError(f"{name} cannot be started: {cause}")
    if "could not select device driver" in low:
        return StateError(
            f"{name} cannot be started: the engine provides no GPUs",
            hint="install the NVIDIA container toolkit, or run without GPUs: --gpu 0",
        )
    return StateError(f"{name} cannot be started: {_cause(text)}")


def _cause(text: str) -> str:
    """Returns the cause in an error message of the engine.

    >>> _cause("failed to create shim: OCI runtime create failed: a.go:380: no such device: unknown")
    'no such device'
    """
    parts = [part for part in text.removesuffix(": unknown").split(": ") if part]
    causes = [
        part
        for part in parts
        if ".go:" not in part and not part.startswith(("failed to create", "OCI runtime"))
    ]
    return ": ".join(causes) or text


def supervise(engine: Engine, job: Job, paths: JobPaths, held: Sequence[int]) -> None:
    """Records that the containers of an application have started, and starts its supervisor.

    On this machine each application gets one, as it takes the measurements too.

    Args:
        engine: the engine.
        job: the rules of the application.
        paths: its folder.
        held: the descriptors of its lock and of its leases, which the supervisor inherits.

    Raises:
        StateError: it does not start, and is needed.
    """
    if job.needs_supervisor or len(held) > 1:
        spawn_supervisor(paths, job.app_id, held)  # it records the start
        return
    begin(paths)
    if engine.address.path:
        # without measurements the job runs as well, and the next command for it starts a supervisor
        with suppress(OSError):
            spawn_supervisor(paths, job.app_id, held, urgent=False)
