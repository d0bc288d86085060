"""The supervisor of an application in containers: watches the engine's events and carries out the rules.

Its state follows from the containers and the journal, so another supervisor can replace one that died, see
reconcile.py. Like the supervisor of a local job it does not import installed packages.
"""

from __future__ import annotations

import json
import math
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

from torchx import settings
from torchx.errors import StateError, TorchxError
from torchx.jobs import ticket
from torchx.jobs.paths import Home, JobPaths
from torchx.json_limits import Data, Object
from torchx.json_shape import typed_at
from torchx.lazy import lazy_imports
from torchx.machine.outage import Outage
from torchx.schedulers.docker import reconcile
from torchx.schedulers.docker.attempts import Attempts
from torchx.schedulers.docker.cancel import KILLED_WITHIN, end_all, join_kills, remove
from torchx.schedulers.docker.container_body import next_body
from torchx.schedulers.docker.containers import Container, damage_of
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.events import Events
from torchx.schedulers.docker.folder import begin
from torchx.schedulers.docker.gpus import keep_leases
from torchx.schedulers.docker.journal import Journal
from torchx.schedulers.docker.labels import ATTEMPT, ENDS_AT, RETRY
from torchx.schedulers.docker.logs import read_log
from torchx.schedulers.docker.lookup import find_containers
from torchx.schedulers.docker.marks import CANCELLED, EXPIRED, FAILED, REFUSED, STOPPED, UNNEEDED
from torchx.schedulers.docker.measurement.sampling import Sampler
from torchx.schedulers.docker.policies import RULE, ContainerPolicy, ContainerReplica
from torchx.schedulers.docker.replay import Progress, replay
from torchx.schedulers.docker.rules.job import Job, job_of
from torchx.schedulers.docker.rules.refusals import slug
from torchx.schedulers.shared.notice import NOTICE_SCRIPT
from torchx.scheduling.logs import LogQuery
from torchx.scheduling.retry_rules import MOST_LINES, Failure, RetryRules, lines_of
from torchx.services import NO_LONGER_NEEDED
from torchx.settings import POLICIES
from torchx.supervisor.policies import Application, Order, Policy, Replica
from torchx.supervisor.policy import COUNTED, NEVER, REPLICA, REQUEUED, Start
from torchx.supervisor.process import print_error, report_ready, separate
from torchx.supervisor.stalls.actions import rule_of

with lazy_imports:
    from torchx.schedulers.docker import record
    from torchx.schedulers.docker.services import readiness
    from torchx.schedulers.docker.stalls import detection
    from torchx.supervisor import foreign_policies
    from torchx.supervisor.stragglers import policy as stragglers

POLL_INTERVAL = 30.0
"""Seconds between checks of all containers without an event."""
ENGINE_BACK_WITHIN = 900.0
"""Seconds without an engine after which it gives up; the next command for the job starts another."""
TRIES = 5
"""Maximum requests for a retry that the engine refuses."""


