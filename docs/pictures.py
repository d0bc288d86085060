"""Makes the pictures of the documentation, docs/pictures, from real runs of the jobs in docs/demo.

make pictures

The pictures of `torchx top` and of a report take a minute; those of the report need Chromium.
The commands run on a terminal of fixed width. Values that differ from run to run (ids of applications,
durations and pids) are pinned, so the same program gives the same files.
"""

from __future__ import annotations

import argparse
import fcntl
import html
import io
import json
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

import browser  # noqa: E402  # a module of the tests, as the next one
import terminal  # noqa: E402

COLUMNS = 92
CELL, LINE = 12.2, 24.4
"""The width of a letter and the height of a line in a picture, as rich draws them."""

# values are pinned at their source, so that tables keep their columns
SHIM = """
import itertools, json, os, sys
import torchx.schedulers.ids as ids
import torchx_cli.terminal.times as times
pinned = json.loads(os.environ.pop("PINNED"))
durations, ages = (itertools.chain(pinned[name], itertools.repeat("2 s")) for name in ("durations", "ages"))
ids.random_id = lambda *lengths: pinned["id"]
times.duration = lambda seconds: next(durations)
times.ago = lambda when, now=None: next(ages)
from torchx_cli.main import main
sys.argv[0] = "torchx"
sys.exit(main())
"""


@dataclass(frozen=True)
class Shot:
    """A command of a scene.

    Attributes:
        words: the arguments of ``torchx``.
        id: the end of the id of the application that it starts.
        durations: the durations that it prints, in order.
        ages: the ages that it prints, in order.
        shown: True if it is in the picture.
        until: repeat it until its output contains this.
    """

    words: str
    id: str = ""
    durations: Sequence[str] = ()
    ages: Sequence[str] = ()
    shown: bool = True
    until: str = ""


SCENES: dict[str, list[Shot]] = {
    "run": [Shot("run jobs.py:train", "x7k2m9cdq1w", ["2.4 s"])],
    "failure": [Shot("run jobs.py:train --width 65", "bq4zt1k8s3v", ["1.2 s"])],
    "log": [
        Shot("log train-x7k2/trainer"),
        Shot("log train-x7k2 --regex 'samples|epoch 3' --no-prefix"),
    ],
    "status": [
        Shot("run --detach -cfg retry_backoff=0.1 jobs.py:train --epochs 90", "h7w2n5dflrb", shown=False),
        Shot("log @last", shown=False, until="epoch 3"),
        Shot("status @last", durations=["2 min 3 s", "2 min 3 s", "2 min 3 s", "1 min 40 s", "22.3 s"]),
    ],
    "list": [
        Shot("run --detach utils.sh 'sleep 600'", "m3q8v2hxnwc", shown=False),
        Shot("cancel @last", shown=False),
        Shot("status sh", shown=False, until="CANCELLED"),
        Shot(
            "list -s local_cwd",
            durations=["8.0 s", "2 min 9 s", "1.2 s", "2.4 s"],
            ages=["just now", "2 min ago", "3 h ago", "3 h ago"],
        ),
    ],
    "stacks": [
        Shot("run --detach utils.sh --num_replicas 4 'exec python hang.py'", "k4d9p6gtm2r", shown=False),
        Shot("stacks @last", until="3 of 4 identical"),
    ],
}
"""The pictures, in the order in which they are taken: later ones show jobs of earlier ones."""


