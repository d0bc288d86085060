"""Services in the label of an application, which other users see: without the arguments of probes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchx.masking import MASK
from torchx.settings import AFTER, SERVICE


def public_order(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of a role that its start and end need."""
    order = {name: metadata[name] for name in (SERVICE, AFTER) if name in metadata}
    service = order.get(SERVICE)
    if isinstance(service, Mapping) and isinstance(service.get("ready"), str):
        order[SERVICE] = {**service, "ready": public_probe(service["ready"])}
    return order


def public_probe(ready: str) -> str:
    """Returns a probe without the arguments of its program and the query of its request.

    >>> public_probe("http:web/health?key=1"), public_probe("cmd:ping -k 1"), public_probe("tcp:web")
    ('http:web/health?********', 'cmd:ping ********', 'tcp:web')
    """
    mark = {"http": "?", "cmd": " "}.get(ready.partition(":")[0])
    head, found, _ = ready.partition(mark) if mark else (ready, "", "")
    return f"{head}{found}{MASK}" if found else ready
