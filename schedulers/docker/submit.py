"""From a request to containers that run: all of them, or nothing of them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torchx import settings
from torchx.errors import StateError, UsageError
from torchx.machine import locks as lock
from torchx.machine.files import make_folder
from torchx.schedulers.docker.cancel import remove
from torchx.schedulers.docker.container_body import to_body
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.gpus import leased
from torchx.schedulers.docker.images.program import is_missing
from torchx.schedulers.docker.images.pull import provide
from torchx.schedulers.docker.labels import APP_ID, JOB, USER
from torchx.schedulers.docker.record import forget, label_data, save
from torchx.schedulers.docker.replay import Job, job_from
from torchx.schedulers.docker.request import NETWORK, DockerContainer, DockerJob
from torchx.schedulers.docker.supervisor_launch import docker_home, start_supervisor
from torchx.schedulers.shared.owner import user_name


def submit(
    engine: Engine, request: DockerJob, data: Mapping[str, Any], tell: Callable[[str], None]
) -> list[str]:
    """Makes and starts the containers of an application.

    Args:
        engine: where they run.
        request: the containers.
        data: all that is to be kept of it.
        tell: called with a line about what takes long.

    Returns:
        What there is to say about it, a line each.

    Raises:
        StateError: the engine is in the way; nothing is left.
        UsageError: the request cannot be right, or was submitted before.
    """
    job = job_from(request.app_id, data)
    if engine.call(
        "GET", "/containers/json", {"all": 1, "filters": {"label": [f"{APP_ID}={request.app_id}"]}}
    ):
        raise UsageError(
            f"{request.app_id} is there already: a request is submitted once",
            hint="make a new dry-run for it",
        )
    text = json.dumps(label_data(data), separators=(",", ":"))
    notes = _build(engine, request, tell)
    bodies = [_body(container, text) for container in request.containers]
    images = dict.fromkeys(container.image for container in request.containers)
    notes += [note for note in (provide(engine, image, tell) for image in images) if note]
    for network in dict.fromkeys(body["HostConfig"].get("NetworkMode", "") for body in bodies):
        if network == NETWORK:
            _provide_network(engine)
    names = [str(container.kwargs.get("name", "")) for container in request.containers]
    with _lock(job) as descriptors, leased(engine, bodies, os.environ) as said:
        notes += said
        named = list(zip(names, bodies, strict=True))
        save(request.app_id, data, engine.address.text)
        try:
            _start(engine, request.app_id, named, lambda: _supervise(job, descriptors))
        except BaseException:
            forget(request.app_id)
            raise
    return notes


def _build(engine: Engine, request: DockerJob, tell: Callable[[str], None]) -> list[str]:
    """Builds what is not there yet, and makes the request name what is meant for ever."""
    if not request.builds:
        return []
    from torchx.schedulers.docker.images.workspace import provide_image  # on demand: few need it

    notes: list[str] = []
    for plan in request.builds:
        image, said = provide_image(engine, plan, tell)
        notes += said
        for container in request.containers:
            if container.image == plan.name:
                container.image = image
                environment = container.kwargs.get("environment")
                if isinstance(environment, dict):
                    environment[settings.TORCHX_IMAGE] = image
    return notes


def _body(container: DockerContainer, data: str) -> dict[str, Any]:
    body = to_body(container.image, container.command, container.kwargs)
    body["Labels"] = {**body.get("Labels", {}), JOB: data, USER: user_name()}
    return body


def _start(
    engine: Engine, app_id: str, bodies: list[tuple[str, dict[str, Any]]], then: Callable[[], None]
) -> None:
    """Makes and starts containers, and removes them all when one cannot be started or what follows fails."""

    def create(named: tuple[str, dict[str, Any]]) -> str:
        name, body = named
        made: dict[str, Any] = engine.call("POST", "/containers/create", {"name": name}, body)
        return str(made["Id"])

    def start(container: tuple[str, str]) -> None:
        engine.call("POST", f"/containers/{container[1]}/start")

    names = [name for name, _ in bodies]
    try:
        created = in_parallel(create, bodies)
        _check(names, created)
        made = [c for c in created if isinstance(c, str)]
        _check_programs(engine, bodies, made)
        _check(names, in_parallel(start, list(zip(names, made, strict=True))))
        then()
    except BaseException:
        asked = {"all": 1, "filters": {"label": [f"{APP_ID}={app_id}"]}}
        left = remove(engine, [c["Id"] for c in engine.call("GET", "/containers/json", asked)])
        if left:
            raise StateError(f"what was made before the start failed cannot be removed: {left[0]}") from left[
                0
            ]
        raise


def _check_programs(engine: Engine, bodies: list[tuple[str, dict[str, Any]]], made: list[str]) -> None:
    """Looks for each program once in each image, so that an application that lacks one starts nothing."""
    firsts: dict[tuple[str, str], tuple[str, str]] = {}
    for (name, body), container in zip(bodies, made, strict=True):
        if body["HostConfig"].get("Init") and not body.get("Entrypoint"):
            firsts.setdefault((body["Image"], body["Cmd"][0]), (name, container))

    def look(first: tuple[tuple[str, str], tuple[str, str]]) -> bool:
        (_, program), (_, container) = first
        return is_missing(engine, container, program)

    for (key, (name, _)), missing in zip(
        firsts.items(), all_of(in_parallel(look, firsts.items())), strict=True
    ):
        if missing:
            raise StateError(f"{name} cannot be started: no program `{key[1]}` in its image {key[0]}")


def _check(names: list[str], results: list[Any]) -> None:
    for name, result in zip(names, results, strict=True):
        if isinstance(result, EngineError):
            raise _explain(name, result) from result
    all_of(results)


def _explain(name: str, error: EngineError) -> StateError:
    """Returns an error that says what is in the way of a container."""
    text = error.message
    low = text.lower()
    if error.status == 409 and "already in use" in low:
        return StateError(
            f"there is a container {name} already",
            hint=f"see whose it is, then remove it: docker rm -f {name}",
        )
    if "port is already allocated" in low or "address already in use" in low:
        port = text.partition("0.0.0.0:")[2].partition(" ")[0]
        taken = f"port {port.split(':')[0].rstrip(':')}" if port else "a port that it publishes"
        return StateError(
            f"{name} cannot be started: {taken} is taken on the engine's machine", hint="see: docker ps"
        )
    if "executable file not found" in low or ("no such file or directory" in low and "exec" in low):
        program = text.partition('exec: "')[2].partition('"')[0]
        what = f"no program `{program}` in its image" if program else text
        return StateError(f"{name} cannot be started: {what}")
    if "could not select device driver" in low:
        return StateError(
            f"{name} cannot be started: the engine has no GPUs to give",
            hint="the NVIDIA container toolkit lets an engine give GPUs; without: --gpu 0",
        )
    return StateError(f"{name} cannot be started: {_cause(text)}")


def _cause(text: str) -> str:
    """Returns the part of the engine's words that tells the cause.

    >>> _cause("failed to create shim: OCI runtime create failed: a.go:380: no such device: unknown")
    'no such device'
    """
    parts = [part for part in text.removesuffix(": unknown").split(": ") if part]
    told = [
        part
        for part in parts
        if ".go:" not in part and not part.startswith(("failed to create", "OCI runtime"))
    ]
    return ": ".join(told) or text


def _provide_network(engine: Engine) -> None:
    home = docker_home().path
    make_folder(home)
    descriptor = os.open(home / "network.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # an engine may make two networks of one name when asked twice at once
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            engine.call("GET", f"/networks/{NETWORK}")
        except EngineError as error:
            if error.status != 404:
                raise
            body = {"Name": NETWORK, "Driver": "bridge", "CheckDuplicate": True}
            try:
                engine.call("POST", "/networks/create", None, body)
            except EngineError as race:
                if race.status != 409:
                    raise StateError(f"the network {NETWORK} cannot be made: {race.message}") from race
    finally:
        os.close(descriptor)


@contextmanager
def _lock(job: Job) -> Iterator[list[int]]:
    """Holds the lock of a job that needs a supervisor; its folder goes when the start fails."""
    if not job.needs_supervisor:
        yield []
        return
    paths = docker_home().job(job.app_id)
    try:
        make_folder(paths.folder)
        held = lock.acquire(paths.lock)
    except OSError as error:
        raise StateError(f"the job cannot be recorded at {paths.folder}: {error.strerror}") from error
    if held is None:
        raise UsageError(f"{job.app_id} is being submitted by somebody else")
    try:
        yield [held]
    except BaseException:
        shutil.rmtree(paths.folder, ignore_errors=True)
        raise
    finally:
        os.close(held)


def _supervise(job: Job, descriptors: list[int]) -> None:
    if descriptors:
        start_supervisor(docker_home().job(job.app_id), job.app_id, descriptors[0])
