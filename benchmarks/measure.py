"""Shared parts of the benchmarks: a place to run in, alternating runs, and rows with their limits."""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
NOT_MEASURED = "not measured"
CANNOT = "cannot"
"""The peer's local jobs are visible only to the process that started them."""


@dataclass(frozen=True)
class Place:
    """Where the commands of one benchmark run: a folder of its own with an empty state home.

    Attributes:
        folder: the home and the working directory of all commands.
        peer: the program of the peer, None where there is none.
        quick: tiny sizes and single runs: to see that the benchmark works, not to measure.
        engine: whether the commands see the Docker engine that runs here.
    """

    folder: Path
    peer: str | None = None
    quick: bool = False
    engine: bool = False

    @property
    def env(self) -> dict[str, str]:
        """The environment of all commands."""
        programs = [BIN, *([Path(self.peer).parent] if self.peer else [])]
        path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
        own = {
            "PATH": path,
            "HOME": str(self.folder),
            "TORCHX_HOME": str(self.folder / ".torchx"),
        }
        if not self.engine:
            # messages of engines on this machine are not part of the measurement
            own["DOCKER_HOST"] = f"unix://{self.folder}/no-engine.sock"
            own["SLURM_CONF"] = f"{self.folder}/no-slurm.conf"
        else:
            own |= {name: os.environ[name] for name in ("DOCKER_HOST", "SLURM_CONF") if name in os.environ}
        # only if the package is not installed for this Python
        return own if (BIN / "torchx").exists() else {**own, "PYTHONPATH": str(ROOT)}

    def torchx(self, *words: str) -> list[str]:
        """Returns a command of torchx."""
        program = BIN / "torchx"
        start = [str(program)] if program.exists() else [sys.executable, "-m", "torchx_cli"]
        return [*start, *words]

    def size(self, full: int, quick: int) -> int:
        """Returns the size of a benchmark."""
        return quick if self.quick else full

    def run(self, words: Sequence[str], output: Path | None = None) -> float:
        """Runs a command and returns the seconds it took.

        Args:
            words: the command.
            output: file for its output and its errors; without, they go nowhere.

        Raises:
            SystemExit: it did not succeed.
        """
        env = self.env
        if words[0] == self.peer:
            env.pop("PYTHONPATH", None)  # it has a package of the same name
        with open(output or os.devnull, "wb") as file:
            start = time.perf_counter()
            done = subprocess.run(
                words, env=env, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
            took = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"{' '.join(words)[:200]} ended with {done.returncode}")
        return took

    def timed(self, *words: str) -> Callable[[], float]:
        """Returns an action that runs a command."""
        return lambda: self.run(words)

    def peer_timed(self, *words: str) -> Callable[[], float] | None:
        """Returns an action that runs a command of the peer, or None without a peer."""
        return self.timed(self.peer, *words) if self.peer else None

    def submit(self, *words: str, scheduler: str = "local_cwd") -> str:
        """Runs ``torchx run --detach`` and returns the id of the application."""
        command = self.torchx("run", "-s", scheduler, "--detach", *words)
        done = subprocess.run(command, env=self.env, cwd=self.folder, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)[:200]} ended with {done.returncode}")
        return done.stdout.split()[0].rpartition("/")[2]


class Times(NamedTuple):
    """Seconds of each run of ours, of the floor and of the peer; the lists may be empty."""

    ours: list[float]
    floor: list[float]
    peer: list[float]


def paired(
    ours: Callable[[], float],
    floor: Callable[[], float] | None = None,
    peer: Callable[[], float] | None = None,
    *,
    rounds: int,
    peer_rounds: int | None = None,
) -> Times:
    """Alternates the runs, so that a busy moment of the machine affects all of them.

    Args:
        ours: runs ours once and returns what is measured, as the other two do.
        floor: runs the least that could do the same.
        peer: runs the peer.
        rounds: how often; before several of them, one is run that is not counted.
        peer_rounds: in how many of the rounds the peer takes part; all unless told.
    """
    times = Times([], [], [])
    for turn in range(0 if rounds > 1 else 1, rounds + 1):
        for action, seconds in zip((ours, floor, peer), times, strict=True):
            too_often = action is peer and not 0 < turn <= (peer_rounds or rounds)
            if action is not None and not too_often:
                took = action()
                if turn:
                    seconds.append(took)
    return times