def take(shot: Shot, folder: Path) -> str:
    """Runs a command on a terminal and returns what it wrote, with its colours."""
    pinned = {"id": shot.id, "durations": list(shot.durations), "ages": list(shot.ages)}
    env = {
        "DOCKER_HOST": f"unix://{folder}/no-engine.sock",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PINNED": json.dumps(pinned),
        "PYTHONPATH": str(HERE.parent),
        "TERM": "xterm-256color",
    }
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    words = [sys.executable, "-c", SHIM, *shlex.split(shot.words)]
    with subprocess.Popen(words, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        written = b""
        while True:
            try:
                data = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            written += data
    os.close(ours)
    text = written.decode().replace("\r\n", "\n")
    if shot.until and shot.until not in text:
        time.sleep(0.1)
        return take(shot, folder)
    return _pin(text, folder)


def _pin(text: str, folder: Path) -> str:
    """Replaces the values that the shim cannot pin: the folder and the pids."""
    pids = iter(range(4121, 10_000))
    text = text.replace(f"{folder}/", "")
    return re.sub(r"(pids?) \d+( +(?=\S))?", lambda m: f"{m[1]} {next(pids)}" + ("  " if m[2] else ""), text)


@contextmanager
def stage() -> Iterator[Path]:
    """Yields a folder with the jobs of the pictures; all of them have ended afterwards."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        for path in (HERE / "demo").glob("*.py"):
            shutil.copy(path, folder)
        try:
            yield folder
        finally:
            for name in ("train-h7w2n5dflrb", "sh-m3q8v2hxnwc", "sh-k4d9p6gtm2r"):
                take(Shot(f"cancel {name}"), folder)
                while "RUNNING" in take(Shot(f"status {name}"), folder):
                    time.sleep(0.1)


def film() -> Iterator[tuple[str, str]]:
    """Yields the name of each picture and the text of its terminal."""
    with stage() as folder:
        for name, shots in SCENES.items():
            text = ""
            for shot in shots:
                written = take(shot, folder)
                if shot.shown:
                    text += "\n" if text else ""
                    text += f"\x1b[2m$\x1b[0m \x1b[1mtorchx {shot.words}\x1b[0m\n{written}"
            yield name, text.rstrip("\n")


THEME = TerminalTheme(
    (24, 26, 31),
    (216, 219, 226),
    [
        (24, 26, 31), (240, 113, 120), (152, 195, 121), (229, 192, 123),
        (97, 175, 239), (198, 120, 221), (86, 182, 194), (171, 178, 191),
    ],
)  # fmt: skip

SVG = """\
<svg viewBox="-12 -9 {terminal_width} HEIGHT" width="{terminal_width}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; \
font-size: {char_height}px; line-height: {line_height}px; }}
{styles}
</style>
<rect x="-12" y="-9" width="{terminal_width}" height="HEIGHT" rx="10" fill="#181a1f"/>
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</svg>
"""
"""Without external references, and with common fonts."""


def draw(name: str, text: str) -> str:
    """Returns the text of a terminal as SVG."""
    console = Console(
        record=True, width=COLUMNS + 2, file=io.StringIO(), force_terminal=True, color_system="truecolor",
        legacy_windows=False,
    )  # fmt: skip
    console.print(Text.from_ansi(text), soft_wrap=True)
    svg = console.export_svg(title="", theme=THEME, code_format=SVG, unique_id=name)
    svg = re.sub(r"<text ([^>]*)>([^<]*)</text>", _tidy, svg)
    height = 18 + LINE * (1 + text.count("\n"))
    return "\n".join(line for line in svg.replace("HEIGHT", f"{height:.1f}").splitlines() if line) + "\n"


def _tidy(match: re.Match[str]) -> str:
    """Returns a text placed at its first letter: programs differ in their treatment of outer spaces."""
    text = match[2].replace("&#160;", " ").rstrip()
    if not text.strip():
        return ""
    facts = dict(re.findall(r'(\S+)="([^"]*)"', match[1]))
    indent = len(text) - len(text.lstrip())
    text = text.lstrip()
    x, length = float(facts["x"]) + indent * CELL, len(html.unescape(text)) * CELL
    text = text.replace(" ", "&#160;")
    place = f'x="{x:.1f}" y="{facts["y"]}" textLength="{length:.1f}"'
    return f'<text class="{facts["class"]}" {place}>{text}</text>\n'


def film_live(folder: Path) -> None:
    """Takes the picture of the live view, and those of the report of the same application."""
    with stage() as place:
        env = {"HOME": str(place), "PYTHONPATH": str(HERE.parent)}
        take(Shot("run --detach jobs.py:fit", "c7p2m9cdq1w"), place)
        with terminal.Terminal("top", "-s", "local_cwd", width=COLUMNS, lines=12, env=env) as top:
            top.until(lambda screen: screen.count("samples kept") == screen.count("MB") - 1 == 6, "all rows")
            top.send("jj")
            top.shows("3 of 7")
            text = "\n".join(line.rstrip() for line in top.frame.split("\n"))
            top.send("q")
            top.end()
        (folder / "top.svg").write_text(draw("top", text), encoding="utf-8")
        command = [sys.executable, "-m", "torchx_cli"]
        for words in (["wait", "@last"], ["report", "@last", "-o", "run.html"]):
            done = subprocess.run(
                [*command, *words], cwd=place, env={**os.environ, **env}, capture_output=True
            )
        done.check_returncode()  # the application fails, and so does the wait for it
        photograph(place / "run.html", folder)


def photograph(report: Path, folder: Path) -> None:
    """Takes the pictures of a report in a browser, in light and dark colours."""
    if browser.program() is None:
        print("left out: pictures of the report: apt install chromium", file=sys.stderr)
        return
    with browser.browser() as page:
        page.open(report)
        for scheme in ("light", "dark"):
            page.resize(1000, 1460, scheme=scheme)
            (folder / f"report_{scheme}.png").write_bytes(page.picture())


def main() -> None:
    """Takes all pictures."""
    parser = argparse.ArgumentParser(description="Makes the pictures of the documentation.")
    parser.add_argument("--out", type=Path, default=HERE / "pictures", help="the folder")
    parser.add_argument("--only", choices=("terminal", "live"), default="", help="only these pictures")
    arguments = parser.parse_args()
    folder = arguments.out
    folder.mkdir(exist_ok=True)
    if arguments.only != "live":
        for name, text in film():
            (folder / f"{name}.svg").write_text(draw(name, text), encoding="utf-8")
    if arguments.only != "terminal":
        film_live(folder)


if __name__ == "__main__":
    main()
