"""Drawing on a terminal: tables that wrap, highlighted text, progress; and pipes without any of it."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program import environment, on_terminal, torchx
from support import wait_until

from torchx.printable import printable
from torchx.scheduling.progress import Ongoing, Part
from torchx_cli.app import COMMANDS
from torchx_cli.main import main
from torchx_cli.terminal.drawing import LONGEST_HIGHLIGHTED, Screen, highlight, print_table
from torchx_cli.terminal.output import columns, wrap_command, wrap_value
from torchx_cli.terminal.progress import ProgressReporter

COLOUR = re.compile(r"\x1b\[[0-9;]*m")

COMPONENT = '''
import torchx.specs as specs


def app(line: str, name: str = "app") -> specs.AppDef:
    """Runs a line of shell; this is a description that is longer than the window of any terminal."""
    env = {"TEXT": "many words that are wider than the window of a terminal; " * 2}
    return specs.AppDef(name, [specs.Role("w", "", entrypoint="sh", args=["-c", line], env=env)])
'''


class Window(io.StringIO):
    """A terminal."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch, width: int = 80) -> Window:
    """Makes stdout and stderr a terminal; called by the test, as pytest replaces them after its fixtures."""
    window = Window()
    monkeypatch.setattr(sys, "stdout", window)
    monkeypatch.setattr(sys, "stderr", window)
    for module in ("output", "display", "drawing"):
        monkeypatch.setattr(
            f"torchx_cli.terminal.{module}.width_of", lambda stream: width if stream.isatty() else None
        )
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LANG", "C.UTF-8")
    return window


