"""What a Docker engine is, and what it can do for an application."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchx.errors import AbsentError, TorchxError
from torchx.schedulers.docker.engine.address import NoEngineError, require_socket
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.request import NETWORK
from torchx.scheduling.findings import Finding, Verdict

PATIENCE = 10.0
"""Seconds that an engine has for an answer."""


def diagnose() -> Iterator[Finding]:
    """Looks at the engine that applications would go to; changes nothing there."""
    try:
        require_socket()
        engine = Engine()
        told = engine.call("GET", "/version", patience=PATIENCE)
        info = engine.call("GET", "/info", patience=PATIENCE)
    except AbsentError as error:
        yield Finding("engine", Verdict.ABSENT, error.message, error.hint or "")
        return
    except TorchxError as error:
        yield Finding("engine", Verdict.WRONG, error.message, error.hint or "")
        return
    name = "Podman" if engine.is_podman else "Docker"
    yield Finding("engine", Verdict.GOOD, f"{engine.address}, {name} {told.get('Version')}")
    yield Finding("interface", Verdict.GOOD, f"version {engine.version}, {told.get('Os')}/{told.get('Arch')}")
    memory = int(info.get("MemTotal") or 0) / 1e9
    yield Finding("machine", Verdict.GOOD, f"{info.get('NCPU')} CPUs, {memory:,.0f} GB of memory")
    yield _gpus(info)
    yield _logs(info)
    yield _network(engine)


def _gpus(info: Any) -> Finding:
    if "nvidia" in (info.get("Runtimes") or {}):
        return Finding("GPUs", Verdict.GOOD, "the engine can give them")
    return Finding(
        "GPUs", Verdict.ABSENT, "the engine has no runtime for them", "NVIDIA's container toolkit adds it"
    )


def _logs(info: Any) -> Finding:
    driver = str(info.get("LoggingDriver") or "json-file")
    if driver in ("json-file", "local", "journald", "k8s-file"):
        return Finding("logs", Verdict.GOOD, f"kept by {driver}")
    return Finding(
        "logs", Verdict.WRONG, f"the driver {driver} keeps none that can be read", "set json-file or local"
    )


def _network(engine: Engine) -> Finding:
    try:
        engine.call("GET", f"/networks/{NETWORK}", patience=PATIENCE)
    except EngineError:
        return Finding("network", Verdict.ABSENT, f"{NETWORK} is made with the first application")
    except NoEngineError:
        # of Docker 20.10, when many containers start and end at once: https://github.com/moby/moby/issues/46661
        said = "the engine answers, but not when it is asked for its networks: no container can start or end"
        return Finding("network", Verdict.WRONG, said, "restart it; Docker 20.10 needs that at times")
    return Finding("network", Verdict.GOOD, NETWORK)
