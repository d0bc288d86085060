"""The clock of a time limit, for all engines with a supervisor."""

from __future__ import annotations

from torchx.scheduling.limits import LimitRule

NOTICE, LIMIT = "notice", "limit"


class RunClock:
    """Reports when the notice and the limit of a run are due, each once.

    Args:
        rule: the rule.
    """

    def __init__(self, rule: LimitRule) -> None:
        self._rule = rule
        self._began: float | None = None
        self._done: set[str] = set()

    def begin(self, at: float) -> None:
        """Begins a run, unless one has begun.

        Args:
            at: the current time of any clock that the calls share, in seconds.
        """
        if self._began is None:
            self._began = at
            self._done.clear()

    def end(self) -> None:
        """Ends the run: the next :meth:`begin` begins another one."""
        self._began = None

    @property
    def ends_at(self) -> float | None:
        """The time at which the run ends; None without a limit, or if none has begun."""
        if self._began is None or self._rule.limit is None:
            return None
        return self._began + self._rule.limit

    def _next(self) -> tuple[str, float] | None:
        ends_at = self.ends_at
        if ends_at is None:
            return None
        if self._rule.notice and not self._done:
            return NOTICE, ends_at - self._rule.notice
        return None if LIMIT in self._done else (LIMIT, ends_at)

    def pause(self, now: float) -> float | None:
        """Returns the seconds until something is due; None if nothing will be."""
        following = self._next()
        return None if following is None else max(following[1] - now, 0.0)

    def due(self, now: float) -> str:
        """Returns :data:`NOTICE` or :data:`LIMIT` if it is due, or an empty text.

        >>> clock = RunClock(LimitRule(10.0, notice=4.0))
        >>> clock.begin(0.0)
        >>> [clock.due(at) for at in (5.9, 6.0, 6.0, 10.0, 11.0)]
        ['', 'notice', '', 'limit', '']
        """
        following = self._next()
        if following is None or now < following[1]:
            return ""
        self._done.add(following[0])
        return following[0]
