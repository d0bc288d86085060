"""An upgrade under a running job: this version sees, follows, cancels and recovers jobs of the one before.

``torchx-of-flat-layout.tar.xz`` has the packages of the last version with all schedulers in one folder, as
its wheel installs them, without the parts that no test here runs (Kubernetes, Slurm, sessions, notebooks).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine import IMAGE
from local import kill_supervision, supervision_of
from program import torchx
from project.sources import PACKAGES
from support import wait_until

from torchx.jobs.paths import JobPaths
from torchx.machine import locks, processes
from torchx.schedulers import get_scheduler_factories
from torchx.schedulers.docker.supervisor_launch import supervised_in
from torchx.scheduling.base import DescribeAppResponse, Scheduler
from torchx.scheduling.logs import LogQuery
from torchx.specs.app import RetryPolicy
from torchx.specs.status import AppState

SUBMIT = """
import sys
from torchx.schedulers import get_scheduler_factories
from torchx.specs import AppDef, BindMount, RetryPolicy, Role
engine, image, folder, script = sys.argv[1:]
role = Role("w", image=image, entrypoint="sh", args=["-c", script])
role.max_retries, role.retry_policy = 1, RetryPolicy.APPLICATION  # by a supervisor, on every engine
role.mounts = [BindMount(folder, folder)] if image else []
scheduler = get_scheduler_factories()[engine]("torchx")
print(scheduler.submit(AppDef("old", [role]), {"grace_period": 5.0, "retry_backoff": 0.01}))
"""
ENGINES = ["local_cwd", pytest.param("local_docker", marks=[pytest.mark.long, pytest.mark.docker])]


def install_old(folder: Path, resources: Path) -> None:
    with tarfile.open(resources / "torchx-of-flat-layout.tar.xz") as archive:
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def install_current(folder: Path) -> None:
    for package, source in PACKAGES.items():
        ignored = shutil.ignore_patterns(
            "__pycache__", *(("schedulers", "components") if package == "torchx" else ())
        )
        shutil.copytree(source, folder.joinpath(*package.split(".")), ignore=ignored, dirs_exist_ok=True)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program before the upgrade, compiled by its first use."""
    folder = tmp_path_factory.mktemp("flat-layout")
    install_old(folder, Path(__file__).parents[1] / "resources")
    return folder


@dataclass
class Site:
    """An installation that is upgraded, and a job of it.

    Attributes:
        engine: the name of the scheduler.
        installed: the folder of the installation.
        folder: the folder of the gates that the job waits for.
    """

    engine: str
    installed: Path
    folder: Path
    ids: list[str] = field(default_factory=list)

    def submit(self, script: str) -> str:
        """Submits a job that is retried once, with the installed program."""
        image = IMAGE if self.engine == "local_docker" else ""
        done = subprocess.run(
            [sys.executable, "-c", SUBMIT, self.engine, image, str(self.folder), script],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(self.installed)},
            cwd=self.folder,
        )
        assert done.returncode == 0, done.stderr
        self.ids.append(done.stdout.strip())
        return self.ids[-1]

    def upgrade(self) -> None:
        """Replaces the files of the installed program by those of this one."""
        shutil.rmtree(self.installed)
        install_current(self.installed)

    def scheduler(self) -> Scheduler[Any]:
        """The scheduler of the current version."""
        return get_scheduler_factories()[self.engine]("torchx")

    def describe(self, app_id: str) -> DescribeAppResponse:
        found = self.scheduler().describe(app_id)
        assert found is not None, f"{app_id} is not seen"
        return found

    def running(self, app_id: str) -> None:
        wait_until(lambda: self.describe(app_id).state is AppState.RUNNING, f"{app_id} runs")

    def ended(self, app_id: str) -> DescribeAppResponse:
        assert self.scheduler().wait(app_id, 60.0), f"{app_id} still runs"
        return self.describe(app_id)

    def text(self, app_id: str, **query: Any) -> str:
        return b"".join(
            chunk.data for chunk in self.scheduler().log_chunks(app_id, LogQuery(**query))
        ).decode()

    def gate(self, name: str) -> str:
        """A shell command that waits until a gate is opened."""
        return f"until [ -e {self.folder}/{name} ]; do sleep 0.02; done"

    def paths(self, app_id: str) -> JobPaths:
        """The files of the supervisor of a job."""
        return supervised_in(app_id) if self.engine == "local_docker" else JobPaths(self._home(app_id))

    def _home(self, app_id: str) -> Path:
        return Path(os.environ["TORCHX_HOME"]) / "jobs" / app_id

    def kill_supervisor(self, app_id: str) -> None:
        """Kills the supervisor; that of a local job with its guard."""
        if self.engine == "local_cwd":
            kill_supervision(app_id)
            return
        folder = str(self.paths(app_id).folder).encode()
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                arguments = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if folder in arguments:
                os.kill(int(entry.name), signal.SIGKILL)
        wait_until(lambda: not locks.is_held(self.paths(app_id).lock), "the supervisor has ended")


@pytest.fixture(params=ENGINES)
def site(request: pytest.FixtureRequest, compiled: Path, tmp_path: Path) -> Iterator[Site]:
    installed, folder = tmp_path / "installed", tmp_path / "gates"
    folder.mkdir()
    shutil.copytree(compiled, installed)
    site = Site(request.param, installed, folder)
    yield site
    for app_id in site.ids:
        site.scheduler().kill(app_id)
        site.scheduler().delete(app_id)


def followed(site: Site, app_id: str) -> Callable[[], str]:
    """Follows the log in a thread; the returned function waits for its end and returns it."""
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(site.text(app_id, follow=True)))
    thread.start()

    def end() -> str:
        thread.join(60)
        assert found, "the log does not end"
        return found[0]

    return end


