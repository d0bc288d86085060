"""The properties of an application in containers that its rules need, from the label of its containers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from torchx.json_shape import items_at
from torchx.lazy import lazy_imports
from torchx.schedulers.docker.containers import Container
from torchx.scheduling.limits import LimitRule
from torchx.settings import AFTER, SERVICE

with lazy_imports:
    from torchx.services import probe

if TYPE_CHECKING:
    from torchx.json_limits import Data
    from torchx.services.probe import ServiceRule

BY_ENGINE = "ENGINE"
"""The policy of a role whose containers the engine restarts: those of jobs of earlier versions."""


class RoleFacts(NamedTuple):
    """The properties of a role that the rules need.

    Attributes:
        name: its name.
        replicas: the number of its replicas.
        max_retries: maximum number of retries.
        policy: its retry policy, or BY_ENGINE.
        service: the rule of a service; None for an ordinary role.
        after: the roles that must be ready or have succeeded before it starts.
    """

    name: str
    replicas: int
    max_retries: int = 0
    policy: str = "APPLICATION"
    service: ServiceRule | None = None
    after: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """The properties of an application that the rules need.

    Attributes:
        app_id: the application.
        roles: its roles in order.
        cfg: the run options.
        data: the data of the label JOB.
    """

    app_id: str
    roles: tuple[RoleFacts, ...]
    cfg: Data
    data: Data

    @property
    def grace(self) -> float:
        """Seconds between the stop signal and SIGKILL."""
        return self._seconds("grace_period", 10.0)

    @property
    def fail_fast(self) -> bool:
        """Whether one permanent failure ends all replicas."""
        return bool(self.cfg.get("fail_fast", True)) and bool(self.data)

    @property
    def backoff(self) -> float:
        """Seconds before the first retry."""
        return self._seconds("retry_backoff", 1.0)

    def _seconds(self, option: str, default: float) -> float:
        value = self.cfg.get(option)
        if isinstance(value, (int, float)):
            return float(value)
        return default

    @property
    def limits(self) -> LimitRule:
        """The rule of its time limit."""
        return LimitRule.of(self.cfg)

    @cached_property
    def members(self) -> list[tuple[RoleFacts, int]]:
        """All replicas by ordinal, as role and replica id."""
        return [(role, replica) for role in self.roles for replica in range(role.replicas)]

    @property
    def has_services(self) -> bool:
        """Whether it has services, or roles that start after others."""
        return any(role.service or role.after for role in self.roles)

    @property
    def needs_supervisor(self) -> bool:
        """Whether the end of a replica may require an action that the engine does not take itself."""
        retried = any(role.max_retries and role.policy != BY_ENGINE for role in self.roles)
        watched = self.limits.limit is not None or any(map(self.cfg.get, ("stall", "straggler", "policies")))
        return retried or watched or self.has_services or (self.fail_fast and len(self.members) > 1)


def job_of(containers: Sequence[Container]) -> Job:
    """Returns the job of some containers.

    Containers created by other programs lack the label JOB: their roles are derived from their other labels.
    """
    data = next((c.job for c in containers if c.job), {})
    if data:
        job = job_from(containers[0].app_id, data)
        restarted = {c.role for c in containers if c.allowed_restarts}
        roles = (role._replace(policy=BY_ENGINE) if role.name in restarted else role for role in job.roles)
        return replace(job, roles=tuple(roles))
    counts: dict[str, int] = {}
    for container in containers:
        counts[container.role] = max(counts.get(container.role, 0), container.replica + 1)
    return Job(containers[0].app_id, tuple(RoleFacts(name, n) for name, n in counts.items()), {}, {})


def job_from(app_id: str, data: Data) -> Job:
    """Returns the job from the data of the label JOB."""
    roles = tuple(_facts_of(role) for role in data["app"]["roles"])
    return Job(app_id, roles, data.get("cfg") or {}, data)


def _facts_of(role: Data) -> RoleFacts:
    facts = RoleFacts(role["name"], role["num_replicas"], role["max_retries"], role["retry_policy"])
    metadata = role.get("metadata") or {}
    if SERVICE in metadata:
        facts = facts._replace(service=probe.rule_of(metadata[SERVICE]))
    return facts._replace(after=tuple(items_at(metadata, str, AFTER)))
