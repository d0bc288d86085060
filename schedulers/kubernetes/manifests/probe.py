"""The readiness probe of a container, from the probe of a service."""

from __future__ import annotations

import shlex
from typing import Any

from torchx.schedulers.kubernetes.manifests.escaping import MacroFiller
from torchx.services.probe import CMD, HTTP, TCP, ServiceRule
from torchx.settings import SERVICE
from torchx.specs.app import Role

LONGEST_CHECK = 5
"""Seconds that a single check may take."""


def readiness_probe(role: Role, filler: MacroFiller) -> dict[str, Any]:
    """Returns the fields of a container for the probe of a service; empty if the cluster has no such probe.

    Args:
        role: the role.
        filler: substitutes its macros.

    >>> from torchx.specs import service
    >>> web = service(Role("web", "img", port_map={"http": 80}), "http:http/health")
    >>> readiness_probe(web, MacroFiller("ns:a", None))["readinessProbe"]["httpGet"]
    {'port': 80, 'path': '/health'}
    """
    if SERVICE not in role.metadata:
        return {}
    probe = ServiceRule.of(role.metadata[SERVICE]).probe
    port = int(probe.port) if probe.port.isdigit() else role.port_map.get(probe.port, 0)
    checks: dict[str, dict[str, Any]] = {
        HTTP: {"httpGet": {"port": port, "path": probe.text}},
        TCP: {"tcpSocket": {"port": port}},
        CMD: {"exec": {"command": [filler.fill(word) for word in shlex.split(probe.text)]}},
    }
    if probe.kind not in checks:
        return {}
    times = {"periodSeconds": 1, "timeoutSeconds": LONGEST_CHECK, "failureThreshold": 3}
    return {"readinessProbe": {**checks[probe.kind], **times}}
