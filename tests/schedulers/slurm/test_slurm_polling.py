"""After its first minute, no command queries a controller more often than once in 15 seconds."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from program import end_background, start, torchx
from slurms import configure_no_controller
from terminal import Terminal

from torchx.schedulers.shared.batch.record import BatchRecord, Records

NOTE = 'echo "$(date +%s) ${0##*/}" >> "$FAKE_QUERIES"\n'
SQUEUE = f"""#!/bin/sh
for argument; do
    case $argument in
        --version) echo slurm 22.05.8; exit ;;
        --jobs=*) wanted=${{argument#--jobs=}} ;;
        --format=*) format=${{argument#--format=}} ;;
    esac
done
{NOTE}
comment() {{ if [ "$1" = 501 ]; then echo "torchx:b501:$FAKE_JOBS-b501"; else echo "(null)"; fi; }}
now=$(date +%s)
while read -r id; do
    [ -z "$wanted" ] || [ "$wanted" = "$id" ] || continue
    printf '%s\\n' "$format" | sed "s/%i/$id/; s/%A/${{id%_*}}/; s/%T/RUNNING/; s/%[VS]/$now/; s/%e/NONE/;
s/%u/$(id -un)/; s/%N//; s/%r/None/; s/%j//; s/%[VS]/$now/; s#%k#$(comment "$id")#"
done < "$FAKE_JOBS"
"""
SBATCH = """#!/bin/sh
cat > /dev/null
first=1 last=1 id=$((600 + $(wc -l < "$FAKE_JOBS")))
for argument; do
    case $argument in --array=*) array=${argument#--array=1-}; last=${array%%%*} ;; esac
done
for task in $(seq "$last"); do echo "$id${array:+_$task}" >> "$FAKE_JOBS"; done
echo "$id"
"""
SCONTROL = '#!/bin/sh\necho "MaxArraySize = $FAKE_ARRAYS"\n'
OTHER = f"#!/bin/sh\n{NOTE}"
COMPONENT = '''
import torchx.specs as specs

def train(seed: int, name: str) -> specs.AppDef:
    """Trains.

    Args:
        seed: seed
        name: name of the application
    """
    role = specs.Role("r", "", entrypoint="true", env={"SEED": str(seed)}, resource=specs.Resource(1, 0, 100))
    return specs.AppDef(name, [role])
'''
JOBS = ("501", "502", "503")
CANCELLED = "504"
"""A job that does not end when it is cancelled."""
TRAIN = ("train.py:train", "--seed", "1", "--name", "train")
MINUTE, WINDOW = 60, 35


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cluster on which three jobs run; all that are submitted run, too, and do not end."""
    (tmp_path / "bin").mkdir()
    scripts = {"squeue": SQUEUE, "sbatch": SBATCH, "scontrol": SCONTROL}
    for name in (*scripts, "sacct", "sstat", "sinfo", "scancel", "srun"):
        (tmp_path / "bin" / name).write_text(scripts.get(name, OTHER))
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(COMPONENT)
    (tmp_path / "jobs").write_text("".join(f"{job}\n" for job in (*JOBS, CANCELLED)))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FAKE_JOBS", str(tmp_path / "jobs"))
    monkeypatch.setenv("FAKE_ARRAYS", "1001")
    monkeypatch.setenv("FAKE_QUERIES", str(tmp_path / "queries"))
    configure_no_controller(monkeypatch, tmp_path)
    for job in (*JOBS[1:], CANCELLED):  # the first one was submitted elsewhere
        folder = tmp_path / "slurm" / "jobs" / f"a-b{job}"
        folder.mkdir(mode=0o700, parents=True)
        (folder / "attempt").write_text("1\n")
        app = {"name": "a", "roles": [{"name": "r", "num_replicas": 1}]}
        Records("slurm").add(
            BatchRecord(
                int(job),
                f"b{job}",
                "a",
                folder.name,
                "torchx",
                str(folder),
                submitted_at=time.time(),
                app=app,
            )
        )
    return tmp_path


@pytest.fixture
def open_commands(cluster: Path) -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened
    end_background(cluster)


def queries(path: Path) -> list[tuple[int, str]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(at), name) for at, _, name in (line.partition(" ") for line in lines)]


def sweep(name: str, *flags: str) -> tuple[str, ...]:
    return ("run", "-s", "slurm", *flags, "--each", "seed=1..3", "train.py:train", "--name", name)


@pytest.mark.long
def test_no_command_queries_often_after_its_first_minute(cluster: Path, open_commands: ExitStack) -> None:
    handle = torchx(*sweep("first", "-d")).stdout.strip()
    commands = {
        "wait": ("wait", *JOBS),
        "ready": ("wait", "--for", "succeeded", *JOBS),
        "pattern": ("wait", "--for", "log:never", JOBS[1]),
        "status": ("status", "-w", JOBS[1]),
        "describe": ("describe", "-w", JOBS[1]),
        "log": ("log", "-f", JOBS[1]),
        "attach": ("attach", JOBS[1]),
        "cancel": ("cancel", CANCELLED),
        "attached": ("run", "-s", "slurm", "--wait", *TRAIN),
        "attached-log": ("run", "-s", "slurm", "--log", *TRAIN),
        "events-app": ("events", "-f", JOBS[1]),
        "events": ("events", "-f", "-s", "slurm"),
        "log-sweep": ("log", "-f", handle),
        "status-sweep": ("status", "-w", handle),
        "wait-sweep": ("wait", handle),
        "attached-sweep": sweep("second", "--wait"),
        "attached-log-sweep": sweep("third", "--log"),
    }
    running = {
        name: start(*words, env={"FAKE_QUERIES": str(cluster / name)}) for name, words in commands.items()
    }
    for command in running.values():
        open_commands.callback(command.kill)
    detached = {
        "conductor": sweep("fourth", "-d"),
        "watcher": ("run", "-s", "slurm", "-d", "--notify", "cmd:true", *TRAIN),
        "after": ("run", "-s", "slurm", "-d", "--after", JOBS[1], *TRAIN),
    }
    for name, words in detached.items():
        env = {"FAKE_QUERIES": str(cluster / name), "FAKE_ARRAYS": "0"}
        assert torchx(*words, env=env).returncode == 0
    env = {"FAKE_QUERIES": str(cluster / "top")}
    top = open_commands.enter_context(Terminal("top", "-s", "slurm", env=env))
    names = [*running, *detached, "top"]
    begun = time.time()
    silent: list[str] = []
    while (silent := [name for name in names if not queries(cluster / name)]) and time.time() < begun + 60:
        top.read(0.5)
    ended = {name: command.communicate() for name, command in running.items() if command.poll() is not None}
    assert (silent, ended) == ([], {})
    begun = time.time()
    while time.time() < begun + MINUTE + WINDOW:
        top.read(1.0)
    ended = {name: command.communicate() for name, command in running.items() if command.poll() is not None}
    for name in running.keys() - ended.keys():
        running[name].kill()
        running[name].communicate()
    assert ended == {}
    counts = {
        name: Counter(what for at, what in queries(cluster / name) if at >= begun + MINUTE) for name in names
    }
    assert [name for name in names if not counts[name]["squeue"]] == []
    assert {name: count for name, count in counts.items() if max(count.values()) > 3} == {}
