"""The variables that a program sets at its start in a pod: the attempt number, and the end of the run.

A cluster provides the number of retries, from 0, as a field of the pod and cannot add 1 to it. So a role
with retries gets the attempt number if it starts a program that can add: a shell or Python, which sets the
variable and executes itself with the arguments of the role. Others get the number of retries. In the same way
it sets the end of a run with a time limit, since a pod's variables do not have the time of its start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any

from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.objects import Object, count_of
from torchx.schedulers.kubernetes.names import LIMIT
from torchx.settings import TORCHX_ATTEMPT, TORCHX_ENDS_AT
from torchx.specs.app import Role

RETRIES = "TORCHX_RETRIES"
"""The number of previous attempts of the same Job; set for a role with retries."""
EARLIER = "TORCHX_EARLIER_ATTEMPTS"
"""The number of attempts before those of this Job; set after a restart of all replicas."""
_SHELL = "(ba|da|a|k|z)?sh"
_PYTHON = r"python(3(\.\d+)?)?"
# an older cluster leaves the number of retries empty; doubled: for Kubernetes, `$(` begins a variable
_SHELL_COUNTS = (
    f'[ -z "${RETRIES}" ] || export {TORCHX_ATTEMPT}=$$(( ${RETRIES} + ${{{EARLIER}:-0}} + 1 )); '
    'exec "$0" "$@"'
)
_PYTHON_COUNTS = (
    f"import os, sys; r, e = (os.environ.get(n) for n in ('{RETRIES}', '{EARLIER}')); "
    f"r and os.environ.update({TORCHX_ATTEMPT}=str(int(r) + int(e or 0) + 1)); "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def _limited(counts: str) -> str:
    """Returns the program that also sets the end of a run with a time limit."""
    if counts.startswith("import"):
        return (
            f"import os, time; n = os.environ.get('{LIMIT}'); "
            f"n and os.environ.update({TORCHX_ENDS_AT}=str(int(time.time()) + int(n))); {counts}"
        )
    return f'[ -z "${LIMIT}" ] || export {TORCHX_ENDS_AT}=$$(( $$(date +%s) + ${LIMIT} )); {counts}'


_FORMER = f'export {TORCHX_ATTEMPT}=$$(( ${{{RETRIES}:-0}} + 1 )); exec "$0" "$@"'
"""In jobs of version 0.1.0."""
FAILURES = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
"""The pod field with a Job's number of failures of an index."""
RESTARTS = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
"""The pod field with a JobSet's number of restarts."""
RETRY_COUNT = "metadata.annotations['volcano.sh/job-retry-count']"
"""The pod field with the number of restarts of a Volcano job as a whole; empty in older versions."""


def is_shell(program: str) -> bool:
    """Returns True for the name of a shell.

    >>> is_shell("bash"), is_shell("python3")
    (True, False)
    """
    return re.fullmatch(_SHELL, program) is not None


def is_python(program: str) -> bool:
    """Returns True for the name of a Python interpreter."""
    return re.fullmatch(_PYTHON, program) is not None


def field_of(role: Role) -> str:
    """Returns the pod field with a Job's number of retries; empty for a role without retries."""
    if role.max_retries:
        return FAILURES
    return ""


def variables(retries_at: str | None) -> dict[str, Object]:
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


def arguments(entrypoint: str, retries_at: str | None, *, limited: bool = False) -> list[str]:
    """Returns arguments that make a shell or Python set the variables and then execute the program.

    Args:
        entrypoint: the program.
        retries_at: the pod field with the number of retries; empty without retries, None if no field has it.
        limited: the run has a time limit.

    >>> arguments("/usr/bin/python3.11", FAILURES)[::2], arguments("train", FAILURES), arguments("sh", "")
    (['-ISc', '/usr/bin/python3.11'], [], [])
    >>> arguments("bash", "", limited=True)[::2]
    ['-c', 'bash']
    """
    program = PurePosixPath(entrypoint).name
    if not (retries_at or limited):
        return []
    if is_shell(program):
        return ["-c", _limited(_SHELL_COUNTS) if limited else _SHELL_COUNTS, entrypoint]
    if is_python(program):
        return ["-ISc", _limited(_PYTHON_COUNTS) if limited else _PYTHON_COUNTS, entrypoint]
    return []


def earlier_attempts(env: Iterable[Data]) -> int:
    """Returns the number of attempts before those of a Job that restarts its replicas itself."""
    return next((count_of(str(e.get("value"))) or 0 for e in env if e.get("name") == EARLIER), 0)


def own_arguments(args: Sequence[Any]) -> Sequence[Any]:
    """Returns the arguments of a container without those of :func:`arguments`.

    >>> own_arguments([*arguments("sh", FAILURES), "-c", "true"]), own_arguments(["-c", "true"])
    (['-c', 'true'], ['-c', 'true'])
    """
    if args[1:2] and args[1] in _OWN:
        return args[3:]
    return args


_OWN = (
    *(text for counts in (_SHELL_COUNTS, _PYTHON_COUNTS) for text in (counts, _limited(counts))),
    _FORMER,
)
