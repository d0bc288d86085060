"""The rules because of which failures of containers are not retried, as their marks have them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchx.schedulers.docker.containers import Container
from torchx.scheduling.retry_rules import Failure, RetryRules, refusal_by

LOG = "log"
"""The cause in the mark of a container whose log has a text that excludes a retry."""


def refusal(container: Container) -> str:
    """Returns why the failure of a container is not retried, by its mark; empty if it has no such mark."""
    rule = container.refused_cause
    if rule == LOG:
        rule = _log_rule(container.job.get("cfg"))
    return refusal_by(rule, Failure(container.exit_code, container.signal))


def _log_rule(cfg: Any) -> str:
    """Returns the rule with a text of the log that has excluded a retry; its pattern fits into no name."""
    rules = RetryRules.recorded(cfg if isinstance(cfg, Mapping) else {}).never
    return " or ".join(rule for rule in rules if rule.startswith(f"{LOG}:")) or LOG


def slug(rule: str) -> str:
    """Returns a rule as a part of a container's name.

    >>> slug("import-error"), slug("log:boom!")
    ('import-error', 'log')
    """
    if rule.startswith(f"{LOG}:"):
        return LOG
    return re.sub(r"[^A-Za-z0-9_-]", "-", rule)
