"""Decides whether the failure of a container is retried; a mark in its name records that it is not."""

from __future__ import annotations

from collections.abc import Iterator

from torchx.schedulers.docker.cancel import end_all
from torchx.schedulers.docker.containers import Container
from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.logs import read_log
from torchx.schedulers.docker.replay import Progress
from torchx.schedulers.docker.rules.marks import REFUSED
from torchx.schedulers.docker.rules.refusals import slug
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.retry_rules import LAST_LINES, Failure, RetryRules, lines_of
from torchx.specs.status import EndCause
from torchx.supervisor.policy import REPLICA


class RetryCauses:
    """The rules of retries of one application.

    Args:
        engine: the engine.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._seen: set[str] = set()

    def mark_refused(self, progress: Progress) -> bool:
        """Marks the failed containers whose failure is not retried; returns True if there are any.

        Args:
            progress: the state of the application; a retry may be due.
        """
        if progress.end is not None or progress.cancelled or progress.retries == progress.carried_out:
            return False
        try:
            rules = RetryRules.of(progress.job.cfg)
        except ValueError:  # written by another version
            rules = RetryRules()
        marked = False
        for container in _causes_of_retries(progress):
            if container.id in self._seen:
                continue
            self._seen.add(container.id)
            rule = rules.refused_by(self._failure(container, rules))
            if rule:
                end_all(self._engine, [container], f"{REFUSED}{slug(rule)}", 0.0)
                marked = True
        return marked

    def _failure(self, container: Container, rules: RetryRules) -> Failure:
        lines: list[str] = []
        if rules.reads_lines:
            log = read_log(self._engine, container, LogQuery(tail=LAST_LINES))
            lines = lines_of(b"".join(line[2] for line in log))
        code = None if container.signal else container.exit_code
        known = EndCause.OUT_OF_MEMORY if container.oom else None
        return Failure(code, container.signal, "", lines, known)


def _causes_of_retries(progress: Progress) -> Iterator[Container]:
    """Yields the containers whose failures have caused the retries that are due."""
    failed: list[tuple[float, Container, str]] = []
    for ordinal, (role, _) in enumerate(progress.job.members):
        newest = progress.newest(ordinal)
        if newest is None or newest.live or newest.mark or not newest.exit_code or not role.max_retries:
            continue
        if newest.attempt >= progress.expected[ordinal]:
            failed.append((newest.finished or newest.created, newest, role.policy))
    failed.sort(key=lambda each: each[0])
    yield from (container for _, container, policy in failed if policy == REPLICA)
    # the others have ended because of the first one, or after it
    yield from [container for _, container, policy in failed if policy != REPLICA][:1]