class Supervisor:
    """Carries out the rules of one application until it has ended.

    Args:
        engine: the engine.
        app_id: the application.
        paths: its folder.
        containers: its containers, as far as they are known; its policies are loaded then.

    Attributes:
        last: its containers as they were read last; none if all were removed.
        cancelled: whether it was cancelled.
    """

    def __init__(
        self, engine: Engine, app_id: str, paths: JobPaths, containers: Sequence[Container] = ()
    ) -> None:
        self._engine = engine
        self._app_id = app_id
        self._paths = paths
        self.last: list[Container] = []
        self.cancelled = False
        self._journal: Journal | None = None
        self._stopping: set[str] = set()
        self._overdue: dict[str, float] = {}
        self._due: dict[tuple[tuple[int, int], ...], float] = {}
        self._tries = 0
        self._judged: set[str] = set()  # the containers whose failures have got a verdict
        self._attempts: Attempts | None = None
        if containers and not damage_of(containers):
            self._attempts = self._attempts_of(job_of(containers))

    def run(self) -> bool:
        """Runs until the application has ended or was removed.

        Returns:
            False if it has given up before, as the engine is unreachable for too long.
        """
        outage = Outage(ENGINE_BACK_WITHIN)
        while True:
            try:
                with closing(Events(self._engine, self._app_id)) as events:
                    outage.over()
                    if self._watch(events):
                        if self._attempts is not None:
                            self._attempts.close()
                        return True
            except StateError as error:  # it is being restarted, or does not answer
                if outage.is_too_long():
                    print_error(f"gave up: {error}")
                    return False
            time.sleep(0.5)

    def _watch(self, events: Events) -> bool:
        """Acts on each event; returns True if the application has ended, False if the stream is closed."""
        containers: list[Container] = []
        refreshed = 0.0
        while True:
            known = events.unchanged(containers)
            if time.monotonic() > refreshed + POLL_INTERVAL:
                refreshed, known = time.monotonic(), []
            containers = self._find(known)
            if not containers or damage_of(containers):
                return True
            progress = self._replay(containers)
            if progress.retries and self._mark_refused(progress):
                refreshed = 0.0  # with the marks
                continue
            if known and (self._to_stop(progress) or progress.starts):
                # actions need the current state of all containers: another process may have marked one
                containers = self._find()
                if not containers:
                    return True
                progress = self._replay(containers)
            if _is_over(progress):
                return True
            pause = min(self._act(progress), POLL_INTERVAL)
            # once cancelled, only the end of the containers matters
            live = containers if progress.cancelled else None
            if not self._wait(events, live, pause):
                return False

    def _find(self, known: Sequence[Container] = ()) -> list[Container]:
        """Returns the containers, of which some may be known."""
        self.last = find_containers(self._engine, self._app_id, known).get(self._app_id, [])
        return self.last

    def _wait(self, events: Events, live: Sequence[Container] | None, pause: float) -> bool:
        """Waits for an event or a pause, while the policies work; returns False if the stream is closed.

        Args:
            events: the stream.
            live: the containers that all must have had an event; None if each event counts.
            pause: the seconds.
        """
        end = time.monotonic() + pause
        attempts = self._attempts
        assert attempts is not None
        while True:
            left = end - time.monotonic()
            timeout = min(left, attempts.pause())
            if live is None:
                is_open = events.wait(timeout, attempts.files())
            else:
                is_open = events.wait_for_all(live, timeout)
            if not is_open:
                return False
            if left <= 0 or events.pending:
                return True
            attempts.carry_out()

    def _replay(self, containers: Sequence[Container]) -> Progress:
        progress = replay(job_of(containers), containers)
        if self._attempts is None:
            self._attempts = self._attempts_of(progress.job)
        if self._journal is not None:
            self._journal.follow(progress)
        self._attempts.follow(progress)
        self.cancelled = progress.cancelled
        return progress

    def _attempts_of(self, job: Job) -> Attempts:
        if self._paths.record.exists():
            self._journal = Journal(self._paths, self._engine.clock.ahead)
        return Attempts(
            self._engine, self._app_id, policies_of(self._engine, job, self._paths, self._journal)
        )

    def _mark_refused(self, progress: Progress) -> bool:
        """Marks the failed containers whose failure is not retried; returns True if there are any."""
        if progress.end is not None or progress.cancelled or progress.retries == progress.carried_out:
            return False
        marked = False
        for ordinal, container in _causes_of_retries(progress):
            if container.id not in self._judged and self._attempts is not None:
                self._judged.add(container.id)
                cause = self._attempts.refusal(ordinal, container)
                if cause:
                    end_all(self._engine, [container], f"{REFUSED}{cause}", 0.0)
                    marked = True
        return marked

    def _to_stop(self, progress: Progress) -> list[Container]:
        """Returns the containers to stop that have not been signalled yet."""
        newest = [progress.newest(n) for n in progress.stops]
        # the cancelling process has signalled those it marked, and none is signalled twice
        return [c for c in newest if c is not None and c.id not in self._stopping and c.mark != CANCELLED]

    def _act(self, progress: Progress) -> float:
        """Carries out the due actions of the rules, and returns the seconds until the next one."""
        stopped = self._to_stop(progress)
        if stopped:
            self._stopping.update(c.id for c in stopped)
            for mark, containers in self._by_mark(progress, stopped).items():
                end_all(self._engine, containers, mark, progress.job.grace)
        pause = self._kill_overdue(progress)
        if self._attempts is not None:
            self._attempts.carry_out(before_ends=True)
            pause = min(pause, self._attempts.pause(before_ends=True))
        due: list[Sequence[int]] = []
        for start in progress.starts:
            left = self._due.setdefault(_retry_of(progress, start), time.monotonic() + start.delay)
            left -= time.monotonic()
            if left > 0:
                pause = min(pause, left)
            else:
                due.append(start.replicas)
        if not due:
            return pause
        # after a refusal one retry at a time: only one of them may be impossible
        self._start(progress, due[0] if self._tries else [n for replicas in due for n in replicas])
        return 0.0

    def _by_mark(self, progress: Progress, stopped: Sequence[Container]) -> dict[str, list[Container]]:
        """Returns the containers to stop by the mark with the reason."""
        released = [n for n, why in progress.stops.items() if why == NO_LONGER_NEEDED]
        unneeded = {container.id for n in released for container in progress.replicas[n]}
        if progress.gang.expired:
            general = EXPIRED
        else:
            general = STOPPED
        by_mark: dict[str, list[Container]] = {}
        for container in stopped:
            if container.id in unneeded:
                mark = UNNEEDED
            else:
                mark = general
            by_mark.setdefault(mark, []).append(container)
        return by_mark

    def _kill_overdue(self, progress: Progress) -> float:
        """Kills cancelled containers after the grace period; returns the seconds until the next one.

        The cancelling process does so, too, but may have been killed: a closed terminal, another Ctrl-C.
        """
        now = time.monotonic()
        cancelled = [c for mine in progress.replicas for c in mine[-1:] if c.live and c.mark == CANCELLED]
        for container in cancelled:
            self._overdue.setdefault(container.id, now + progress.job.grace)
        over = [c for c in cancelled if self._overdue[c.id] <= now]
        if over:
            end_all(self._engine, over, CANCELLED, 0.0)
            self._overdue.update((c.id, now + KILLED_WITHIN) for c in over)
        return min((self._overdue[c.id] - now for c in cancelled), default=POLL_INTERVAL)

    def _start(self, progress: Progress, ordinals: Sequence[int]) -> None:
        try:
            self._start_all(progress, ordinals)
            self._tries = 0
        except EngineError as error:
            print_error(f"a retry failed: {error}")
            self._tries += 1
            if self._tries >= TRIES:
                newest = [c for n in ordinals if (c := progress.newest(n)) is not None]
                end_all(self._engine, newest, FAILED, 0.0)
            else:
                time.sleep(2.0 ** (self._tries - 1) / 4)

    def _start_all(self, progress: Progress, ordinals: Sequence[int]) -> None:
        """Creates the next containers of replicas, unless they exist, and starts them."""
        attempts = list(progress.expected)
        old: list[tuple[int, Container]] = []
        ready: list[str] = []
        for ordinal in ordinals:
            newest = progress.present(ordinal)
            if newest is None:
                continue  # its container was removed: the next one cannot be created from it
            if (
                newest.status == "created"
                and not newest.mark
                and newest.attempt >= progress.expected[ordinal]
            ):
                ready.append(newest.id)
                continue
            attempts[ordinal] = max(newest.attempt + 1, progress.expected[ordinal])
            old.append((ordinal, newest))
        next_run = progress.retries.get(REQUEUED, 0) > progress.carried_out.get(REQUEUED, 0)
        again = progress.begin_again(next_run=next_run)
        attempts = [number + (n in again) for n, number in enumerate(attempts)]
        used = progress.retries_with([*ordinals, *again])
        retry = json.dumps({"used": used, "attempts": attempts})
        rule, run = progress.job.limits, used.get(REQUEUED, 0) + 1
        ends_at = progress.ends_at
        if rule.limit is not None and run > progress.carried_out.get(REQUEUED, 0) + 1:
            ends_at = math.ceil(time.time() + rule.limit)

        def make(member: tuple[int, Container]) -> str:
            ordinal, container = member
            inspected = self._engine.call("GET", f"/containers/{container.id}/json")
            number = attempts[ordinal]
            env = {settings.TORCHX_ATTEMPT: str(number), **rule.variables(run, ends_at or None)}
            labels = {ATTEMPT: str(number), RETRY: retry, **({ENDS_AT: str(ends_at)} if ends_at else {})}
            body = next_body(inspected, labels, env)
            name = f"{container.host}.{number}"
            made: Object = self._engine.call("POST", "/containers/create", {"name": name}, body)
            return str(made["Id"])

        results = in_parallel(make, old)
        ready += [made for made in results if isinstance(made, str)]
        try:
            all_of(results)
            names = self._still_needed(ready)
            all_of(in_parallel(lambda one: self._engine.call("POST", f"/containers/{one}/start"), names))
        except EngineError:
            self._discard([made for made in results if isinstance(made, str)])
            raise

    def _still_needed(self, ready: Sequence[str]) -> list[str]:
        """Returns the names of the containers to start; discards them if the application was cancelled.

        A start by name fails if a cancellation has marked the container meanwhile.
        """
        containers = find_containers(self._engine, self._app_id).get(self._app_id, ())
        if containers and not self._replay(containers).cancelled:
            return [container.full_name for container in containers if container.id in ready]
        self._discard(ready)
        return []

    def _discard(self, made: Sequence[str]) -> None:
        """Removes containers, except those with the only mark of a cancellation."""
        containers = find_containers(self._engine, self._app_id).get(self._app_id, ())
        # by name: one that is marked after it was read stays, too
        unmarked = [c.full_name for c in containers if c.id in made and c.mark != CANCELLED]
        remove(self._engine, unmarked)


