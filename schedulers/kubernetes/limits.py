"""Time limits on a cluster: the deadline of pods, the hook that notifies their programs, the next runs."""

from __future__ import annotations

import math
import signal
from dataclasses import replace

from torchx import settings
from torchx.errors import RunOptionError, UsageError
from torchx.json_limits import Data
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.names import LIMIT, NOTICE
from torchx.schedulers.shared.notice import POD_HOOK_SCRIPT
from torchx.scheduling.limits import NODE, PREEMPTED, LimitRule
from torchx.specs.app import AppDef, RetryPolicy
from torchx.specs.run_options import RunOptions

DISRUPTIONS = frozenset((PREEMPTED, NODE))
"""The causes of requeues that are disruptions of pods."""


def check_limits(cfg: RunOptions) -> None:
    """Checks the options of a time limit.

    Raises:
        UsageError: a cluster cannot honour them.
    """
    rule = LimitRule.of(cfg)
    rule.check_uncounted("kubernetes", "a cluster replaces evicted, preempted and lost pods without a limit")
    if rule.requeue and cfg.get("kind") in ("jobset", "volcano"):
        raise RunOptionError("requeue_on", f"is not possible with kind={cfg['kind']}", "use kind=job")


def check_roles(app: AppDef, cfg: RunOptions) -> None:
    """Checks the roles of an application with requeues.

    Raises:
        UsageError: a role has retries of single replicas, which its Job carries out, for any cause.
    """
    if not LimitRule.of(cfg).requeue:
        return
    for role in app.roles:
        if role.max_retries and role.num_replicas > 1 and role.retry_policy is RetryPolicy.REPLICA:
            raise UsageError(
                f"role `{role.name}` has retries of single replicas, "
                "which exclude run option `requeue_on` of kubernetes",
                hint="use retry_policy ROLE or APPLICATION, or no retries",
            )


def notes_of_limits(cfg: RunOptions) -> list[str]:
    """Returns the notes about a time limit."""
    rule = LimitRule.of(cfg)
    notes = []
    if rule.requeue and not rule.checkpoint_dir:
        notes.append("pods share no folder for checkpoints: give --checkpoint-dir, on a mounted volume")
    if len(DISRUPTIONS & rule.requeue.keys()) == 1:
        notes.append("requeues follow evictions, preemptions and lost nodes alike")
    return notes


def by_torchx(cfg: RunOptions) -> bool:
    """Returns True if torchx begins the next runs, or lets the replicas save their state at the same time.

    A Job does neither: it replaces single pods, and ends all others when one has failed.
    """
    rule = LimitRule.of(cfg)
    return bool(rule.requeue or rule.notice)


def with_requeues(app: AppDef, cfg: RunOptions) -> AppDef:
    """Returns an application whose pods a Job replaces after the time limit, if torchx may not do it."""
    requeues = LimitRule.of(cfg).requeues
    if not requeues:
        return app
    roles = [replace(role, max_retries=role.max_retries + requeues) for role in app.roles]
    return replace(app, roles=roles)


def rule_of(cfg: Data) -> LimitRule:
    """Returns the rule of recorded options; an empty one if they are damaged."""
    try:
        return LimitRule.of(cfg)
    except ValueError:
        return LimitRule()


def pod_limits(cfg: RunOptions, grace: int) -> dict[str, int]:
    """Returns the fields of a pod's specification.

    The notice begins at the deadline of the pod: its hook notifies the programs and lasts as long as the
    notice, or the programs get TERM, if that is the signal. The pod and its log stay, while the deadline of
    a Job would delete them.

    >>> pod_limits({"time_limit": "1h", "notice": "2m"}, 30)
    {'activeDeadlineSeconds': 3480, 'terminationGracePeriodSeconds': 150}
    >>> pod_limits({"time_limit": "1h", "notice": "2m:TERM"}, 30)
    {'activeDeadlineSeconds': 3480, 'terminationGracePeriodSeconds': 120}
    """
    rule = LimitRule.of(cfg)
    if rule.limit is None:
        return {"terminationGracePeriodSeconds": grace}
    notice = math.ceil(rule.notice)
    return {
        "activeDeadlineSeconds": _deadline(rule),
        "terminationGracePeriodSeconds": max(grace, notice) if rule.signal == "TERM" else grace + notice,
    }


def _deadline(rule: LimitRule) -> int:
    return max(math.ceil((rule.limit or 0.0) - rule.notice), 2)


def container_limits(cfg: RunOptions) -> Object:
    """Returns the fields of a container: the hook that notifies its programs.

    >>> container_limits({"time_limit": "1h", "notice": "2m"})["lifecycle"]["preStop"]["exec"]["command"][3:]
    ['sh', 'USR1', '10', '0', '3480', '120']
    """
    rule = LimitRule.of(cfg)
    if not rule.notice or rule.signal == "TERM":
        return {}
    number = signal.Signals[f"SIG{rule.signal}"].value
    arguments = [rule.signal, number, 0, _deadline(rule), math.ceil(rule.notice)]
    command = ["sh", "-c", POD_HOOK_SCRIPT, "sh", *map(str, arguments)]
    return {"lifecycle": {"preStop": {"exec": {"command": command}}}}


def pod_annotations(cfg: RunOptions) -> dict[str, str]:
    """Returns the annotations of pods.

    >>> pod_annotations({"time_limit": "1h", "notice": "2m"})
    {'torchx.pytorch.org/notice': '120'}
    """
    rule = LimitRule.of(cfg)
    if rule.notice:
        return {NOTICE: str(math.ceil(rule.notice))}
    return {}


def variables(cfg: RunOptions) -> Object:
    """Returns the variables of the programs in the first run.

    >>> variables({"time_limit": "1h", "notice": "2m"})
    {'TORCHX_RUN': '1', 'TORCHX_NOTICE': '120:USR1', 'TORCHX_TIME_LIMIT': '3600'}
    """
    rule = LimitRule.of(cfg)
    found = rule.variables(1, None)
    if rule.limit is not None:
        found[LIMIT] = str(math.ceil(rule.limit))
    if rule.checkpoint_dir:
        found[settings.TORCHX_CHECKPOINT_DIR] = rule.checkpoint_dir
    return found
