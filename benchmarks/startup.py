"""Measures how long commands take to start, beside bare Python with Typer, on which they are built.

    make bench

Each command runs in turn with the others, so that a busy moment of the machine falls on all of them alike;
the first round is not counted. Writes RESULTS.md beside this file.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
TORCHX = [str(BIN / "torchx")]
BASELINE = "python -c 'import typer'"


@dataclass
class Command:
    """A command to measure: how it is shown, its words, and the seconds of each run."""

    shown: str
    words: list[str]
    seconds: list[float] = field(default_factory=list)

    def run(self, env: dict[str, str]) -> str:
        """Runs it once and returns what it printed."""
        start = time.perf_counter()
        done = subprocess.run(self.words, env=env, cwd=env["HOME"], capture_output=True, text=True)
        self.seconds.append(time.perf_counter() - start)
        if done.returncode:
            raise SystemExit(f"{self.shown} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout

    def milliseconds(self) -> tuple[float, float, float]:
        """Returns the median, the least and the 95th percentile, without the first run."""
        counted = sorted(self.seconds[1:])
        late = counted[min(len(counted) - 1, round(0.95 * (len(counted) - 1)))]
        return 1000 * statistics.median(counted), 1000 * counted[0], 1000 * late


def torchx(*words: str) -> Command:
    """Returns a command of torchx."""
    return Command(" ".join(["torchx", *words]), [*TORCHX, *words])


def measure(rounds: int) -> list[Command]:
    """Runs every command so many times, and once more before."""
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": f"{BIN}:{os.environ['PATH']}", "HOME": home, "TORCHX_HOME": f"{home}/.torchx"}
        echo = torchx("run", "-s", "local_cwd", "utils.echo", "--msg", "hi")
        handle = echo.run(env).split()[0]
        echo.seconds.clear()
        status = Command("torchx status HANDLE", [*TORCHX, "status", handle])
        commands = [
            Command("python -c pass", [sys.executable, "-c", "pass"]),
            Command(BASELINE, [sys.executable, "-c", "import typer"]),
            torchx("--version"),
            torchx("--help"),
            torchx("builtins"),
            torchx("run", "utils.echo", "--help"),
            status,
            torchx("list"),
            torchx("run", "-s", "local_cwd", "--dryrun", "utils.echo"),
            echo,
        ]
        for _ in range(rounds + 1):
            for command in commands:
                command.run(env)
    return commands


def report(commands: list[Command], rounds: int) -> str:
    """Returns the results as Markdown."""
    base = next(c for c in commands if c.shown == BASELINE).milliseconds()[0]
    rows = [
        f"| `{c.shown}` | {median:.0f} | {least:.0f} | {late:.0f} | {median - base:+.0f} |"
        for c in commands
        for median, least, late in [c.milliseconds()]
    ]
    packages = ", ".join(f"{name} {version(name)}" for name in ("torchx-cli", "typer"))
    return "\n".join(
        [
            "# Start-up",
            "",
            "Milliseconds from the start of a command to its end, as `make bench` measures them.",
            "The last column is the median above that of bare Python with Typer.",
            "",
            "| command | median | least | 95 % | above Typer |",
            "|---|---:|---:|---:|---:|",
            *rows,
            "",
            f"{rounds} rounds; Python {platform.python_version()}, {packages}; "
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs.",
            "",
        ]
    )


def main() -> None:
    """Measures, prints and writes the results."""
    parser = argparse.ArgumentParser(description="Measures how long commands take to start.")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each command (default: 20)")
    parser.add_argument("--out", type=Path, default=HERE / "RESULTS.md", help="where to write the results")
    arguments = parser.parse_args()
    text = report(measure(arguments.rounds), arguments.rounds)
    arguments.out.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