def _is_over(progress: Progress) -> bool:
    """Returns True if an application has ended, and none of its containers is just being removed.

    One that is being removed was killed for that: its removal is the end of its attempt, not the signal.
    """
    newest = [mine[-1].status for mine in progress.replicas if mine]
    return progress.end is not None and "removing" not in newest


def _retry_of(progress: Progress, start: Start) -> tuple[tuple[int, int], ...]:
    """Returns the replicas of a retry with their previous attempts: these stay the same until it begins."""
    newest = ((n, progress.newest(n)) for n in start.replicas)
    return tuple((n, container.attempt if container else 0) for n, container in newest)


def main(argv: list[str]) -> None:
    """Runs the supervisor's process.

    Args:
        argv: the job's folder, the application's id, and the descriptor to write ``ready`` to.
    """
    folder, app_id, ready = Path(argv[0]), argv[1], int(argv[2])
    separate()
    containers: Sequence[Container] = ()
    with suppress(TorchxError, OSError):
        containers = find_containers(Engine(), app_id).get(app_id, ())
    keep_leases(app_id, containers)
    paths = JobPaths(folder)
    if paths.is_waiting():  # the keeper may be killed before it does this
        ticket.clear(Home(folder.parent.parent), paths)
    begin(paths)
    engine = Engine()
    supervisor = Supervisor(engine, app_id, paths, containers)
    report_ready(ready)
    is_over = supervisor.run()
    join_kills()
    if not paths.record.exists():
        shutil.rmtree(folder, ignore_errors=True)
    elif is_over and supervisor.last:
        reconcile.record_end(engine, paths, supervisor.last)
    elif is_over:
        reconcile.record_removal(paths, cancelled=supervisor.cancelled)


