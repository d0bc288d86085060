"""The number of an attempt in its pod: ``TORCHX_ATTEMPT``, as far as a cluster lets a pod know it.

A cluster counts the retries of a pod from 0, shows the count as a field of the pod, and cannot add to it. So
only a role that starts a shell, or has no retries, gets the number itself; any other gets the count.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from torchx.settings import TORCHX_ATTEMPT
from torchx.specs.app import Role

RETRIES = "TORCHX_RETRIES"
"""Set where a role has retries: how many attempts came before this one."""
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
# doubled: for Kubernetes, `$(` begins a variable
_COUNTS = f'export {TORCHX_ATTEMPT}=$$(( ${{{RETRIES}:-0}} + 1 )); exec "$0" "$@"'
FAILURES = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
"""The field in which a Job counts the failures of an index."""
RESTARTS = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
"""The field in which a JobSet counts the restarts of the whole."""


def field_of(role: Role) -> str:
    """Returns the field in which a Job counts the retries of a role; empty where there are none."""
    return FAILURES if role.max_retries else ""


def variables(retries_at: str | None) -> dict[str, dict[str, Any]]:
    """Returns the variables from which a program knows its attempt, by name.

    Args:
        retries_at: the field in which the cluster counts retries; empty where there are none, None where
            there are some and no field shows them.

    >>> variables("")["TORCHX_ATTEMPT"]["value"], list(variables(FAILURES))
    ('1', ['TORCHX_RETRIES'])
    """
    if retries_at is None:
        return {}
    if not retries_at:
        return {TORCHX_ATTEMPT: {"name": TORCHX_ATTEMPT, "value": "1"}}
    name = RETRIES
    return {name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": retries_at}}}}


def arguments(entrypoint: str, retries_at: str | None) -> list[str]:
    """Returns the arguments by which a shell sets ``TORCHX_ATTEMPT`` and then becomes what it is to run.

    >>> arguments("python", FAILURES), arguments("sh", "")
    ([], [])
    """
    if not retries_at or PurePosixPath(entrypoint).name not in _SHELLS:
        return []
    return ["-c", _COUNTS, entrypoint]


def own_arguments(args: Sequence[Any]) -> Sequence[Any]:
    """Returns the arguments of a container without those that :func:`arguments` has put before them.

    >>> own_arguments([*arguments("sh", FAILURES), "-c", "true"]), own_arguments(["-c", "true"])
    (['-c', 'true'], ['-c', 'true'])
    """
    return args[3:] if list(args[:2]) == ["-c", _COUNTS] else args
