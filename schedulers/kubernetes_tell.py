"""What an application on a cluster is, as far as its objects tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx.schedulers.kubernetes_attempts import label
from torchx.schedulers.kubernetes_facts import Facts
from torchx.schedulers.kubernetes_names import CONTAINER, ROLE_NAME

if TYPE_CHECKING:
    from torchx.specs.app import AppDef


def app_of(facts: Facts) -> AppDef:
    """Returns the application as it was written down; where that is not there, what its jobs show."""
    from torchx.specs.serialize import app_from_dict

    record = facts.record
    if record:
        return app_from_dict(record["app"])
    roles = [_role(job) for job in facts.jobs or facts.mains]
    return app_from_dict({"name": facts.name, "roles": roles})


def _role(job: dict[str, Any]) -> dict[str, Any]:
    spec = job.get("spec") or {}
    containers = ((spec.get("template") or {}).get("spec") or {}).get("containers") or [{}]
    main = next((c for c in containers if c.get("name") == CONTAINER), containers[0])
    return {
        "name": label(job, ROLE_NAME) or job["metadata"]["name"],
        "image": main.get("image") or "",
        "entrypoint": (main.get("command") or [""])[0],
        "args": list(main.get("args") or ()),
        "num_replicas": spec.get("completions") or 1,
    }
