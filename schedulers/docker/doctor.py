"""Checks of a Docker engine: its version, GPUs, logs and network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchx.errors import TorchxError
from torchx.schedulers.docker.engine.address import NoEngineError, require_socket
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.request import NETWORK
from torchx.scheduling.findings import Finding, Verdict

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
    yield _gpus(info)
    yield _logs(info)
    yield _network(engine)


def _gpus(info: Any) -> Finding:
    if "nvidia" in (info.get("Runtimes") or {}):
        return Finding("GPUs", Verdict.GOOD, "available to containers")
    return Finding(
        "GPUs", Verdict.ABSENT, "the engine has no GPU runtime", "install NVIDIA's container toolkit"
    )


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
