"""The meaning of the ends of containers with a time limit."""

from __future__ import annotations

from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.rules.marks import EXPIRED
from torchx.scheduling.limits import LimitRule
from torchx.supervisor.policy import Action, Gang, Start

ROUNDING = 1.0
"""Seconds before the notice at which a program may know of it, as the end of a run is a whole second."""


def apply_limit(gang: Gang, rule: LimitRule, container: Container | None, actions: list[Action]) -> None:
    """Applies the time limit, if a container was ended by it, or has ended after the notice.

    Args:
        gang: the rules.
        rule: the time limit.
        container: the newest container of a replica.
        actions: the actions so far; changed in place.
    """
    if container is None or not container.ends_at:
        return
    finished = container.finished or 0.0
    if container.mark == EXPIRED or finished >= container.ends_at:
        # it drops the retries that have not begun
        kept = [action for action in actions if not isinstance(action, Start)]
        expired = gang.expire()
        if expired or gang.expired:
            actions[:] = [*kept, *expired]
    if rule.notice and finished >= container.ends_at - rule.notice - ROUNDING:
        gang.notice()
