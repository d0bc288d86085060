"""`torchx plugins`: what other packages add, from where, and what is wrong with it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ENTRY_POINTS = """
[torchx.schedulers]
far = acme:far
gone = acme.nowhere:make
dull = acme:dull
local_cwd = acme:far

[torchx.components]
acme = acme

[torchx.cli.cmds]
hello = acme:Hello
old = acme:Old
lost = acme.nowhere:Lost
plain = acme:far
run = acme:Hello
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """A folder of packages: one with entry points, one that is a namespace package."""
    (tmp_path / "acme.py").write_text(
        "class Hello:\n    def add_arguments(self, parser): pass\n"
        "    def run(self, args): print('hello')\n\n\n"
        "from torchx.cli.cmd_base import SubCommand\n\n\n"
        "class Old(SubCommand):\n    def add_arguments(self, parser): parser.add_argument('--n', type=int)\n"
        "    def run(self, args): print('old', args.n)\n\n\n"
        "from torchx.schedulers import create_scheduler\n\n\n"
        "def far(session_name, **kwargs): return create_scheduler('local_cwd', session_name)\n\n\n"
        "def dull(session_name, **kwargs): import nosuchdep\n"
    )
    about = tmp_path / "acme-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    resources = tmp_path / "torchx_plugins" / "named_resources"
    resources.mkdir(parents=True)
    (resources / "ours.py").write_text(
        "from torchx.plugins import register\nfrom torchx.specs import Resource\n\n\n"
        "@register.named_resource(aliases=['big'])\ndef large(): return Resource(64, 8, 1024)\n"
    )
    (resources / "bad.py").write_text("raise SystemError('no driver')\n")
    (resources / "ends.py").write_text("raise SystemExit(3)\n")
    return tmp_path


def torchx(packages: Path, *words: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys; sys.path[:0] = sys.argv.pop(1).split(':')\n"
        "from torchx_cli.main import main; sys.exit(main())"
    )
    path = ":".join([str(packages), *(p for p in sys.path if p)])
    return subprocess.run([sys.executable, "-c", code, path, *words], capture_output=True, text=True)


def test_each_plugin_is_reported_with_origin_and_problem(packages: Path) -> None:
    done = torchx(packages, "plugins", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    reported = {(row["kind"], row["name"]): row for row in json.loads(done.stdout)}
    assert reported["scheduler", "far"]["origin"] == "acme 1.2"
    assert reported["scheduler", "far"]["error"] is None
    assert "No module named 'acme.nowhere'" in reported["scheduler", "gone"]["error"]
    assert (
        reported["scheduler", "local_cwd"]["error"]
        == "`local_cwd` is the name of a built-in scheduler, which takes precedence"
    )
    assert reported["named_resource", "large"]["also"] == ["big"]
    assert reported["named_resource", "large"]["origin"] == "torchx_plugins.named_resources"
    assert reported["named_resource", ""]["error"] == "SystemExit: 3"
    assert reported["component", "acme"]["module"] == "acme"
    assert reported["command", "hello"]["error"] is None
    assert "built-in command" in reported["command", "run"]["error"]


def test_people_read_a_table_and_the_problems_below_it(packages: Path) -> None:
    lines = torchx(packages, "plugins").stdout.splitlines()
    assert lines[0].split() == ["KIND", "NAME", "MODULE", "FROM"]
    assert "large, big" in "\n".join(lines)
    problems = [line for line in lines if line.startswith("problem:")]
    assert len(problems) == 6
    assert "problem: named_resource of torchx_plugins.named_resources.bad: SystemError: no driver" in problems


def test_broken_plugins_break_no_command(packages: Path, tmp_path: Path) -> None:
    assert torchx(packages, "hello").stdout == "hello\n"
    assert "large" in torchx(packages, "run", "--dryrun", "utils.sh", "--h", "nosuch", "x").stderr
    done = torchx(packages, "run", "-s", "local_cwd", "utils.echo", "--msg", "hi")
    assert (done.returncode, "hi" in done.stderr) == (0, True)
    gone = torchx(packages, "run", "-s", "gone", "utils.echo")
    assert (gone.returncode, gone.stderr.count("\n")) == (2, 2)
    assert "plugin `gone` cannot be loaded" in gone.stderr


@pytest.mark.long
def test_commands_for_all_schedulers_go_on_without_broken_one(packages: Path) -> None:
    for words in (["runopts"], ["configure", "--print"], ["prune", "--dryrun"], ["list"]):
        done = torchx(packages, *words)
        assert done.returncode == 0, (words, done.stderr)
        assert "bug in torchx" not in done.stderr
    opts = torchx(packages, "runopts")
    assert {"local_cwd", "far"} < set(opts.stdout.splitlines())
    assert "plugin `gone` cannot be loaded" in opts.stderr
    assert "plugin `dull` cannot be made: ModuleNotFoundError: No module named 'nosuchdep'" in opts.stderr
    assert "# plugin `gone` cannot be loaded" in torchx(packages, "configure", "--print").stdout
    doctor = torchx(packages, "doctor", "--json")
    assert json.loads(doctor.stdout)["dull"][0]["verdict"] == "wrong"
    for words in (["runopts", "dull"], ["run", "-s", "dull", "utils.echo"]):
        done = torchx(packages, *words)
        assert (done.returncode, "plugin `dull` cannot be made" in done.stderr) == (2, True)


def test_commands_of_torchx_load_and_broken_ones_are_reported(packages: Path) -> None:
    assert torchx(packages, "old", "--n", "3").stdout == "old 3\n"
    lost = torchx(packages, "lost")
    assert (lost.returncode, lost.stderr.count("\n")) == (2, 2)
    assert "plugin command `lost` cannot be loaded: ModuleNotFoundError" in lost.stderr
    plain = torchx(packages, "plain")
    assert (plain.returncode, "is not a command" in plain.stderr) == (2, True)


def test_without_plugins_there_is_little_to_tell(tmp_path: Path) -> None:
    done = torchx(tmp_path, "plugins")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "no plugins are installed\n"