def test_a_job_is_seen_and_followed_to_its_end(site: Site) -> None:
    """It is retried by the old supervisor, whose files are gone."""
    app_id = site.submit(f"echo try; {site.gate('go')}; echo end; exit 3")
    log = site.paths(app_id).supervisor_log
    site.upgrade()
    site.running(app_id)
    (line,) = [line for line in site.scheduler().list() if line.app_id == app_id]
    assert (line.name, line.state) == ("old", AppState.RUNNING)
    end = followed(site, app_id)
    wait_until(lambda: site.text(app_id) == "try\n", "it has written")
    with log.open() as errors:  # the folder of a supervisor of containers is removed at the end
        (site.folder / "go").touch()
        described = site.ended(app_id)
        assert errors.read() == ""
    assert (described.state, described.num_restarts) == (AppState.FAILED, 1)
    assert described.first_failure is not None
    assert (described.first_failure.exit_code, described.first_failure.attempt) == (3, 2)
    assert end() == site.text(app_id) == "try\nend\n" * 2


def test_a_job_is_cancelled(site: Site) -> None:
    app_id = site.submit(f"trap 'echo trapped; exit 0' TERM; echo ready; {site.gate('never')}")
    site.upgrade()
    wait_until(lambda: site.text(app_id) == "ready\n", "it runs")
    site.scheduler().cancel(app_id)
    assert site.ended(app_id).state is AppState.CANCELLED
    assert "trapped\n" in site.text(app_id)
    wait_until(lambda: not locks.is_held(site.paths(app_id).lock), "the supervisor has ended")


def test_a_job_whose_supervisor_was_killed_is_recovered(site: Site) -> None:
    app_id = site.submit(f"echo try; {site.gate('go')}; exit 3")
    site.running(app_id)
    site.upgrade()
    site.kill_supervisor(app_id)
    (site.folder / "go").touch()
    described = site.ended(app_id)
    if site.engine == "local_docker":  # another supervisor, of the current version, retries
        assert (described.state, described.num_restarts) == (AppState.FAILED, 1)
        assert site.text(app_id) == "try\n" * 2
    else:
        assert described.state is AppState.FAILED
        assert "supervisor was killed" in described.msg
    assert not locks.is_held(site.paths(app_id).lock)


@pytest.mark.parametrize("site", ["local_cwd"], indirect=True)
def test_the_guard_of_a_killed_supervisor_ends_the_job(site: Site) -> None:
    app_id = site.submit(f"sh -c 'echo $PPID'; {site.gate('never')}")
    wait_until(lambda: site.text(app_id).endswith("\n"), "it runs")
    entry = processes.look_up(int(site.text(app_id)))
    assert entry is not None
    shutil.rmtree(site.installed)
    supervisor, guard = supervision_of(app_id)
    processes.send(supervisor, signal.SIGKILL)
    wait_until(lambda: not processes.is_alive(guard), "the guard has ended")
    assert not processes.is_alive(entry.process)
    assert json.loads(site.paths(app_id).events.read_text().splitlines()[-1])["e"] == "end"
    assert site.describe(app_id).state is AppState.FAILED


def test_a_running_supervisor_needs_no_file_of_its_program(site: Site) -> None:
    """So that the next upgrade may move every module; the job is retried, and then cancelled."""
    site.upgrade()
    app_id = site.submit(f"trap 'exit 3' TERM; echo try; {site.gate('go')}; rm {site.folder}/go; exit 3")
    site.running(app_id)
    log = site.paths(app_id).supervisor_log
    shutil.rmtree(site.installed)
    with log.open() as errors:
        (site.folder / "go").touch()
        wait_until(lambda: site.text(app_id) == "try\n" * 2, "it was retried")
        site.scheduler().cancel(app_id)
        assert site.ended(app_id).state is AppState.CANCELLED
        wait_until(lambda: not locks.is_held(site.paths(app_id).lock), "the supervisor has ended")
        assert errors.read() == ""


@pytest.mark.parametrize("site", ["local_cwd"], indirect=True)
def test_the_commands_show_a_job(site: Site) -> None:
    app_id = site.submit("echo hello")
    site.upgrade()
    site.ended(app_id)
    for command, expected in (("status", "SUCCEEDED"), ("log", "hello")):
        done = torchx(command, f"local_cwd://torchx/{app_id}")
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout


def test_record_of_job_that_ran_when_machine_stopped(resources: Path) -> None:
    """Written by the version before, by a supervisor that a restart of the machine has ended."""
    name = "old-rt8jkxr67mlcb3"
    jobs = Path(os.environ["TORCHX_HOME"]) / "jobs"
    jobs.mkdir(mode=0o700, parents=True)
    shutil.copytree(resources / "job-of-flat-layout", jobs / name)
    scheduler = get_scheduler_factories()["local_cwd"]("torchx")
    scheduler.reconcile(name)
    described = scheduler.describe(name)
    assert described is not None
    assert (described.state, described.name, described.num_restarts) == (AppState.FAILED, "old", 2)
    assert "the machine was restarted while it ran" in described.msg
    (role,) = described.roles
    assert (role.name, role.num_replicas, role.retry_policy) == ("w", 2, RetryPolicy.REPLICA)
    assert (role.env, role.metadata, role.port_map) == ({"LR": "0.1"}, {"k": "v"}, {"http": 8080})
    attempts = [[attempt.exit_code for attempt in r.attempts] for r in described.roles_statuses[0].replicas]
    assert attempts == [[3, None], [3, None]]
