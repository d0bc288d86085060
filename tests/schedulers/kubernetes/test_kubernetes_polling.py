"""After its first minute, no command reads a list or log of a cluster more often than once in 15 seconds."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from fakecluster import FakeCluster
from kubejobs import role, submit
from program import start, torchx
from support import wait_until
from terminal import Terminal

from torchx.schedulers.kubernetes.scheduler import create_scheduler

MINUTE, WINDOW = 60, 35
LISTS = (("/api/v1", "pods"), ("/apis/batch/v1", "jobs"))
PRINTING = "while true; do echo line; sleep 0.02; done"  # more lines in 15 s than one read returns
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
    commands = {
        "wait": ("wait", "APPS"),
        "ready": ("wait", "--for", "succeeded", "APPS"),
        "status": ("status", "-w", "APP"),
        "events": ("events", "-f", "-s", "kubernetes"),
        "log": ("log", "-f", "APP"),
        "log-sweep": ("log", "-f", "SWEEP"),
        "status-sweep": ("status", "-w", "SWEEP"),
        "top": ("top", "-s", "kubernetes"),
    }
    clusters, running = {}, {}
    roles = role(PRINTING), role("echo line; sleep 600", "quiet")
    with ExitStack() as opened:
        for name, words in commands.items():
            clusters[name] = cluster = opened.enter_context(FakeCluster())
            cluster.metrics = {"cpu": "250m", "memory": "65536Ki"}
            config = cluster.kubeconfig(tmp_path / name)
            monkeypatch.setenv("KUBECONFIG", str(config))
            scheduler = create_scheduler("torchx")
            apps = [f"kubernetes://torchx/{submit(scheduler, *roles)}" for _ in range(3)]
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
            else:
                running[name] = start(*words, env=env)
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


def _filled(word: str, apps: list[str]) -> list[str]:
    return {"APPS": apps, "APP": apps[:1], "SWEEP": apps}.get(word, [word])


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