def policies_of(
    engine: Engine, job: Job, paths: JobPaths, journal: Journal | None
) -> list[Policy[ContainerReplica]]:
    """Returns the policies of an application, in the order in which its supervisor calls them.

    Args:
        engine: the engine.
        job: the application.
        paths: its folder.
        journal: its journal; None for an application without a record.
    """
    policies: list[Policy[ContainerReplica]] = [Notices(engine)]
    if any(role.max_retries for role in job.roles):
        policies.append(RetryCauses(engine, job.cfg))
    rule = rule_of(job.cfg)
    if rule is not None and journal is not None:
        with suppress(OSError):  # the application runs without
            policies.append(detection.ContainerStalls(rule, engine, job, paths, journal.note))
    if journal is not None and (rule is not None or job.cfg.get("straggler")):
        members = [(role.name, replica) for role, replica in job.members]
        policies += stragglers.policies_of(job.cfg, paths, members, journal.note, time.time)
    if job.cfg.get(POLICIES):
        policies += _foreign(job)
    if job.has_services:
        policies.append(readiness.Readiness(engine, print_error))
    return [*policies, Sampler(engine, paths.usage)]


def _foreign(job: Job) -> list[Policy[Replica]]:
    """Returns the policies of other packages; those of a job that this user has submitted here."""
    names = [f"{role.name}/{replica}" for role, replica in job.members]
    kept = record.load_data(job.app_id) or {}
    try:
        application = Application(job.app_id, names, job.cfg, typed_at(kept, dict, "app", "metadata"))
        return foreign_policies.create(kept.get(POLICIES, ()), application)
    except (StateError, ValueError, TypeError) as error:  # the application runs without
        print_error(f"without its policies: {error}")
        return []


