"""The supervisor's event loop: reports events to the policy and executes its actions."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from resource import struct_rusage
from typing import Any, TypeVar

from torchx.end_causes import EndCause, Reason
from torchx.jobs.end import LARGEST_REQUEST
from torchx.jobs.events import Clock, EventLog
from torchx.jobs.paths import JobPaths
from torchx.jobs.record import JobRecord
from torchx.jobs.recovery import describe_survivors
from torchx.json_limits import Object
from torchx.machine import files, processes
from torchx.machine.out_of_memory import Kills
from torchx.machine.processes import Process
from torchx.supervisor import ending
from torchx.supervisor.job_policies import policies_of
from torchx.supervisor.limits import own_run
from torchx.supervisor.output import PARTIAL_AFTER
from torchx.supervisor.policies import Cancel, Fail, Order, pause_of, verdict_of
from torchx.supervisor.policy import COUNTED, End, Requeue, Retry, Start, Stop, gang_of
from torchx.supervisor.process import wake_on_signals
from torchx.supervisor.replicas import Replicas, Running, decode_status, shell_code, start_reason
from torchx.supervisor.services.order import ENDED_WHILE_NEEDED


def facts_of_end(
    running: Running,
    status: int | None,
    stopped: str,
    forced: Reason | None,
    kill_reason: Callable[[], Reason],
) -> tuple[Object, Reason]:
    """Returns the data of the event of a replica's end, and the reason.

    Args:
        running: the replica.
        status: its wait status; None if it cannot be ended.
        stopped: why the policy ended it; empty if it did not.
        forced: why it was ended as a failed one; None if it was not.
        kill_reason: returns the reason of a KILL.
    """
    facts: Object = {}
    reason = Reason()
    if status is None:
        reason = Reason(describe_survivors({running.process}))
    else:
        code, signal_name = decode_status(status)
        if signal_name is None:
            facts = {"code": code}
        else:
            facts = {"signal": signal_name}
        if signal_name == "SIGKILL" and not stopped:
            reason = kill_reason()
    if stopped:
        facts["stopped"] = stopped
    elif forced is not None:
        facts, reason = {"signal": "SIGTERM"}, forced
    if running.output.lost:
        lost = f"{running.output.lost} bytes of output were lost: {running.output.lost_why}"
        reason = reason._replace(notes=(lost,))
    return facts, reason


def reason_while_needed(facts: Object, reason: Reason) -> Reason:
    """Returns the reason for the end of a service that was needed."""
    cause = reason.cause
    if facts.get("code") == 0:
        cause = EndCause.SERVICE_ENDED
    if reason.sentence:
        return reason._replace(cause=cause)
    return Reason(ENDED_WHILE_NEEDED, cause)


STARTS_AT_A_TIME = 16
"""Replicas to start before output, exits and requests are handled again."""

GIVE_UP_AFTER = 5.0
"""Seconds after the first KILL before giving up on a process that is still running."""


T = TypeVar("T")

CHECK_INTERVAL = 0.03
"""Seconds between two checks of processes whose end is not reported, as they are not own children."""


class Supervisor:
    """Runs one job from its first start to its end.

    Args:
        record: the job.
        paths: its record.
        base_env: the environment that those of the roles extend.
        umask: the umask of the replicas; -1 for that of this process.
    """

    def __init__(
        self, record: JobRecord, paths: JobPaths, base_env: Mapping[str, str], umask: int = -1
    ) -> None:
        self._record = record
        self._paths = paths
        self._clock = Clock(record.submitted_at)
        self._events = EventLog(paths.events, self._clock, paths.reserve)
        self._selector = selectors.DefaultSelector()
        self._replicas = Replicas(record, self._clock, self._selector, own_run(base_env), umask)
        self._kills = Kills()
        self._gang = gang_of(record)
        self._policies = policies_of(record, paths, self._replicas, self._gang, self.note, self._clock)
        self._replicas.policies = self._policies
        self._due: dict[int, float] = {}
        self._stopping: dict[int, str] = {}
        self._failing: dict[int, Reason] = {}
        self._ending: dict[Process, float] = {}  # processes that got TERM; the time at which they get KILL
        self._killed_at: dict[Process, float] = {}
        self._checked_at = 0.0  # when these processes were last checked
        self._kill_rest_at: float | None = None  # when the remaining processes are killed at the end
        self._unendable: set[Process] = set()
        self._start_error: Reason | None = None
        self._cancelled = Reason("cancelled")
        self._decided: End | None = None  # the end as recorded
        self._end: End | None = None
        self._killing = False
        self._reader = wake_on_signals()
        self._selector.register(self._reader, selectors.EVENT_READ, None)

    def note(self, event: str, **facts: Any) -> None:
        """Appends to the job's events; ignores errors, as a full disk must not affect the job."""
        with contextlib.suppress(OSError):
            self._events.add(event, **facts)

    def run(self) -> None:
        """Runs the job; returns when none of its processes is running."""
        try:
            self._run()
        except BaseException as error:
            # no process may be left without a supervisor
            ending.kill(ending.descendants())
            why = Reason(f"its supervisor failed: {error!r}", EndCause.SUPERVISOR_LOST)
            self.note("end", **self._facts_of(End("FAILED", self._gang.first_failure)), **why.record)
            raise

    def _run(self) -> None:
        self._execute(self._gang.begin())
        self._read_requests()
        while self._end is None or self._clean_up():
            self._start_due()
            for key, _ in self._selector.select(self._pause()):
                if key.data is None:
                    self._clear_wakeup()
                else:
                    self._replicas.read(*key.data)
            self._carry_out(before_ends=True)
            self._reap()
            self._kill_overdue()
            self._replicas.flush()
            self._carry_out(before_ends=False)
        for running in self._replicas.still_open():
            self._replicas.finish(running)
        self._replicas.index.close()
        notes = ending.notes(self._replicas.lost, self._replicas.lost_why, self._unendable)
        reason = self._reason_for(self._end)._replace(notes=notes)
        self.note("end", **self._facts_of(self._end), **reason.record)

    def _facts_of(self, end: End) -> Object:
        """Returns the state of an end, and the attempt that failed first."""
        first = None
        if end.first_failure is not None:
            first = end.first_failure, self._replicas.attempt(end.first_failure)
        return {"state": end.state, "first": first}

    def _reason_for(self, end: End) -> Reason:
        reason = next(filter(None, (policy.reason for policy in self._policies)), self._start_error)
        if reason is None and end.state == "CANCELLED":
            reason = self._cancelled
        return reason or Reason()

    def _note_attempt(self, event: str, **facts: Any) -> None:
        """Records the end of an attempt with its effect on the rules, which have already handled it.

        If it decides the end of the job, the same line has that end: a kill between two lines would lose it.
        """
        end = self._gang.decided
        if end is not None and end != self._decided:
            self._decided = end
            facts["over"] = {**self._facts_of(end), **self._reason_for(end).record}
        self.note(event, **facts)

    # --- actions ---------------------------------------------------------------------------------

    def _carry_out(self, *, before_ends: bool) -> None:
        """Carries out the orders of the policies that are due before, or after, the ends of replicas."""
        for policy in self._policies:
            if policy.before_ends == before_ends and self._end is None:
                self._execute(policy.due())

    def _execute(self, orders: Sequence[Order]) -> None:
        for action in orders:
            if isinstance(action, Start):
                at = time.monotonic() + action.delay
                self._due.update(dict.fromkeys(action.replicas, at))
            elif isinstance(action, Stop):
                self._end_replicas(action.replicas, self._stopping, action.why)
            elif isinstance(action, Retry):
                self.note("retry", **action.facts())
            elif isinstance(action, Requeue):
                for policy in self._policies:
                    policy.requeued(action)
            elif isinstance(action, Fail):
                self._end_replicas(action.replicas, self._failing, action.reason)
            elif isinstance(action, Cancel):
                self._cancel_because(action.reason)
            else:
                self._end = action
                for policy in self._policies:
                    policy.close()

    def _start_due(self) -> None:
        if not self._due or self._ending:
            return  # processes of an earlier attempt may still use its ports and files
        now = time.monotonic()
        due = [n for n, at in self._due.items() if at <= now][:STARTS_AT_A_TIME]
        restarted = [self._replicas.label(n) for n in due if self._replicas.attempt(n)]
        if restarted:
            strays = ending.started_for(self._record.handle, restarted)
        else:
            strays = set()
        if strays:
            self._end_all(strays)
            return
        for ordinal in due:
            del self._due[ordinal]
            if self._gang.wants(ordinal):
                self._start(ordinal)

    def _start(self, ordinal: int) -> None:
        for old in self._replicas.still_open():
            if old.ordinal == ordinal:
                self._replicas.finish(old)
        # recorded before the process exists: recovery looks for it if this supervisor is killed now
        self.note("starting", r=ordinal, a=self._replicas.attempt(ordinal) + 1)
        try:
            running = self._replicas.start(ordinal)
        except (OSError, ValueError) as error:  # ValueError: an invalid argument or variable
            self._not_started(ordinal, error)
            return
        self._gang.started(ordinal)
        for policy in self._policies:
            policy.started(running)
        self.note("start", r=ordinal, a=running.attempt, pid=running.process.pid, start=running.process.start)

    def _not_started(self, ordinal: int, error: OSError | ValueError) -> None:
        reason = start_reason(error)
        attempt = self._replicas.attempt(ordinal)
        text = f"{self._replicas.label(ordinal)} could not be started: {reason.text}"
        self._start_error = self._start_error or Reason(text, EndCause.NOT_STARTED)
        actions = self._gang.give_up(ordinal)
        self._note_attempt("not_started", r=ordinal, a=attempt, code=shell_code(error), **reason.record)
        self._execute(actions)

    def _cancel_because(self, reason: Reason) -> None:
        if not self._gang.cancelled:
            self._cancelled = Reason(f"cancelled, as it was {reason.text}", reason.cause)
            self._cancel(reason.text)

    def _end_replicas(self, ordinals: Sequence[int], reasons: dict[int, T], reason: T) -> None:
        """Ends replicas, and keeps the reason until they have ended."""
        wanted = set(ordinals)
        running = [replica for replica in self._replicas.by_pid.values() if replica.ordinal in wanted]
        for replica in running:
            reasons.setdefault(replica.ordinal, reason)
        self._end_all(ending.with_family([replica.process for replica in running]))

    @property
    def _grace(self) -> float:
        """Seconds until a process that is ended gets KILL."""
        if self._killing:
            return 0.0
        return self._record.grace

    def _end_all(self, targets: set[Process]) -> None:
        new = targets - self._ending.keys()
        deadline = time.monotonic() + self._grace
        self._ending.update(dict.fromkeys(new, deadline))
        ending.kill(new) if self._killing else ending.terminate(new)

    # --- events ----------------------------------------------------------------------------------

    def _reap(self) -> None:
        ended = []
        with contextlib.suppress(ChildProcessError):
            while (result := os.wait4(-1, os.WNOHANG))[0]:
                running = self._replicas.by_pid.pop(result[0], None)
                if running is None:
                    for policy in self._policies:
                        if policy.reaped(*result):
                            break
                else:
                    self._ending.pop(running.process, None)
                    ended.append((running, result[1], result[2]))
        if not ended:
            return
        self._clear_wakeup()  # handle a TERM first: if all processes got it, it caused these exits
        # the rest of a replica ends with its main process; the process table is read once for all of them
        leaders = [running.process.pid for running, _, _ in ended]
        left = processes.left_behind(list(filter(ending.group_exists, leaders)))
        self._end_all(set[Process]().union(*left.values()))
        # services last: they may not be needed any longer
        for running, status, usage in sorted(ended, key=lambda end: self._gang.needs(end[0].ordinal)):
            self._exited(running, status, usage, leaves_some=running.process.pid in left)

    def _exited(
        self, running: Running, status: int | None, usage: struct_rusage | None, leaves_some: bool
    ) -> None:
        """Records the end of a replica; a status of None means that it cannot be ended."""
        running.ended = True
        self._replicas.drain(running)
        if not leaves_some:
            self._replicas.finish(running)
        ordinal = running.ordinal
        forced = self._failing.pop(ordinal, None)
        stopped = self._stopping.pop(ordinal, "")
        needed = self._gang.needs(ordinal) and not (stopped or forced)
        facts, reason = facts_of_end(running, status, stopped, forced, lambda: self._kills.reason(usage))
        if forced and not stopped:  # a failure, even if it ends orderly
            status = signal.SIGTERM
        elif needed:
            reason = reason_while_needed(facts, reason)
            facts["needed"] = True
        expected = (status == 0 and not needed) or bool(stopped or forced)
        facts |= reason.record
        verdict = COUNTED
        if not expected:
            verdict = verdict_of(self._policies, running, facts)
        for policy in self._policies:
            facts |= policy.ended(running, usage)
        peak_kib = 0 if usage is None else usage.ru_maxrss
        actions = self._gang.exited(ordinal, status == 0, bool(stopped), verdict)
        self._note_attempt("exit", r=ordinal, a=running.attempt, **facts, peak_kib=peak_kib)
        self._execute(actions)

    def _kill_overdue(self) -> None:
        if not self._ending:
            return
        now = time.monotonic()
        if now - self._checked_at < CHECK_INTERVAL:
            return
        self._checked_at = now
        self._ending = {p: at for p, at in self._ending.items() if processes.is_alive(p)}
        overdue = [p for p, at in self._ending.items() if at <= now]
        if overdue:
            # with the processes that they have started since the TERM
            ending.kill(ending.with_family(overdue))
            for process in overdue:
                if now - self._killed_at.setdefault(process, now) > GIVE_UP_AFTER:
                    self._give_up(process)

    def _give_up(self, process: Process) -> None:
        """Ignores a process that cannot be ended: another user's, or stuck in the kernel."""
        del self._ending[process]
        self._unendable.add(process)
        running = self._replicas.by_pid.pop(process.pid, None)
        if running is not None:
            self._exited(running, None, None, leaves_some=False)

    def _clean_up(self) -> bool:
        """Ends the remaining processes when all replicas have ended; returns False if there are none."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False  # as the subreaper, this process would have adopted them
        now = time.monotonic()
        if self._kill_rest_at is None:
            self._kill_rest_at = now + self._grace
        left = ending.descendants() - self._unendable
        self._end_all(left)
        if now >= self._kill_rest_at:
            ending.kill(left)  # new ones too: a process may keep starting others
        return bool(left) or not self._unendable

    # --- requests and waiting --------------------------------------------------------------------

    def _clear_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if signal.SIGTERM in os.read(self._reader, select.PIPE_BUF):
                self._read_requests()
                self._cancel("its supervisor was terminated")  # a signal without a request

    def _read_requests(self) -> None:
        try:
            text = files.read_file(self._paths.cancel, LARGEST_REQUEST).decode("utf-8", "replace")
        except OSError:
            return
        self._cancel("cancelled")
        if "kill" in text.split() and not self._killing:
            self._killing = True
            self._ending = dict.fromkeys(self._ending, 0.0)
            self._end_all(ending.descendants())

    def _cancel(self, why: str) -> None:
        if not self._gang.cancelled:
            self.note("cancel", why=why)
            self._execute(self._gang.cancel())

    def _pause(self) -> float | None:
        """Returns the seconds until the next timer, or None without one."""
        waits = []
        if self._end is None and (wait := pause_of(self._policies)) is not None:
            waits.append(wait)
        if self._due and not self._ending:
            waits.append(min(self._due.values()) - time.monotonic())
        if self._ending:
            waits.append(CHECK_INTERVAL)
        if self._replicas.holds:
            waits.append(PARTIAL_AFTER)
        if self._end is not None:
            waits.append(CHECK_INTERVAL)
        if waits:
            return max(min(waits), 0.0)
        return None
