"""Submits runs as the tasks of job arrays, each with its arguments and environment in a folder of its own."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchx.errors import StateError
from torchx.machine import files
from torchx.printable import ranges
from torchx.schedulers.shared.batch.folders import no_folder
from torchx.schedulers.shared.batch.marks import mark_of
from torchx.schedulers.shared.batch.paths import (
    BatchPaths,
    distrust_reason,
    read_own,
    task_folder,
    tasks_in,
    write,
)
from torchx.schedulers.shared.batch.record import Records
from torchx.schedulers.shared.batch.request import context_of
from torchx.schedulers.shared.batch.script import role_files
from torchx.schedulers.shared.options import progress_of
from torchx.schedulers.slurm import commands as client
from torchx.schedulers.slurm import submit as single
from torchx.schedulers.slurm.directives import DIALECT
from torchx.schedulers.slurm.options import sbatch_options
from torchx.schedulers.slurm.queue import query_all_jobs
from torchx.schedulers.slurm.request import SlurmRequest, to_request
from torchx.scheduling.checks import require_application, require_hosts
from torchx.specs.app import resolve_overrides
from torchx.specs.checks import hosts_in

if TYPE_CHECKING:
    from torchx.scheduling.base import ManyRuns, Scheduler
    from torchx.specs.app import AppDef
    from torchx.specs.run_options import RunOptions

CONDITIONS = {"ok": "afterok", "any": "afterany", "failed": "afternotok"}
"""The types of dependencies, by the conditions of ``--after``."""

_LARGEST = r"(?m)^MaxArraySize\s*=\s*(\d+)"
_SUBMITTING = ".submitting"
"""The lock of a process that submits an array; sbatch holds it too, so that a kill leaves no doubt."""


def rejects(scheduler: Scheduler[SlurmRequest], runs: ManyRuns) -> str:
    """Returns why runs cannot be a job array, as a clause; empty if they can.

    Raises:
        StateError: Slurm is missing or does not respond.
    """
    if len(runs.first.roles) > 1:
        return "Slurm has no arrays of jobs with several roles"
    if "?" in str(sbatch_options(scheduler.run_opts().resolve(runs.cfg)).get("dependency") or ""):
        return "its run option `dependency` is met by any of several jobs"
    if not all(re.fullmatch(r"[0-9]+(_[0-9]+)?", app_id) for app_id, _ in runs.after):
        return "it waits for a job whose id Slurm has assigned again"
    if largest_array():
        return ""
    return "job arrays are switched off"


def largest_array() -> int:
    """Returns the maximum number of tasks of an array, 0 if the cluster allows none.

    Raises:
        StateError: Slurm is missing or does not respond.
    """
    match = re.search(_LARGEST, client.call(["scontrol", "show", "config"]))
    if match:
        return max(int(match[1]) - 1, 0)
    return 0


def submit(scheduler: Scheduler[SlurmRequest], runs: ManyRuns) -> dict[int, str]:
    """Submits runs as one job array, or as several if the cluster limits their size.

    With a limit of runs at the same time, each of several arrays starts after the one before.

    Returns:
        The id of each run, by its number.

    Raises:
        UsageError: the runs are not supported on Slurm.
        StateError: Slurm rejects the runs or does not respond.
    """
    single.check_cluster()
    info = scheduler.submit_dryrun(runs.first, runs.cfg)
    app, cfg, plan = require_application(info), info.cfg, info.request
    plan, _ = single.provide_workspaces(plan, progress_of(info))
    apps = {number: _resolved(each, app) for number, each in runs.apps.items()}
    size, batches = largest_array(), dict[int, list[int]]()
    for number in sorted(runs.apps):
        batches.setdefault((number - 1) // size, []).append(number)
    ids: dict[int, str] = {}
    before = {app_id.partition("_")[0] for app_id in runs.behind}
    done: list[_Array] = []
    for batch, numbers in batches.items():
        token = token_of(f"{runs.key}/{batch}")
        request = to_request(app, cfg, scheduler.session_name, plan.copies, (), token)
        request = replace(request, script=_with_images(request.script, plan), builds=[])
        tasks = {(number - 1) % size + 1: apps[number] for number in numbers}
        options = _options(tasks, runs.at_once, [*_dependencies(runs.after, before), *_own_dependency(cfg)])
        request = replace(request, cmd=(*request.cmd, *options))
        array = _Array(request, cfg, scheduler.session_name, tasks, plan)
        try:
            job_id = array.submit()
        except client.NoAnswerError:
            raise  # submitted or not: a later call finds out
        except BaseException:
            for earlier in done:
                earlier.withdraw()
            raise
        done.append(array)
        ids.update({number: f"{job_id}_{(number - 1) % size + 1}" for number in numbers})
        if runs.at_once:
            before = {str(job_id)}
    return ids


def token_of(key: str) -> str:
    """Returns the token of an array, equal for equal keys of one user on one machine."""
    return hashlib.sha256(f"{os.geteuid()}:{key}".encode()).hexdigest()[:16]


def _resolved(app: AppDef, first: AppDef) -> AppDef:
    """Returns the application of a run with the images and workspaces of the first one, which are equal.

    Raises:
        UsageError: it uses the hosts of a role that does not exist.
    """
    if names := hosts_in(app):
        require_hosts(app, names, "slurm", known=True)
    roles = [
        replace(resolve_overrides(role), image=other.image, workspace=other.workspace)
        for role, other in zip(app.roles, first.roles, strict=True)
    ]
    return replace(app, roles=roles)


def _with_images(script: str, plan: SlurmRequest) -> str:
    """Returns a script with the images of the planned one, which may have been pushed under other names."""
    images = re.findall(r"--container-image=\S+|docker://\S+", plan.script)
    found = iter(images)
    return re.sub(r"--container-image=\S+|docker://\S+", lambda match: next(found, match[0]), script)


def _options(tasks: Iterable[int], at_once: int, dependencies: Sequence[str]) -> list[str]:
    limit = f"%{at_once}" if at_once else ""
    options = [f"--array={ranges(tasks)}{limit}"]
    if dependencies:
        options += [f"--dependency={','.join(dependencies)}", "--kill-on-invalid-dep=yes"]
    return options


def _dependencies(after: Iterable[tuple[str, str]], before: Iterable[str]) -> Iterator[str]:
    """Yields the dependencies on other applications, and on the arrays before."""
    for condition, kind in CONDITIONS.items():
        others = [app_id for app_id, each in after if each == condition]
        if others:
            yield ":".join([kind, *others])
    earlier = sorted(before)
    if earlier:
        yield ":".join(["afterany", *earlier])


def _own_dependency(cfg: RunOptions) -> list[str]:
    own = sbatch_options(cfg).get("dependency")
    if own:
        return [str(own)]
    return []


@dataclass
class _Array:
    """One array to submit.

    Attributes:
        request: its script and the files that are equal for all tasks.
        cfg: run options.
        session: the session part of handles.
        tasks: the application of each task, by its index.
        plan: the request of the first run, with the copies of workspaces.
    """

    request: SlurmRequest
    cfg: RunOptions
    session: str
    tasks: Mapping[int, AppDef]
    plan: SlurmRequest

    def submit(self) -> int:
        """Submits the array, unless an earlier call has, and returns its id.

        Raises:
            UsageError: a run is invalid.
            StateError: its folders cannot be created, or Slurm rejects it or does not respond.
        """
        single.check_supported(self.request.script, self.cfg)
        paths = BatchPaths(Path(self.request.folder))
        with self._alone(paths) as lock:
            job_id = self._known_id(paths)
            if job_id is None:
                try:
                    for folder in reversed(self.request.folders):
                        self._write(BatchPaths(folder))
                    job_id = single.sbatch(self.request, paths, [], [lock])
                except client.NoAnswerError:
                    raise
                except BaseException:
                    self._remove()
                    raise
                write(paths.id, str(job_id))
            self._record(job_id)
        return job_id

    def withdraw(self) -> None:
        """Cancels the array, because another part of the submission failed."""
        paths = BatchPaths(Path(self.request.folder))
        job_id = (read_own(paths.id) or b"").decode("ascii", "replace").strip()
        with contextlib.suppress(StateError):
            client.call(["scancel", job_id])
        records = Records("slurm").of({f"{job_id}_{task}" for task in self.tasks})
        Records("slurm").remove(*records.values())
        self._remove()

    @contextmanager
    def _alone(self, paths: BatchPaths) -> Iterator[int]:
        """Creates the folder of the array, and holds the lock of its submission.

        Raises:
            StateError: it cannot be created, or is not trusted.
        """
        try:
            files.make_folder(paths.folder.parent)
            with contextlib.suppress(FileExistsError):
                paths.folder.mkdir(mode=0o700)
            if why := distrust_reason(paths.folder, self.request.token):
                raise StateError(f"cannot use the folder of the job: {paths.folder}: {why}")
            lock = files.open_file(paths.folder / _SUBMITTING, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise no_folder(paths.folder, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock
        finally:
            os.close(lock)

    def _known_id(self, paths: BatchPaths) -> int | None:
        """Returns the id of the array, if an earlier call has submitted it."""
        folders = [task for folder in self.request.folders for task in tasks_in(folder)]
        for path in [paths.id, *(BatchPaths(folder).id for folder in folders)]:
            match = re.match(rb"(\d{1,18})", read_own(path) or b"")
            if match:
                return int(match[1])
        if not paths.script.exists():
            return None
        for parts in query_all_jobs(False)().values():
            mark = mark_of(parts[0].comment)
            if mark is not None and mark[0] == self.request.token:
                return parts[0].job_id
        argv = ["sacct", "--noheader", "--parsable2", "--allocations", f"--name={self._job_name()}"]
        with contextlib.suppress(StateError):  # no accounting
            output = client.call([*argv, "--starttime=now-30days", "--format=JobID"])
            match = re.match(rb"(\d{1,18})", output.strip().encode())
            if match:
                return int(match[1])
        return None

    def _job_name(self) -> str:
        return str(sbatch_options(self.cfg).get("job-name") or self.request.name)

    def _write(self, paths: BatchPaths) -> None:
        """Writes the script, the files of all tasks, and those of each task, into one of the folders."""
        try:
            files.make_folder(paths.folder)
            for name, text in self.request.files.items():
                if name.startswith("role-"):
                    continue  # each task has its own
                files.make_folder((paths.folder / name).parent)
                write(paths.folder / name, text)
            for task, app in self.tasks.items():
                folder = task_folder(paths.folder, task)
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(mode=0o700)
                context = context_of(
                    DIALECT, app, self.cfg, self.session, self.plan.copies, self.request.token
                )
                context = context._replace(folder=str(folder))
                for name, text in role_files(app, self.cfg, context).items():
                    write(folder / name, text, sync=False)
            write(paths.script, self.request.script)  # last: it shows that sbatch may have been called
        except OSError as error:
            raise no_folder(paths.folder, error) from error

    def _record(self, job_id: int) -> None:
        """Writes the records of the tasks."""
        records = Records("slurm")
        known = records.of({f"{job_id}_{task}" for task in self.tasks})
        for task, app in self.tasks.items():
            folder, fallback = ([str(task_folder(each, task)) for each in self.request.folders] + [""])[:2]
            if f"{job_id}_{task}" in known or not Path(folder).is_dir():
                continue  # of an earlier call, or deleted since
            record = single.record_of(self.request, app, self.cfg, self.session, job_id)
            records.add(replace(record, task=task, folder=folder, fallback=fallback), sync=False)

    def _remove(self) -> None:
        """Removes the folders of an array that was not submitted."""
        for folder in self.request.folders:
            for task in self.tasks:
                shutil.rmtree(task_folder(folder, task), ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
        Records("slurm").mark_deleted(self.request.token)
