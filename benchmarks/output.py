"""Speed and memory of storing, streaming and reading output."""

from __future__ import annotations

import re
import shlex
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from measure import CANNOT, NOT_MEASURED, Memory, Place, Row, Times, compared, limited, main, paired, until

from torchx.jobs.paths import Home
from torchx.jobs.view import load

RUN = ("run", "-s", "local_cwd", "utils.sh", "--", "sh", "-c")
PREFIX = "sh/0 │ ".encode()
MOST_MEMORY = 60


def rows(place: Place) -> Iterator[Row]:
    """Measures a replica that prints 2 million lines, and reading them."""
    lines = place.size(2_000_000, 2_000)
    yield streamed(
        place, f"a replica printing {lines:,} lines, kept and streamed", f"seq {lines}", lines, 0.15, rounds=7
    )
    yield printed_by_python(place, place.size(2_000_000, 2_000))
    yield from memory(place, lines)
    yield from read_again(place, lines)
    yield folded(place, lines // 8, "sed '0~10s/^/${replica_id} /'", "mostly equal lines")
    yield folded(place, lines // 8, "sed 's/$/ of replica ${replica_id}/'", "differing lines")


def streamed(
    place: Place, what: str, script: str, lines: int, of_peer: float | None, rounds: int, env: str = ""
) -> Row:
    """Measures an attached run of a script that prints the numbers from 1; none may be lost."""
    output = place.folder / "output"
    expected = b"".join(b"%d\n" % n for n in range(1, lines + 1))

    def ours() -> float:
        took = place.run(place.torchx(*RUN, script), output)
        if expected not in output.read_bytes().replace(PREFIX, b""):
            raise SystemExit("lines were lost on the way to the terminal")
        newest = max((place.folder / ".torchx" / "logs").glob("*/*/sh/0"), key=lambda p: p.stat().st_mtime)
        if any((newest / f"{name}.log").read_bytes() != expected for name in ("stdout", "combined")):
            raise SystemExit("lines were lost on the way to the disk")
        return took

    def peer() -> float:
        assert place.peer is not None
        took = place.run([place.peer, *RUN, script], output)
        if output.read_bytes().count(b"\nsh/0 ") < lines - 1:
            raise SystemExit("the peer has lost lines")
        return took

    floor = place.timed("sh", "-c", f"{env} {script} > kept")
    times = paired(
        ours, floor, peer if place.peer else None,
        rounds=place.size(rounds, 1), peer_rounds=place.size(min(rounds, 3), 1),
    )  # fmt: skip
    return compared(what, times, "into a file", of_peer=of_peer)


def printed_by_python(place: Place, lines: int) -> Row:
    """As :func:`streamed`, with a loop of Python: each line is a separate write, as on local_cwd."""
    loop = f"for n in range(1, {lines + 1}): print(n)"
    script = f"{shlex.quote(sys.executable)} -c {shlex.quote(loop)}"
    what = f"the same from a loop of `print`, {lines:,} writes"
    return streamed(place, what, script, lines, None, rounds=3, env="PYTHONUNBUFFERED=x")


def memory(place: Place, lines: int) -> Iterator[Row]:
    """Measures the memory of supervisor, streaming command and peer after all lines."""
    few = lines // 100
    before, after = hold(place, few), hold(place, lines)
    peer = f"{hold_of_the_peer(place, lines):.1f} MB" if place.peer else NOT_MEASURED
    for name, small, large in zip(("supervisor", "command"), before, after, strict=True):
        yield limited(
            f"the {name}'s memory meanwhile", large, "MB", MOST_MEMORY,
            floor=f"{small:.1f} MB with {few:,} lines", peer=peer if name == "command" else "no supervisor",
        )  # fmt: skip


def hold(place: Place, lines: int) -> tuple[float, float]:
    """Returns the memory of supervisor and command after a number of lines, in MB."""
    output = place.folder / "output"
    size = sum(len(b"%d\n" % n) + len(PREFIX) for n in range(1, lines + 1))
    with started(place, place.torchx(*RUN, f"seq {lines}; exec sleep 600"), output) as command:
        until(lambda: output.stat().st_size >= size, "all lines have been streamed")
        app_id = (place.folder / "handle").read_text().strip().rpartition("/")[2]
        supervisor = load(Home(place.folder / ".torchx").job(app_id)).supervisor
        assert supervisor is not None
        held = Memory(supervisor.pid).megabytes, Memory(command.pid).megabytes
        command.send_signal(signal.SIGINT)
    return held


def hold_of_the_peer(place: Place, lines: int) -> float:
    """Returns the memory of the peer's one process after a number of lines, in MB."""
    assert place.peer is not None
    output = place.folder / "output"
    last = b" %d\n" % lines
    with started(place, [place.peer, *RUN, f"seq {lines}; exec sleep 600"], output) as command:
        until(lambda: last in tail_of(output), "the peer has streamed all lines")
        held = Memory(command.pid).megabytes
        command.send_signal(signal.SIGINT)
    return held


def started(place: Place, words: list[str], output: Path) -> subprocess.Popen[bytes]:
    """Starts a command with its lines in one file and its handle in another."""
    with open(output, "wb") as err, open(place.folder / "handle", "wb") as out:
        return subprocess.Popen(words, env=place.env, cwd=place.folder, stdout=out, stderr=err)


def tail_of(path: Path) -> bytes:
    """Returns the last bytes of a file."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        return file.read()


def read_again(place: Place, lines: int) -> Iterator[Row]:
    """Measures `log` into a file: plain, with a pattern, and the last lines only."""
    app_id = place.submit("utils.sh", "--", "seq", str(lines))
    place.run(place.torchx("log", "--follow", app_id))
    kept = str(next((place.folder / ".torchx" / "logs").glob(f"*/{app_id}/sh/0")) / "combined.log")
    matching = sum(b"77" in b"%d" % n for n in range(1, lines + 1))
    rounds = place.size(7, 1)
    for words, floor, wanted, bar in (
        ([], ["cat", kept], lines, 2e6),
        (["--regex", "77"], ["grep", "77", kept], matching, 0.5e6),
    ):
        times = paired(
            printing(place, place.torchx("log", *words, app_id), wanted),
            printing(place, floor, wanted),
            rounds=rounds,
        )
        yield speed(f"`{' '.join(['torchx log', *words, 'HANDLE'])}`", lines, times, f"`{floor[0]}`", bar)
    times = paired(
        printing(place, place.torchx("log", "-n", "10", app_id), min(lines, 10)),
        printing(place, ["tail", kept], min(lines, 10)),
        rounds=rounds,
    )
    yield compared(f"`torchx log -n 10 HANDLE`, {lines:,} lines kept", times, "`tail`", no_peer=CANNOT)


def folded(place: Place, lines: int, change: str, what: str) -> Row:
    """Measures `log --fold` of 8 replicas that print numbers, changed by a command; none may be lost."""
    script = f"seq {lines} | {change}"
    app_id = place.submit("utils.sh", "--num_replicas", "8", "--", "sh", "-c", script)
    place.run(place.torchx("log", "--follow", app_id))
    output = place.folder / "output"

    def ours() -> float:
        took = place.run(place.torchx("log", "--fold", app_id), output)
        counts = re.findall(r"│ (?:\((\d+)x\) )?", output.read_text())
        if sum(int(count or 1) for count in counts) != 8 * lines:
            raise SystemExit("lines were lost when they were folded")
        return took

    plain = printing(place, place.torchx("log", app_id), 8 * lines)
    times = paired(ours, plain, rounds=place.size(5, 1))
    return speed(f"`torchx log --fold HANDLE`, {what}", 8 * lines, times, "without `--fold`", 1e6)


def printing(place: Place, words: list[str], lines: int) -> Callable[[], float]:
    """Returns an action that runs a command and checks the number of lines it printed."""
    output = place.folder / "output"

    def action() -> float:
        took = place.run(words, output)
        came = output.read_bytes().count(b"\n")
        if came != lines:
            raise SystemExit(f"{' '.join(words)[:80]} printed {came} lines, not {lines}")
        return took

    return action


def speed(command: str, lines: int, times: Times, floor: str, bar: float) -> Row:
    """Returns the row of a command that reads lines."""

    def rate(seconds: list[float]) -> float:
        return lines / statistics.median(seconds)

    ours = rate(times.ours)
    return Row(
        f"{command}, {lines:,} lines kept",
        f"{ours / 1e6:.1f} million lines/s",
        f"{rate(times.floor) / 1e6:.0f} million lines/s {floor}",
        CANNOT,
        f"at least {bar / 1e6:g} million lines/s",
        f"{ours / 1e6:.1f} million lines/s",
        ours >= bar,
    )


if __name__ == "__main__":
    main(__doc__, rows)
