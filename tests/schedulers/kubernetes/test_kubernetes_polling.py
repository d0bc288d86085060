"""After its first minute, no command reads a list or log of a cluster more often than once in 15 seconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakecluster import FakeCluster
from kubejobs import role, submit
from program import end_background, start, torchx
from support import wait_until
from terminal import Terminal

from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler, create_scheduler
from torchx.specs.app_metadata import after, service

MINUTE, WINDOW = 60, 35
LISTS = (("/api/v1", "pods"), ("/apis/batch/v1", "jobs"))
DEAF = "trap '' TERM; echo line; while true; do sleep 0.1; done"
PRINTING = "while true; do echo line; sleep 0.02; done"  # more lines in 15 s than one read returns
CHATTY = ("events", "log", "top")
"""Commands whose applications print a lot."""
DETACHED = ("watcher", "after")
"""Commands that leave a process in the background, which waits."""
COMPONENT = '''
import torchx.specs as specs

def train(seed: int) -> specs.AppDef:
    """Trains.

    Args:
        seed: seed
    """
    role = specs.Role("r", "registry.example.com/shell", entrypoint="sleep", args=["600"],
                      env={"SEED": str(seed)}, resource=specs.Resource(1, 0, 100))
    return specs.AppDef("train", [role])
'''


def lists(cluster: FakeCluster) -> Counter[str]:
    """Returns the number of requests for each list and each log; a watch is a stream."""
    return Counter(line for line in cluster.asked if line.startswith("GET") and not line.endswith("?watch"))


@pytest.mark.long
def test_no_command_lists_often_after_its_first_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(COMPONENT)
    train = (f"{tmp_path}/train.py:train", "--seed", "1")
    commands = {
        "wait": ("wait", "APPS"),
        "ready": ("wait", "--for", "succeeded", "APPS"),
        "pattern": ("wait", "--for", "log:never", "APP"),
        "status": ("status", "-w", "APP"),
        "describe": ("describe", "-w", "APP"),
        "attach": ("attach", "APP"),
        "events": ("events", "-f", "-s", "kubernetes"),
        "events-app": ("events", "-f", "APP"),
        "log": ("log", "-f", "APP"),
        "log-sweep": ("log", "-f", "SWEEP"),
        "status-sweep": ("status", "-w", "SWEEP"),
        "cancel": ("cancel", "APP"),
        "attached": ("run", "-s", "kubernetes", "--log", *train),
        "attached-quietly": ("run", "-s", "kubernetes", "--wait", *train),
        "watcher": ("run", "-s", "kubernetes", "-d", "--notify", "cmd:true", *train),
        "after": ("run", "-s", "kubernetes", "-d", "--after", "APP", *train),
        "wait-restart": ("wait", "RESTART"),
        "log-restart": ("log", "-f", "RESTART"),
        "wait-service": ("wait", "SERVICE"),
        "log-service": ("log", "-f", "SERVICE"),
        "top": ("top", "-s", "kubernetes"),
    }
    clusters, running = {}, {}
    with ExitStack() as opened:
        opened.callback(end_background, tmp_path)
        for name, words in commands.items():
            clusters[name] = cluster = opened.enter_context(FakeCluster())
            cluster.metrics = {"cpu": "250m", "memory": "65536Ki"}
            config = cluster.kubeconfig(tmp_path / name)
            monkeypatch.setenv("KUBECONFIG", str(config))
            scheduler = create_scheduler("torchx")
            apps = [f"kubernetes://torchx/{app_id}" for app_id in _submitted(scheduler, name, words)]
            scheduler.close()
            if "SWEEP" in words:
                flags = ("-s", "kubernetes", "-d", "--name", name, "--each", "seed=1..3")
                done = torchx(
                    "run", *flags, f"{tmp_path}/train.py:train", env={"TORCHX_HOME": f"{config}-home"}
                )
                apps = [done.stdout.strip()]
            words = tuple(each for word in words for each in _filled(word, apps))
            env = {"KUBECONFIG": str(config), "TORCHX_HOME": f"{config}-home"}
            if name == "top":
                top = opened.enter_context(Terminal(*words, env=env))
            elif name in DETACHED:
                assert torchx(*words, env=env).returncode == 0
            else:
                running[name] = start(*words, env=env)
                opened.callback(running[name].kill)
        _read(top, MINUTE)
        before = {name: lists(cluster) for name, cluster in clusters.items()}
        _read(top, WINDOW)
        counts = {name: lists(cluster) - before[name] for name, cluster in clusters.items()}
        ended = {name: one.communicate() for name, one in running.items() if one.poll() is not None}
        for name in running.keys() - ended.keys():
            running[name].kill()
            running[name].communicate()
    assert ended == {}
    assert counts["top"]
    assert {name: count for name, count in counts.items() if max(count.values(), default=0) > 3} == {}


def _submitted(scheduler: KubernetesScheduler, name: str, words: Sequence[str]) -> list[str]:
    """Submits the applications of a command, and returns their ids."""
    slow = {"grace_period": 600.0}
    if "RESTART" in words:  # one replica has failed, and the other takes its time to end
        script = f'test "$JOB_COMPLETION_INDEX" = 0 || exit 7; {DEAF}'
        return [submit(scheduler, role(script, num_replicas=2, max_retries=1), **slow)]
    if "SERVICE" in words:
        server = service(role("echo line; sleep 600", "server"), "log:never", within="1h")
        return [submit(scheduler, server, after(role("true"), ["server"]))]
    if name == "cancel":
        return [submit(scheduler, role(DEAF), **slow)]
    printing = role(PRINTING if name in CHATTY else "echo line; sleep 600")
    return [submit(scheduler, printing, role("echo line; sleep 600", "quiet")) for _ in range(3)]


def _filled(word: str, apps: list[str]) -> list[str]:
    places = {"APPS": apps, "SWEEP": apps, **dict.fromkeys(("APP", "RESTART", "SERVICE"), apps[:1])}
    return places.get(word, [word])


def _read(top: Terminal, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        top.read(1.0)


def test_wait_for_many_applications_shares_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCluster() as cluster:
        config = cluster.kubeconfig(tmp_path / "config")
        monkeypatch.setenv("KUBECONFIG", str(config))
        scheduler = create_scheduler("torchx")
        apps = [f"kubernetes://torchx/{submit(scheduler, role('sleep 600'))}" for _ in range(12)]
        scheduler.close()
        before = lists(cluster)
        command = start("wait", *apps, env={"TORCHX_HOME": f"{config}-home"})
        wait_until(lambda: cluster.asked.count("GET /api/v1/namespaces/default/pods?watch") >= 12, "watched")
        counts = lists(cluster) - before
        command.kill()
        command.communicate()
    assert set(counts) == {f"GET {path}/namespaces/default/{kind}" for path, kind in LISTS}
    assert max(counts.values()) <= 6