@pytest.fixture
def _component(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text(COMPONENT, encoding="utf-8")


@pytest.mark.parametrize("width", [60, 80, 140])
def test_options_are_a_table_that_wraps(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    window = terminal(monkeypatch, width)
    assert main(["runopts", "local_cwd"]) == 0
    lines = COLOUR.sub("", window.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0] == "local_cwd"
    for name in ("log_dir", "auto_set_cuda_visible_devices"):
        assert [line for line in lines if line.split()[:1] == [name]]
    assert "largest workspace, in MB int, default 1024" in " ".join(" ".join(lines).split())


def test_options_as_plain_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runopts", "local_cwd"]) == 0
    piped = capsys.readouterr().out
    assert piped.startswith("local_cwd\n  log_dir (str): ")
    assert all(len(line) <= 80 or " " not in line.strip() for line in piped.splitlines())
    window = terminal(monkeypatch)
    assert main(["runopts", "local_cwd", "--plain"]) == 0
    assert window.getvalue() == piped


@pytest.mark.usefixtures("_component")
def test_no_line_is_cut_inside_a_word() -> None:
    line = "echo hello world, this is a line of output that is long; exit 3"
    run = ["run", "c.py:app", "--line", line, "--name", "a-name-of-an-application"]
    for words in (run, ["status", "@last"], ["describe", "@last"], ["list", "-s", "local_cwd"]):
        shown, _ = on_terminal(*words, columns=60, env={"NO_COLOR": "1"})
        for shown_line in shown.splitlines():
            assert len(shown_line) <= 60 or " " not in shown_line.strip(), (words, shown_line)


def test_help_fits_a_narrow_window(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for words in ([], *([command] for command in COMMANDS)):
        assert main([*words, "--help"]) == 0
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 60, words


@given(st.lists(st.text("ab '\"\\$é日", max_size=60), min_size=1, max_size=6), st.integers(20, 60))
def test_a_wrapped_command_line_is_the_same_command(args: list[str], width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchx_cli.terminal.output.width_of", lambda stream: width)
        wrapped = wrap_command("again: ", shlex.join(args), io.StringIO()).removeprefix("again: ")
    assert shlex.split(wrapped.replace("\\\n", "")) == args


def test_a_command_line_is_wrapped_at_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    window = terminal(monkeypatch, 40)
    command = "torchx run utils.sh --name train 'echo one two three four five six seven; exit 3' last"
    assert wrap_command("again: ", command, window) == (
        "again: torchx run utils.sh --name \\\n    train \\\n"
        "    'echo one two three four five six '\\\n'seven; exit 3' last"
    )
    assert wrap_command("again: ", command, io.StringIO()) == f"again: {command}"


def test_a_value_is_wrapped_below_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    window = terminal(monkeypatch)
    value = "word " * 30 + "\nsecond"
    lines = f"label  {wrap_value(value, 7, window)}".split("\n")
    assert lines[0] == ("label  " + "word " * 30)[:76].rstrip()
    assert all(line.startswith(" " * 7) and len(line) <= 80 for line in lines[1:])
    assert lines[-1].strip() == "second"
    long = "x" * 75
    assert wrap_value(long, 7, window) == f"\n    {long}"


@given(st.text(), st.sampled_from(["yaml", "json", "bash", "pytb"]))
def test_highlighting_changes_no_text(text: str, language: str) -> None:
    text = text.removeprefix("\ufeff")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORCE_COLOR", "1")
        drawn = highlight(text, language, io.StringIO())
    assert COLOUR.sub("", drawn) == printable(text)


def test_only_the_beginning_of_a_long_text_is_highlighted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    line = '{"key": 1}' * 300_000
    assert highlight(line, "json", io.StringIO()) == line
    text = "a: 1\n" * LONGEST_HIGHLIGHTED
    drawn = highlight(text, "yaml", io.StringIO())
    assert drawn.startswith("\x1b[")
    assert drawn.endswith("a: 1\n" * 1000)
    assert COLOUR.sub("", drawn) == text


@pytest.mark.parametrize(
    ("form", "key"),
    [("text", "\x1b[94mname\x1b[0m: echo"), ("json", '\x1b[94m"name"\x1b[0m: '), ("yaml", "\x1b[94mname")],
)
def test_a_dry_run_is_highlighted_on_a_terminal_only(
    form: str, key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "--dryrun", "-o", form, "utils.echo"]
    assert main(words) == 0
    assert "\x1b" not in capsys.readouterr().out
    window = terminal(monkeypatch)
    assert main(words) == 0
    assert key in window.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    window = terminal(monkeypatch)
    assert main(words) == 0
    assert "\x1b" not in window.getvalue()


def test_a_traceback_is_highlighted_and_keeps_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--debug", "run", "utils.ech"]) == 2
    assert "Traceback (most recent call last):\n" in capsys.readouterr().err
    window = terminal(monkeypatch)
    assert main(["--debug", "run", "utils.ech"]) == 2
    assert "\x1b[91mtorchx.discovery.errors.ComponentNotFoundException\x1b[0m: no comp" in window.getvalue()


def test_colours_can_be_forced_except_for_programs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(env: dict[str, str], *words: str) -> str:
        with monkeypatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            main(list(words))
        return "".join(capsys.readouterr())

    dryrun = ("run", "--dryrun", "utils.echo")
    for env in ({"FORCE_COLOR": "1"}, {"CLICOLOR_FORCE": "1", "TERM": "dumb"}):
        assert "\x1b[94mname" in shown(env, *dryrun)
        assert "\x1b[31merror:\x1b[0m" in shown(env, "status", "a/b")
        assert "\x1b" not in shown(env, "run", "--dryrun", "-o", "json", "utils.echo")
    for env in ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, {"FORCE_COLOR": "0"}, {"CLICOLOR_FORCE": "0"}):
        assert "\x1b" not in shown(env, "status", "a/b")


def test_short_run_says_that_it_succeeded_on_terminal_only() -> None:
    shown, code = on_terminal("run", "utils.echo")
    assert code == 0
    assert re.search(r"\necho-\w+ SUCCEEDED after 0\.\d s\n$", COLOUR.sub("", shown))
    assert torchx("run", "utils.echo").stderr == "echo/0 │ hello world\n"


def test_rich_is_imported_only_where_it_draws() -> None:
    """Not into a pipe, and not for the commands that are typed most."""
    code = (
        "import io, sys\n"
        "from torchx_cli.main import main\n"
        "class Window(io.StringIO):\n"
        "    isatty = lambda self: self.terminal\n"
        "sys.stdout = Window()\n"
        "def drawn(terminal, line):\n"
        "    sys.stdout.terminal = terminal\n"
        "    main(line.split())\n"
        "    return 'rich' in sys.modules\n"
        "quick = ['--help', 'list -s local_cwd', 'status @last', 'describe @last']\n"
        "assert not any(drawn(True, line) for line in quick)\n"
        "assert not any(drawn(False, line) for line in ['runopts', 'builtins', 'run --dryrun utils.echo'])\n"
        "assert drawn(True, 'builtins')\n"
    )
    assert torchx("run", "utils.echo").returncode == 0
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_a_table_shows_foreign_text_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    window = terminal(monkeypatch)
    print_table([[("[bold]x[/bold] :smile: \x1b]0;t\x07", "bad"), ("HF_TOKEN=abcdefgh", "")]], ("A", "[b]"))
    lines = COLOUR.sub("", window.getvalue()).splitlines()
    assert lines[0].split() == ["A", "[b]"]
    assert lines[1].startswith("[bold]x[/bold] :smile: \\x1b]0;t\\x07  HF_TOKEN=")
    assert "abcdefgh" not in lines[1]


def test_progress_is_drawn_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    window = terminal(monkeypatch)
    monkeypatch.setattr("torchx.scheduling.progress.PATIENCE", 0.01)
    parts = (Part("a9f8", "downloading", 15_000_000, 30_000_000), Part("b", "", 0, 0))
    with ProgressReporter(lambda allowed: None) as report, Ongoing(report, "pulling a:1") as ongoing:
        ongoing.update("1 of 2 layers", parts, last=("\x1b[31mline",))
        wait_until(lambda: "line" in window.getvalue(), "the progress is drawn")
        shown = COLOUR.sub("", window.getvalue())
        assert "pulling a:1, 0 s" in shown
        assert "\n  1 of 2 layers, 15.0 of 30.0 MB" in shown
        assert "\n  a9f8  downloading  ━━━━━━━━━━╺━━━━━━━━━  15.0 of 30.0 MB" in shown
        assert "\n  │ \\x1b[31mline" in shown
    assert (
        window.getvalue().endswith("\x1b[1A\x1b[2K" * 4)
        or "\x1b[2K" in window.getvalue().rpartition("line")[2]
    )
    assert "\x1b[?25l" not in window.getvalue()  # the cursor is never hidden


def test_a_quick_operation_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    window = terminal(monkeypatch)
    with ProgressReporter(lambda allowed: None) as report, Ongoing(report, "pulling a:1") as ongoing:
        ongoing.done("pulled a:1")
    assert window.getvalue() == ""


def test_lines_are_updated_in_place_and_whole_at_end(monkeypatch: pytest.MonkeyPatch) -> None:
    window = terminal(monkeypatch)
    screen = Screen(window)
    screen.show(["first \x1b[2J", "x" * 100])
    assert COLOUR.sub("", window.getvalue()) == "first \\x1b[2J\n" + "x" * 80
    window.truncate(0)
    screen.show(["second", *map(str, range(99))])
    assert "more lines" in window.getvalue()
    window.truncate(0)
    screen.show(["third", "x" * 100], final=True)
    assert window.getvalue().endswith("\x1b[Jthird\n" + "x" * 100 + "\n")


FAMILY = "👩\u200d👩\u200d👧"
LINES = f"""
echo '{FAMILY * 12}'
echo 'Traceback (most recent call last):'
echo '  File "train.py", line 3, in <module>'
echo 'ValueError: {FAMILY} {"日本 " * 12}❤\ufe0f bad'
exit 3
"""


def test_a_described_command_is_wrapped_at_spaces() -> None:
    script = "echo one two three four five six seven eight; exit 0"
    torchx("run", "utils.sh", script)
    shown, _ = on_terminal("describe", "@last", columns=40, env={"NO_COLOR": "1"})
    command = shown.partition("  command ")[2].partition("  resource ")[0]
    assert len(command.split("\n")) > 2
    assert shlex.split(command.replace("\r", "").replace("\\\n", "")) == ["sh", "-c", script]


@pytest.mark.parametrize("command", ["why", "describe", "status"])
def test_lines_in_a_narrow_window(command: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(LINES)
    note = f"{FAMILY} " * 8
    torchx("run", "--note", note, "--tag", f"who={FAMILY}", "utils.sh", "--num_replicas", "2", f"sh {script}")
    shown, _ = on_terminal(command, "@last", columns=40, env={"NO_COLOR": "1"})
    assert FAMILY in shown
    for line in shown.splitlines():
        words = line.split()
        assert columns(line) <= 40 or len(words) == 1 or words[0] == "env", line
        assert line == line.rstrip() or line.strip() == "logs", line
