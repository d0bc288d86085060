"""Checks of a Docker engine: its version, GPUs, logs and network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torchx.errors import TorchxError
from torchx.schedulers.docker.engine.address import NoEngineError, require_socket
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.images.program import DEFAULT_PATH
from torchx.schedulers.docker.request import NETWORK
from torchx.scheduling.findings import Finding, Verdict

HOOK = "nvidia-container-runtime-hook"
"""The program that gives GPUs to containers."""
PODMAN_DEVICES = ("/etc/cdi", "/var/run/cdi")
"""The folders with the descriptions of devices that Podman reads."""
PATIENCE = 10.0
"""Seconds to wait for an answer of the engine."""


def diagnose() -> Iterator[Finding]:
    """Checks the configured engine; changes nothing."""
    try:
        require_socket()
        engine = Engine()
        version = engine.call("GET", "/version", patience=PATIENCE)
        info = engine.call("GET", "/info", patience=PATIENCE)
    except TorchxError as error:
        yield Finding.of_error("engine", error)
        return
    name = "Podman" if engine.is_podman else "Docker"
    yield Finding("engine", Verdict.GOOD, f"{engine.address}, {name} {version.get('Version')}")
    yield Finding(
        "interface", Verdict.GOOD, f"version {engine.version}, {version.get('Os')}/{version.get('Arch')}"
    )
    memory = int(info.get("MemTotal") or 0) / 1e9
    yield Finding("machine", Verdict.GOOD, f"{info.get('NCPU')} CPUs, {memory:,.0f} GB of memory")
    yield _gpus(engine, info)
    yield _logs(info)
    yield _network(engine)


def _gpus(engine: Engine, info: Any) -> Finding:
    if _provides_gpus(engine, info):
        return Finding("GPUs", Verdict.GOOD, "available to containers")
    return Finding(
        "GPUs",
        Verdict.ABSENT,
        "the engine reports no GPU runtime",
        "install NVIDIA's container toolkit; to check: docker run --rm --gpus all IMAGE nvidia-smi",
    )


def _provides_gpus(engine: Engine, info: Any) -> bool:
    """Returns True if an engine has one of the ways to give GPUs to containers."""
    if "nvidia" in (info.get("Runtimes") or {}):
        return True
    devices = info.get("DiscoveredDevices") or ()
    if any("nvidia" in str(device) for device in devices):
        return True
    if not engine.address.path:
        return False
    # the engine calls this program if no runtime is configured; its PATH may have more folders than this one
    places = os.pathsep.join([os.environ.get("PATH", ""), DEFAULT_PATH])
    folders = info.get("CDISpecDirs") or ()
    if engine.is_podman:
        folders = PODMAN_DEVICES
    described = (path for folder in folders for path in Path(folder).glob("nvidia*"))
    return shutil.which(HOOK, path=places) is not None or any(described)


def _logs(info: Any) -> Finding:
    driver = str(info.get("LoggingDriver") or "json-file")
    if driver in ("json-file", "local", "journald", "k8s-file"):
        return Finding("logs", Verdict.GOOD, f"kept by {driver}")
    return Finding(
        "logs", Verdict.WRONG, f"logs of the driver {driver} cannot be read", "set json-file or local"
    )


def _network(engine: Engine) -> Finding:
    try:
        engine.call("GET", f"/networks/{NETWORK}", patience=PATIENCE)
    except EngineError:
        return Finding("network", Verdict.ABSENT, f"{NETWORK} is created with the first application")
    except NoEngineError:
        # Docker 20.10, if many containers start and end together: https://github.com/moby/moby/issues/46661
        problem = "the engine does not answer requests for its networks: no container can start or end"
        return Finding(
            "network", Verdict.WRONG, problem, "restart the engine; Docker 20.10 sometimes needs that"
        )
    return Finding("network", Verdict.GOOD, NETWORK)
