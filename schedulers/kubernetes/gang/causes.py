"""The causes of failed pods."""

from __future__ import annotations

from torchx.schedulers.kubernetes.api.objects import Object, deleted, owns, text_at, value_at
from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.state.attempts import (
    attempts_of,
    ended_by_us,
    ended_container,
)
from torchx.schedulers.kubernetes.state.replicas import replica_of, run_of
from torchx.schedulers.kubernetes.state.taken import disruption
from torchx.scheduling.retry_rules import Failure, RetryRules, lines_of


def refusal(rules: RetryRules, pod: Object) -> str:
    """Returns why the failure of a pod is not retried, or an empty string.

    Args:
        rules: the rules.
        pod: a pod that has failed; its status has its last lines.
    """
    attempt = attempts_of(pod, 1)[-1]
    ended = ended_container(pod)
    lines = lines_of(text_at(ended, "message").encode("utf-8", "replace"))
    return rules.refusal(Failure(attempt.exit_code, attempt.signal, lines, attempt.cause))


def never_retried(facts: Facts) -> set[tuple[int, int]]:
    """Returns the replicas that their Job would retry after a failure that is never retried.

    A Job considers exit codes only, and torchx the last lines, too.
    """
    if facts.partial or not facts.fails_fast:
        return set()
    rules = RetryRules.recorded(facts.cfg)
    newest = {replica_of(pod): pod for pod in sorted(facts.pods, key=run_of)}
    by_jobs = [main for main in facts.mains if value_at(main, "spec", "backoffLimitPerIndex")]
    return {
        key
        for key, pod in newest.items()
        if value_at(pod, "status", "phase") == "Failed"
        and any(owns(main, pod) for main in by_jobs)
        and not (deleted(pod) or ended_by_us(pod) or disruption(pod))
        and refusal(rules, pod)
    }
