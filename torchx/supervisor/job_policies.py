"""The policies of a local job, in the order in which its supervisor calls them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torchx.jobs.events import Clock
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.lazy import lazy_imports
from torchx.supervisor.limits import Limits
from torchx.supervisor.measurement.sampling import Sampler
from torchx.supervisor.policies import Application, Policy
from torchx.supervisor.policy import Gang
from torchx.supervisor.replicas import Replicas, Running
from torchx.supervisor.stalls.actions import rule_of

with lazy_imports:
    from torchx.supervisor import foreign_policies, retry_causes
    from torchx.supervisor.services import readiness
    from torchx.supervisor.stalls import job as job_stalls
    from torchx.supervisor.stragglers import policy as stragglers


def policies_of(
    record: JobRecord,
    paths: JobPaths,
    replicas: Replicas,
    gang: Gang,
    note: Callable[..., None],
    clock: Clock,
) -> list[Policy[Running]]:
    """Returns the policies of a job; all their modules are loaded, as torchx may be upgraded while it runs.

    Args:
        record: the job.
        paths: its record.
        replicas: its replicas.
        gang: its rules.
        note: appends to its events.
        clock: its clock.

    Raises:
        StateError: a policy of another package cannot be loaded.
    """
    policies: list[Policy[Running]] = [Limits(record, paths, replicas, gang, note)]
    if any(role.max_retries for role in record.roles):
        policies.append(retry_causes.RetryCauses(record.cfg, gang))
    rule = rule_of(record.cfg)
    if rule is not None:
        policies.append(job_stalls.JobStalls(rule, record, paths, replicas, gang, note, clock.now))
    if rule is not None or record.cfg.get("straggler"):
        members = [(role.name, replica) for _, role, replica in record.replicas()]
        policies += stragglers.policies_of(
            record.cfg, paths, members, note, clock.now, partial(job_stalls.notify, paths)
        )
    if any(role.service is not None for role in record.roles):
        policies.append(readiness.Readiness(record, replicas, gang, note))
    if record.policies:
        names = [replicas.label(ordinal) for ordinal in range(len(replicas))]
        application = Application(record.app_id, names, record.cfg, record.app.get("metadata", {}))
        policies += foreign_policies.create(record.policies, application)
    # last: the CPU time of processes that no other policy has started counts for their replicas
    return [*policies, Sampler(record, paths, clock, replicas)]
