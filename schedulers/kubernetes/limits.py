"""Time limits on a cluster: the deadline of pods, whose TERM is the notice, and their replacement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torchx import settings
from torchx.errors import UsageError
from torchx.schedulers.shared.options import limits_of
from torchx.scheduling.limits import NODE, PREEMPTED, LimitRule
from torchx.specs.app import AppDef
from torchx.specs.run_options import CfgVal


def check_limits(cfg: Mapping[str, CfgVal]) -> None:
    """Checks the options of a time limit.

    Raises:
        UsageError: a cluster cannot honour them.
    """
    rule = limits_of(cfg)
    signal = str(cfg.get("notice") or "").partition(":")[2].removeprefix("SIG")
    if signal not in ("", "TERM"):
        raise UsageError(
            f"run option `notice` of kubernetes is `{cfg['notice']}`: the signal of a notice is TERM there",
            hint=f"e.g. notice={str(cfg['notice']).partition(':')[0]}:TERM",
        )
    counted = [cause for cause in (PREEMPTED, NODE) if rule.requeue.get(cause) is not None]
    if counted:
        raise UsageError(
            f"run option `requeue_on` of kubernetes has a number for `{counted[0]}`",
            hint="a cluster replaces evicted, preempted and lost pods without a limit",
        )
    if rule.requeues and cfg.get("kind") == "volcano":
        raise UsageError(
            "run option `requeue_on` of kubernetes has `time-limit`, which kind=volcano does not support",
            hint="use kind=job or kind=jobset",
        )


def notes_of_limits(cfg: Mapping[str, CfgVal]) -> list[str]:
    """Returns the notes about a time limit."""
    rule = LimitRule.of(cfg)
    notes = []
    if rule.requeues:
        notes.append("requeues after the time limit and retries are counted together on a cluster")
        if not rule.checkpoint_dir:
            notes.append("pods share no folder for checkpoints: give --checkpoint-dir, on a mounted volume")
    return notes


def with_requeues(app: AppDef, cfg: Mapping[str, CfgVal]) -> AppDef:
    """Returns an application whose pods are replaced after the time limit, too."""
    requeues = LimitRule.of(cfg).requeues
    if not requeues:
        return app
    roles = [replace(role, max_retries=role.max_retries + requeues) for role in app.roles]
    return replace(app, roles=roles)


def requeues_of(cfg: Mapping[str, Any]) -> int:
    """Returns the requeues after the time limit in recorded options; 0 if they are damaged."""
    try:
        return LimitRule.of(cfg).requeues
    except ValueError:
        return 0


def pod_limits(cfg: Mapping[str, CfgVal], grace: int) -> dict[str, int]:
    """Returns the fields of a pod's specification.

    At its deadline, a pod gets TERM, which is the notice; the grace period ends with the time limit. The pod
    and its log stay, while the deadline of a Job would delete them.

    >>> pod_limits({"time_limit": "1h", "notice": "2m"}, 30)
    {'activeDeadlineSeconds': 3480, 'terminationGracePeriodSeconds': 120}
    """
    rule = LimitRule.of(cfg)
    if rule.limit is None:
        return {"terminationGracePeriodSeconds": grace}
    return {
        "activeDeadlineSeconds": max(math.ceil(rule.limit - rule.notice), 2),
        "terminationGracePeriodSeconds": max(grace, math.ceil(rule.notice)),
    }


def variables(cfg: Mapping[str, CfgVal]) -> dict[str, Any]:
    """Returns the variables of the programs."""
    folder = LimitRule.of(cfg).checkpoint_dir
    return {settings.TORCHX_CHECKPOINT_DIR: folder} if folder else {}
