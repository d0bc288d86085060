"""The supervisor of an application in containers: watches the engine's events and carries out the rules.

What it does follows from the containers, so one that died is followed by another (see supervisor_launch),
which goes on where it was. Of a container that succeeded and was removed, a file in its folder tells.
Like that of a local job it sees no installed packages.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from torchx import settings
from torchx.errors import StateError
from torchx.machine import files, processes
from torchx.schedulers.docker.cancel import KILLED_WITHIN, end_all, remove
from torchx.schedulers.docker.container_body import next_body
from torchx.schedulers.docker.containers import CANCELLED, FAILED, STOPPED, Container, damage_of
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.engine.parallel import all_of, in_parallel
from torchx.schedulers.docker.events import Events
from torchx.schedulers.docker.labels import ATTEMPT, RETRY
from torchx.schedulers.docker.lookup import look
from torchx.schedulers.docker.replay import Story, job_of, tell

LOOK_EVERY = 30.0
"""Seconds after which it looks at the containers, whatever the events say."""
ENGINE_BACK_WITHIN = 900.0
"""Seconds without an engine after which it gives up; the next command that sees the job starts another."""
SUCCEEDED = "succeeded.json"
"""The file that keeps which replicas have succeeded."""
TRIES = 5
"""How often a retry that the engine refuses is asked for."""


class Supervisor:
    """Carries out the rules of one application until it has ended.

    Args:
        engine: where it runs.
        app_id: the application.
        folder: its folder.
    """

    def __init__(self, engine: Engine, app_id: str, folder: Path) -> None:
        self._engine = engine
        self._app_id = app_id
        self._succeeded = Succeeded(folder / SUCCEEDED)
        self._stopping: set[str] = set()
        self._overdue: dict[str, float] = {}
        self._due: dict[tuple[tuple[int, ...], int], float] = {}
        self._tries = 0

    def run(self) -> None:
        """Runs until the application has ended or is gone, or no engine has answered for long."""
        silent_since: float | None = None
        while True:
            try:
                with closing(Events(self._engine, self._app_id)) as events:
                    silent_since = None
                    if self._watch(events):
                        return
            except StateError as error:  # it is being restarted, or does not answer
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > ENGINE_BACK_WITHIN:
                    print_error(f"gave up: {error}")
                    return
            time.sleep(0.5)

    def _watch(self, events: Events) -> bool:
        """Looks and acts at each event; True when there is nothing left to do, False when they break off."""
        containers: list[Container] | None = None
        looked = 0.0
        while True:
            known = events.unheard(containers or ())
            if time.monotonic() > looked + LOOK_EVERY:
                looked, known = time.monotonic(), []
            containers = look(self._engine, self._app_id, known).get(self._app_id)
            if not containers or damage_of(containers):
                return True
            story = self._told(containers)
            if known and (self._to_stop(story) or story.starts):
                # what is ordered rests on how all of them are now: one may have been marked by somebody else
                containers = look(self._engine, self._app_id).get(self._app_id, [])
                story = self._told(containers) if containers else story
            if story.end is not None or not containers:
                return True
            pause = min(self._act(story), LOOK_EVERY)
            # of what has been cancelled only the end matters
            wait = partial(events.wait_for_all, containers) if story.cancelled else events.wait
            if not wait(pause):
                return False

    def _told(self, containers: Sequence[Container]) -> Story:
        story = tell(job_of(containers), containers, self._succeeded.attempts)
        self._succeeded.note(story)
        return story

    def _to_stop(self, story: Story) -> list[Container]:
        """Returns what is to be ended and has not been asked to yet."""
        newest = [story.newest(n) for n in story.stops]
        # who cancels asks at once, and none is asked twice
        return [c for c in newest if c is not None and c.id not in self._stopping and c.mark != CANCELLED]

    def _act(self, story: Story) -> float:
        """Does what the rules order now, and returns the seconds until there is more to do."""
        stopped = self._to_stop(story)
        if stopped:
            self._stopping.update(c.id for c in stopped)
            end_all(self._engine, stopped, STOPPED, story.job.grace)
        pause = self._kill_overdue(story)
        for start in story.starts:
            key = (start.replicas, sum(story.retries.values()))
            due = self._due.setdefault(key, time.monotonic() + start.delay)
            left = due - time.monotonic()
            if left > 0:
                pause = min(pause, left)
            else:
                self._start(story, start.replicas)
                pause = 0.0
        return pause

    def _kill_overdue(self, story: Story) -> float:
        """Kills what was cancelled and has had its time; returns the seconds until there is more to kill.

        Who has cancelled it does so, too, but may be gone by now: a closed terminal, another Ctrl-C.
        """
        now = time.monotonic()
        asked = [c for mine in story.replicas for c in mine[-1:] if c.live and c.mark == CANCELLED]
        for container in asked:
            self._overdue.setdefault(container.id, now + story.job.grace)
        over = [c for c in asked if self._overdue[c.id] <= now]
        if over:
            end_all(self._engine, over, CANCELLED, 0.0)
            self._overdue.update((c.id, now + KILLED_WITHIN) for c in over)
        return min((self._overdue[c.id] - now for c in asked), default=LOOK_EVERY)

    def _start(self, story: Story, ordinals: Sequence[int]) -> None:
        try:
            self._start_all(story, ordinals)
            self._tries = 0
        except EngineError as error:
            print_error(f"a retry failed: {error}")
            self._tries += 1
            if self._tries >= TRIES:
                newest = [c for n in ordinals if (c := story.newest(n)) is not None]
                end_all(self._engine, newest, FAILED, 0.0)
            else:
                time.sleep(2.0 ** (self._tries - 1) / 4)

    def _start_all(self, story: Story, ordinals: Sequence[int]) -> None:
        """Makes the next containers of replicas, where they are not made yet, and starts them."""
        attempts = list(story.expected)
        old: list[tuple[int, Container]] = []
        ready: list[str] = []
        for ordinal in ordinals:
            newest = story.newest(ordinal)
            if newest is None:
                continue  # its container was removed: there is nothing to make another from
            if newest.status == "created" and not newest.mark and newest.attempt >= story.expected[ordinal]:
                ready.append(newest.id)
                continue
            attempts[ordinal] = max(newest.attempt + 1, story.expected[ordinal])
            old.append((ordinal, newest))
        retry = json.dumps({"used": story.retries, "attempts": attempts})

        def make(member: tuple[int, Container]) -> str:
            ordinal, container = member
            inspected = self._engine.call("GET", f"/containers/{container.id}/json")
            number = attempts[ordinal]
            env = {settings.TORCHX_ATTEMPT: str(number)}
            body = next_body(inspected, {ATTEMPT: str(number), RETRY: retry}, env)
            name = f"{container.host}.{number}"
            made: dict[str, Any] = self._engine.call("POST", "/containers/create", {"name": name}, body)
            return str(made["Id"])

        results = in_parallel(make, old)
        ready += [made for made in results if isinstance(made, str)]
        try:
            all_of(results)
            if not self._wanted(ready):
                return
            all_of(in_parallel(lambda one: self._engine.call("POST", f"/containers/{one}/start"), ready))
        except EngineError:
            remove(self._engine, [made for made in results if isinstance(made, str)])
            raise

    def _wanted(self, ready: Sequence[str]) -> bool:
        """Tells whether a start still stands; else what was made for it goes."""
        containers = look(self._engine, self._app_id).get(self._app_id, ())
        if containers and not self._told(containers).cancelled:
            return True
        remove(self._engine, ready)
        return False


class Succeeded:
    """Which replicas have succeeded, kept for the case that somebody removes their containers.

    Args:
        path: the file that tells the next supervisor.

    Attributes:
        attempts: the attempt by the ordinal of the replica.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.attempts: dict[int, int] = {}
        with suppress(OSError, ValueError):
            told = json.loads(path.read_text(encoding="utf-8"))
            self.attempts = {int(ordinal): int(attempt) for ordinal, attempt in told.items()}

    def note(self, story: Story) -> None:
        """Notes what has succeeded since."""
        newest = [(n, story.newest(n)) for n in range(len(story.replicas))]
        seen = {n: c.attempt for n, c in newest if c and c.exit_code == 0 and not (c.error or c.mark)}
        if seen.items() <= self.attempts.items():
            return
        self.attempts |= seen
        with suppress(OSError):  # on a full disk this one still knows
            files.write_file(self._path, json.dumps(self.attempts).encode())


def print_error(text: str) -> None:
    """Says something in the supervisor's log."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def main(argv: list[str]) -> None:
    """Runs the supervisor's process.

    Args:
        argv: the job's folder, the application's id, and the descriptor on which to say ``ready``.
    """
    folder, app_id, ready = Path(argv[0]), argv[1], int(argv[2])
    processes.keep_descriptors_to_itself()
    with suppress(BrokenPipeError):  # whoever started it was killed: it is needed all the same
        os.write(ready, b"ready")
    os.close(ready)
    Supervisor(Engine(), app_id, folder).run()
    for thread in threading.enumerate():  # what was asked to end is seen to its end
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    shutil.rmtree(folder, ignore_errors=True)
