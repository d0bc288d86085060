"""Describe a Slurm job: its state, and its replicas from the files written by their nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from torchx.exit_codes import KILLED
from torchx.schedulers.shared.batch import status as batch_status
from torchx.schedulers.shared.batch.batch_log import log_tail
from torchx.schedulers.shared.batch.ends import SCRIPT_KILLED, full_disk, why_no_folder
from torchx.schedulers.shared.batch.outcome import Outcome
from torchx.schedulers.shared.batch.paths import BatchPaths, read_own
from torchx.schedulers.shared.batch.record import BatchRecord
from torchx.schedulers.shared.batch.status import Reasons
from torchx.schedulers.slurm.limits import rule_of
from torchx.schedulers.slurm.outcome import outcome_without_slurm
from torchx.schedulers.slurm.parse import JobFacts, hosts_of
from torchx.schedulers.slurm.queue import SlurmJob, list_jobs
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.specs.run_options import RunOptions


def list_apps(cfg: RunOptions | None) -> list[ListAppResponse]:
    """Returns the jobs of torchx, newest first; run option ``all_users`` includes jobs of other users."""
    jobs = list_jobs(bool((cfg or {}).get("all_users")))
    return [listed(job.record, job.app_id, job.outcome, is_own=not job.owner) for job in jobs]


def listed(record: BatchRecord, app_id: str, outcome: Outcome, *, is_own: bool = True) -> ListAppResponse:
    """Returns the row of a job in a listing."""
    return batch_status.listed(record, app_id, outcome, _REASONS, is_own=is_own)


def describe_job(job: SlurmJob) -> DescribeAppResponse:
    """Returns the status of a job, without its roles."""
    return replace(describe(job.record, job.app_id, job.outcome, job.queue), owner=job.owner)


def last_known(record: BatchRecord, app_id: str) -> DescribeAppResponse:
    """Returns the status of a job by its files alone."""
    return describe(record, app_id, outcome_without_slurm(record), ())


def describe(
    record: BatchRecord, app_id: str, outcome: Outcome, queue: Sequence[JobFacts]
) -> DescribeAppResponse:
    """Returns the status of a job, without roles and metadata."""
    hosts = [_only_host(number, queue) for number in range(len(record.app.get("roles", ())))]
    return batch_status.describe(record, app_id, outcome, _REASONS, hosts)


def _why_it_failed(record: BatchRecord) -> tuple[str, str]:
    """Returns why a job failed of which no program has failed, and the name of this end."""
    roles, paths = record.app.get("roles", ()), record.paths
    if full_disk(paths.folder):
        return "", ""
    if unshared := unshared_folder(paths, log_tail(paths)):
        return unshared, ""
    killed = re.fullmatch(rb"(137|143) ([0-9]{1,6})\s*", read_own(paths.folder / "first") or b"")
    if killed is None or int(killed[2]) >= len(roles):
        return "", ""
    role = roles[int(killed[2])]["name"]
    return f"the step of {role} was killed by {_STEP_SIGNALS[killed[1]]}", SCRIPT_KILLED


_STEP_SIGNALS = {b"137": f"SIGKILL: {KILLED}", b"143": "SIGTERM: by scancel or another process"}
"""The signals that end a step without a failed program, and their senders, by the exit code of srun."""


def _only_host(role: int, queue: Sequence[JobFacts]) -> str:
    """Returns the node of a role that has only one; empty if it has several, or is unknown."""
    part = next((part for part in queue if part.part == role and part.nodes), None)
    hosts = []
    if part is not None:
        hosts = list(hosts_of(part.nodes))
    if len(hosts) == 1:
        return hosts[0]
    return ""


_REASONS = Reasons(rule_of, _why_it_failed)


def unshared_folder(paths: BatchPaths, text: str) -> str:
    """Returns the message about a node without the job's folder, from the end of the log; else empty."""
    node = None
    if re.search(_NO_SCRIPT, text):
        node = re.search(_EXITED, text)
    if node is not None:  # srun ends the replicas on other nodes, and reports them later
        return why_no_folder([paths.folder], next(hosts_of(node[1])))
    return ""


_NO_SCRIPT = r"/role-[0-9]+\.sh: No such file"
"""In the message of a shell, dash or bash, on a node without the file of a role."""
_EXITED = r"(?m)srun: error: (\S+): tasks? \S+: Exited with exit code (?:2|127)$"
"""The message of srun about that shell, with its nodes; dash may write the end of its own line after it."""