@dataclass(frozen=True)
class Row:
    """A line of the results.

    Attributes:
        what: what was measured.
        ours: the median.
        floor: that of the floor, and what the floor is.
        peer: that of the peer.
        bar: what it has to reach.
        reached: what it has reached of that.
        met: whether that is enough; None where there is no bar, or nothing to judge it by.
    """

    what: str
    ours: str
    floor: str = ""
    peer: str = ""
    bar: str = ""
    reached: str = ""
    met: bool | None = None

    def cells(self) -> list[str]:
        """Returns the cells of the line."""
        met = {None: "", True: "yes", False: "**no**"}[self.met]
        return [self.what, self.ours, self.floor, self.peer, self.bar, self.reached, met]


HEADS = ("what", "ours", "floor", "peer", "bar", "reached", "met")


def compared(
    what: str,
    times: Times,
    floor: str = "",
    *,
    of_floor: float | None = None,
    of_peer: float | None = None,
    no_peer: str = NOT_MEASURED,
) -> Row:
    """Returns the row of timed runs.

    Args:
        what: what was timed.
        times: its runs.
        floor: what the floor is.
        of_floor: how many times of the floor it may take.
        of_peer: how many times of the peer it may take.
        no_peer: why there is nothing of the peer.
    """
    bar, reached, met = "", "", None
    limit, others, name = (of_floor, times.floor, "floor") if of_floor else (of_peer, times.peer, "peer")
    if limit:
        bar = f"at most {limit:g}x of the {name}"
    if others:
        ratio = statistics.median(a / b for a, b in zip(times.ours, others, strict=False))
        reached = f"{ratio:.2f}x of the {name}"
        met = ratio <= limit if limit else None
    least = f"{span(times.floor)} {floor}" if times.floor else ""
    return Row(what, span(times.ours), least, span(times.peer) if times.peer else no_peer, bar, reached, met)


def limited(what: str, value: float, unit: str, limit: float, **cells: str) -> Row:
    """Returns the row of a number with an upper limit."""
    return Row(
        what, f"{value:.1f} {unit}", bar=f"at most {limit:g} {unit}", met=value <= limit,
        reached=f"{value:.1f} {unit}", **cells,
    )  # fmt: skip


def span(seconds: Sequence[float]) -> str:
    """Returns the median of times as text."""
    median = statistics.median(seconds)
    return f"{1000 * median:.0f} ms" if median < 10 else f"{median:.1f} s"


def table(rows: Iterable[Row]) -> str:
    """Returns rows as Markdown."""
    lines = [HEADS, ["---"] * len(HEADS), *(row.cells() for row in rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


@dataclass(frozen=True)
class Memory:
    """Returns the peak memory of a process, in MB."""

    pid: int
    megabytes: float = field(init=False)

    def __post_init__(self) -> None:
        status = Path(f"/proc/{self.pid}/status").read_text()
        kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
        object.__setattr__(self, "megabytes", int(kib) / 1024)


def until(condition: Callable[[], bool], what: str, timeout: float = 120.0) -> None:
    """Waits for a condition, up to a time limit."""
    end = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"after {timeout:.0f} s still not: {what}")
        time.sleep(0.01)


@contextmanager
def place(peer: str | None, quick: bool) -> Iterator[Place]:
    """Yields a place to run in, and removes it."""
    # background processes of a shell ignore Ctrl-C, and the measured commands would inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        yield Place(Path(folder).resolve(), peer, quick)


def main(
    doc: str | None, rows: Callable[[Place], Iterable[Row]], missing: Callable[[], str] | None = None
) -> None:
    """Runs one group of benchmarks and prints its table, or its missing requirements."""
    parser = argparse.ArgumentParser(description=(doc or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="tiny sizes, single runs: does it work at all")
    arguments = parser.parse_args()
    if missing is not None and missing():
        raise SystemExit(f"left out: {missing()}")
    with place(os.environ.get("PEER"), arguments.quick) as where:
        print(table(rows(where)), end="")