class RetryCauses(Policy[ContainerReplica]):
    """The rules of retries of an application.

    Args:
        engine: the engine.
        cfg: the run options.
    """

    def __init__(self, engine: Engine, cfg: Data) -> None:
        self._engine = engine
        self._rules = RetryRules.recorded(cfg)

    def verdict(self, replica: ContainerReplica, facts: Object) -> str:
        """Returns NEVER for a failure that is not retried; adds the rule to its facts."""
        lines: list[str] = []
        if self._rules.reads_lines:
            log = read_log(self._engine, replica.container, LogQuery(tail=MOST_LINES))
            lines = lines_of(b"".join(line[2] for line in log))
        failure = Failure(facts["code"], facts["signal"], lines, facts["cause"])
        rule = self._rules.refused_by(failure)
        if not rule:
            return COUNTED
        facts[RULE] = slug(rule)
        return NEVER


def _causes_of_retries(progress: Progress) -> Iterator[tuple[int, Container]]:
    """Yields the replicas and containers whose failures have caused the retries that are due."""
    failed: list[tuple[float, int, Container, str]] = []
    for ordinal, (role, _) in enumerate(progress.job.members):
        newest = progress.newest(ordinal)
        if newest is None or newest.live or newest.mark or not newest.exit_code or not role.max_retries:
            continue
        if newest.attempt >= progress.expected[ordinal]:
            failed.append((newest.finished or newest.created, ordinal, newest, role.policy))
    failed.sort(key=lambda each: each[0])
    yield from ((ordinal, container) for _, ordinal, container, policy in failed if policy == REPLICA)
    # the others have ended because of the first one, or after it
    yield from [(ordinal, one) for _, ordinal, one, policy in failed if policy != REPLICA][:1]


class Notices(ContainerPolicy):
    """Applies the time limit, and sends the notice, once to each container.

    Args:
        engine: the engine.
    """

    before_ends = True

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._notified: set[str] = set()
        self._progress: Progress | None = None

    def follow(self, progress: Progress) -> None:
        """Applies the time limit to an application if it is reached while containers run."""
        self._progress = progress
        if progress.ends_at and progress.end is None and time.time() >= progress.ends_at and _live(progress):
            progress.expire()

    def pause(self) -> float | None:
        """Returns the seconds until the notice or the limit; None without one."""
        progress = self._progress
        if progress is None or not progress.ends_at or progress.gang.expired or progress.cancelled:
            return None
        notice, left = progress.job.limits.notice, progress.ends_at - time.time()
        if left <= 0:
            return 1.0
        if notice and left > notice:
            return left - notice
        return left

    def due(self) -> Sequence[Order]:
        """Sends the notice if it is due; returns no orders."""
        progress = self._progress
        if progress is None or self.pause() is None:
            return ()
        rule, left = progress.job.limits, progress.ends_at - time.time()
        if not rule.notice or not 0 < left <= rule.notice:
            return ()
        new = [container for container in _live(progress) if container.id not in self._notified]
        self._notified.update(container.id for container in new)
        number = signal.Signals[f"SIG{rule.signal}"].value
        command = ["sh", "-c", NOTICE_SCRIPT, "sh", rule.signal, str(number), "1", str(math.ceil(left))]
        for container, result in zip(new, in_parallel(lambda c: self._run(c, command), new), strict=True):
            if isinstance(result, Exception):
                print_error(f"{container.name} was not notified: {result}")
        return ()

    def _run(self, container: Container, command: list[str]) -> None:
        """Starts a program in a container.

        Raises:
            StateError: the engine cannot start it, for example since the image has no shell.
        """
        made = self._engine.call("POST", f"/containers/{container.id}/exec", body={"Cmd": command})
        self._engine.call("POST", f"/exec/{made['Id']}/start", body={"Detach": True})


def _live(progress: Progress) -> list[Container]:
    return [c for mine in progress.replicas for c in mine[-1:] if c.live]
