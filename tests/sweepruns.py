"""The runs of a sweep as names of applications, on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from program import answer, torchx
from support import wait_until

COMPONENT = '''
import torchx.specs as specs

SCRIPT = """
echo "loss: $LR run $TORCHX_SWEEP_RUN in $OUT"
case $SEED in 2) exit 5;; 3) exec sleep 600;; esac
"""

def train(lr: float, seed: int, out: str, image: str = "") -> specs.AppDef:
    """Trains: the seed 2 fails, the seed 3 runs for ever.

    Args:
        lr: learning rate
        seed: seed
        out: folder of the results
        image: image
    """
    env = {"LR": str(lr), "SEED": str(seed), "OUT": out}
    role = specs.Role("train", image, entrypoint="sh", args=["-c", SCRIPT], env=env)
    return specs.AppDef("train", [role])
'''


def check_runs_are_names(folder: Path, *flags: str, arguments: Sequence[str] = ()) -> None:
    """Submits a sweep of three runs, and uses each of them by its number in the commands for applications.

    Args:
        folder: a folder for the component.
        flags: the flags of `run`.
        arguments: further arguments of the component.
    """
    (folder / "named.py").write_text(COMPONENT)
    component = [f"{folder}/named.py:train", "--out", "o/{run}", *arguments]
    each = ["--each", "lr=0.5", "--each", "seed=1..3", "--at-once", "0"]
    handle = torchx("run", "-d", *flags, *each, *component).stdout.strip()
    name = handle.rpartition("/")[2]

    def states() -> list[str]:
        torchx("status", handle)
        return [row["state"] for row in answer("results", handle, "-o", "json")]

    wait_until(lambda: states() == ["SUCCEEDED", "FAILED", "RUNNING"], "two runs have ended, one runs", 300)
    handles = [row["handle"] for row in answer("results", handle, "-o", "json")]
    for run in (f"{name}/2", f"{handle}/2", "train~0/2"):
        assert answer("status", run, "-o", "json")["handle"] == handles[1]
    assert answer("why", f"{name}/2", "-o", "json")["cause"]["class"] == "exit_code"
    assert answer("describe", f"{name}/1", "-o", "json")["handle"] == handles[0]
    for target in (f"{name}/1", f"{name}/1/train/0"):
        wait_until(lambda target=target: torchx("log", target).stdout, "its log")  # type: ignore[misc]
        assert torchx("log", "--no-prefix", target).stdout == "loss: 0.5 run 1 in o/1\n"
    shown = torchx("diff", f"{name}/1", f"{name}/2").stdout
    assert "arguments\n  --seed  1 → 2\n  --out   o/1 → o/2\n" in shown, shown

    for target in (f"{name}/3", f"{name}/3/train/0"):
        done = torchx("exec", target, "sh", "-c", "echo $TORCHX_SWEEP_RUN $OUT")
        assert (done.returncode, done.stdout) == (0, "3 o/3\n"), done.stderr
    done = torchx("rerun", "-d", "--set", "seed=1", "--set", "out=again/{run}", f"{name}/2")
    again = done.stdout.strip()
    assert torchx("wait", again).returncode == 0, done.stderr
    assert torchx("log", "--no-prefix", again).stdout == "loss: 0.5 run 2 in again/2\n"
    assert again in {row["handle"] for row in answer("list", "-o", "json")}, "it belongs to no sweep"
    assert "--each" not in (answer("describe", again, "-o", "json")["command_line"] or "")

    assert torchx("cancel", f"{name}/3").returncode == 0
    assert torchx("wait", handle).returncode == 5
    assert states() == ["SUCCEEDED", "FAILED", "CANCELLED"]
    assert torchx("delete", again, handle).returncode == 0
