"""The variables with the attempt number in a pod: ``TORCHX_ATTEMPT`` or ``TORCHX_RETRIES``.

A cluster provides the number of retries, from 0, as a field of the pod and cannot add 1 to it. Only a role
that starts a shell or has no retries gets the attempt number; others get the number of retries.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

from torchx.settings import TORCHX_ATTEMPT
from torchx.specs.app import Role

RETRIES = "TORCHX_RETRIES"
"""The number of previous attempts; set for a role with retries."""
_SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh")
# doubled: for Kubernetes, `$(` begins a variable
_COUNTS = f'export {TORCHX_ATTEMPT}=$$(( ${{{RETRIES}:-0}} + 1 )); exec "$0" "$@"'
FAILURES = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
"""The pod field with a Job's number of failures of an index."""
RESTARTS = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
"""The pod field with a JobSet's number of restarts."""


def field_of(role: Role) -> str:
    """Returns the pod field with a Job's number of retries; empty for a role without retries."""
    return FAILURES if role.max_retries else ""


def variables(retries_at: str | None) -> dict[str, dict[str, Any]]:
    """Returns the variables with the attempt number, by name.

    Args:
        retries_at: the pod field with the number of retries; empty without retries, None if no field has it.

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
    """Returns arguments that make a shell set ``TORCHX_ATTEMPT`` and then execute the program.

    >>> arguments("python", FAILURES), arguments("sh", "")
    ([], [])
    """
    if not retries_at or PurePosixPath(entrypoint).name not in _SHELLS:
        return []
    return ["-c", _COUNTS, entrypoint]


def own_arguments(args: Sequence[Any]) -> Sequence[Any]:
    """Returns the arguments of a container without those of :func:`arguments`.

    >>> own_arguments([*arguments("sh", FAILURES), "-c", "true"]), own_arguments(["-c", "true"])
    (['-c', 'true'], ['-c', 'true'])
    """
    return args[3:] if list(args[:2]) == ["-c", _COUNTS] else args
