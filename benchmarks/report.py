"""Runs all benchmarks and writes RESULTS.md beside this file.

PEER=/path/to/torchx make bench
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import cluster
import containers
import instructions
import kube
import output
import pods
import replicas
import run
import scripts
import source
import stalls
import startup
import sweeps
import views
import waiting
from measure import place, table

GROUPS = {
    "Start-up": startup,
    "Instructions of the start": instructions,
    "A short job": run,
    "The record of the source": source,
    "Many replicas": replicas,
    "Output": output,
    "Views": views,
    "Stacks and stalls": stalls,
    "Sweeps": sweeps,
    "The queue": waiting,
    "Containers": containers,
    "Requests for Kubernetes": kube,
    "Ten thousand pods": pods,
    "Scripts for Slurm": scripts,
    "On Slurm": cluster,
}
HOW = """\
`make bench` measures and writes this page. The runs of each row alternate with its floor (the simplest
program with the same result) and with the peer, so that a busy moment of the machine affects all of them. A
number is the median of the runs, a ratio the median of the ratios of consecutive runs. *cannot*: the peer's
local jobs are visible only to the process that started them.
"""
HOW_TO_GET_THE_PEER = """\
no peer: `pip install torchx-nightly` in a separate environment, then `PEER=/path/to/torchx make bench`"""


def report(peer: str | None, quick: bool) -> str:
    """Measures everything and returns it as Markdown."""
    parts = ["# Measurements\n", HOW, facts(peer)]
    for title, group in GROUPS.items():
        parts += [f"## {title}", f"{(group.__doc__ or '').splitlines()[0]}\n"]
        lacks = group.missing() if hasattr(group, "missing") else ""
        if lacks:
            print(f"left out: {title.lower()}: {lacks}", file=sys.stderr)
            parts.append(f"Left out here: {lacks}\n")
            continue
        print(f"measuring: {title.lower()}", file=sys.stderr)
        with place(peer, quick) as where:
            parts.append(table(group.rows(where)))
    return "\n".join(parts)


def facts(peer: str | None) -> str:
    """Returns the date, the machine and the versions measured."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = [
        date.today().isoformat(),
        f"{platform.system()} {platform.release().split('-')[0]} on {platform.machine()}, "
        f"{os.cpu_count()} CPUs, {memory:.0f} GB",
        f"Python {platform.python_version()}, torchx-cli {version_of('torchx-cli')}, "
        f"Typer {version_of('typer')}",
        version_of_the_peer(peer) if peer else HOW_TO_GET_THE_PEER,
    ]
    return "".join(f"- {line}\n" for line in lines)


def version_of(package: str) -> str:
    """Returns the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def version_of_the_peer(peer: str) -> str:
    """Returns the version of the peer's package, and of its Python."""
    code = (
        "import platform; from importlib.metadata import version; "
        "print('the peer: torchx-nightly', version('torchx-nightly'), 'on Python', platform.python_version())"
    )
    python = Path(peer).parent / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "the peer: of unknown version"


def main() -> None:
    """Measures, prints and writes the results."""
    parser = argparse.ArgumentParser(description="Runs all benchmarks.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, single runs: does it work at all")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("RESULTS.md"), help="the file")
    arguments = parser.parse_args()
    text = report(os.environ.get("PEER"), arguments.quick)
    arguments.out.write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
