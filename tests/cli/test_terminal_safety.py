"""What others wrote never controls a terminal: names, messages, docstrings, values, errors."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import outputs
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from memory_scheduler import MemoryScheduler
from program import on_terminal

import torchx.runner
import torchx_cli
from torchx.printable import has_controls, one_line, printable
from torchx.runner import Runner
from torchx.scheduling.base import DescribeAppResponse, ListAppResponse
from torchx.scheduling.findings import Finding, Verdict
from torchx.specs import AppState
from torchx.specs.app import Role
from torchx.specs.run_options import runopts
from torchx.specs.status import AttemptStatus, FirstFailure, ReplicaStatus, RoleStatus
from torchx_cli.main import main
from torchx_cli.terminal import output
from torchx_cli.terminal.interrupts import Interrupts
from torchx_cli.terminal.output import wrap_command
from torchx_cli.terminal.watch import changes

EVIL = "A\x1b[2J\x1b]0;title\x07B\x9b31mC\x85D\u202eE\u2066F\x7fG\u2028H\rI\x00"
SAFE = "A\\x1b[2J\\x1b]0;title\\x07B\\x9b31mC\\x85D\\u202eE\\u2066F\\x7fG\\u2028H\\x0dI\\x00"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@given(st.text())
def test_nothing_that_is_printable_holds_a_control(text: str) -> None:
    assert not CONTROLS.search(printable(text))
    assert printable(printable(text)) == printable(text)
    assert not {"\n", "\t"} & set(one_line(text))
    assert has_controls(text) == bool(CONTROLS.search(text))


def test_letters_of_all_kinds_stay() -> None:
    text = "naïve 日本 🙂 \u200dé\n\tcafé\ufeff"
    assert printable(text) == text
    assert printable(None) == ""
    assert printable(["x\x1b"]) == "['x\\x1b']"


def test_only_paint_makes_an_escape_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "has_colour", lambda stream: True)
    painted = output.paint(f"\x1b[31mfake {EVIL}", "good", io.StringIO())
    assert output.shown(painted) == f"\x1b[32m\\x1b[31mfake {SAFE}\x1b[0m"
    assert output.plain(painted) == f"\x1b[31mfake {EVIL}"


def test_there_is_one_place_that_prints() -> None:
    """The commands print with `say`, `print_stderr`, `note` and `emit`; job output is written as bytes."""
    allowed = {
        "output.py",
        "placeholder.py",  # runs before the package torchx, perhaps of another distribution, is loaded
        "__main__.py",
    }
    wrong = []
    for path in Path(torchx_cli.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or path.name in allowed:
                continue
            called = ast.unparse(node.func)
            if called in ("print", "traceback.print_exc", "typer.echo", "typer.secho") or re.fullmatch(
                r"sys\.(stdout|stderr)\.write", called
            ):
                wrong.append(f"{path.name}:{node.lineno} {called}")
    assert not wrong


class Hostile(MemoryScheduler):
    """An engine on which somebody else chose every text."""

    def _run_opts(self) -> runopts:
        opts = super()._run_opts()
        opts.add("x", type_=str, default=EVIL, help=EVIL)
        return opts

    def list(self, cfg: Mapping[str, Any] | None = None) -> Iterable[ListAppResponse]:
        yield ListAppResponse(f"app{EVIL}", AppState.RUNNING, name=EVIL, msg=f"{EVIL}\nFAKE  RUNNING")
        yield ListAppResponse("odd", AppState.FAILED, msg=["a list"])  # type: ignore[arg-type]

    def describe(self, app_id: str) -> DescribeAppResponse:
        attempt = AttemptStatus(1, AppState.RUNNING, msg=EVIL)
        replicas = [ReplicaStatus(0, AppState.RUNNING, f"r\n{EVIL}", EVIL, attempts=[attempt])]
        role = Role(
            f"r\n{EVIL}", EVIL, entrypoint=EVIL, args=[EVIL, "two\nlines"], env={"N\nimage  FAKE": EVIL},
            metadata={EVIL: EVIL},
        )  # fmt: skip
        odd = app_id == "odd"
        return DescribeAppResponse(
            app_id,
            AppState.FAILED if odd else AppState.RUNNING,
            msg=["a", "list"] if odd else EVIL,  # type: ignore[arg-type]
            roles=[role],
            roles_statuses=[RoleStatus(f"r\n{EVIL}", replicas)],
            first_failure=FirstFailure(EVIL, 0, 1, 1, None, EVIL),
            structured_error_msg=json.dumps({"message": EVIL}),
            ui_url=EVIL,
            log_dir=EVIL,
            workspaces={EVIL: EVIL},
            metadata={EVIL: EVIL},
            name=EVIL,
        )

    def _cancel_existing(self, app_id: str) -> None:
        return None

    def diagnose(self) -> Iterable[Finding]:
        return [Finding("engine", Verdict.WRONG, EVIL, EVIL)]


COMPONENT = '''
import torchx.specs as specs


def app(text: str = %r) -> specs.AppDef:
    """About %s

    Args:
        text: what %s
    """
    role = specs.Role("r", text, entrypoint="x", args=[text], env={"E": text})
    return specs.AppDef("app", [role], metadata={"m": text})


def broken() -> specs.AppDef:
    raise ValueError(%r)
'''


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHX_CONTEXT_NAME", "")
    monkeypatch.setattr(torchx.runner, "get_runner", lambda name: Runner(name, {"hostile": Hostile}))
    literal = EVIL.encode("unicode_escape").decode()
    text = COMPONENT % (EVIL, literal, literal, EVIL)
    (tmp_path / "c.py").write_text(text, encoding="utf-8")
    config = f"[cli:run]\nscheduler = hostile\n\n[plugin:x]\nkey = a{EVIL[:-3]}\n"
    (tmp_path / ".torchxconfig").write_text(
        config.replace("\x85", "").replace("\u2028", ""), encoding="utf-8"
    )
    yield tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["status", "hostile://torchx/a"],
        ["status", "hostile://torchx/odd"],
        ["describe", "hostile://torchx/a"],
        ["describe", "hostile://torchx/odd"],
        ["runopts", "hostile"],
        ["doctor", "hostile"],
        ["config", "show"],
        ["run", "c.py:app", "--help"],
        ["run", "--dryrun", "c.py:app"],
        ["run", "c.py:broken"],
        ["--debug", "run", "c.py:broken"],
        ["run", f"c.py:{EVIL}"],
        ["status", EVIL],
        [EVIL],
        ["lint", "c.py"],
        ["cancel", f"hostile://torchx/{EVIL}"],
    ],
    ids=lambda words: printable(" ".join(words))[:40],
)
def test_no_command_hands_a_control_on(
    hostile: Path, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    main(words)
    captured = capfd.readouterr()
    shown = captured.out + captured.err
    assert not CONTROLS.findall(shown)
    assert "bug in torchx" not in shown
    assert shown


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize(
    "words",
    [["list"], ["status", "hostile://torchx/a"], ["describe", "hostile://torchx/a"], ["runopts", "hostile"]],
)
def test_data_has_the_same_texts_without_controls(
    hostile: Path,
    words: list[str],
    form: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "supports_unicode", lambda stream: True)
    monkeypatch.setattr(outputs, "check", lambda *_: None)  # such an engine returns values of wrong types too
    assert main([*words, "-o", form]) == 0
    shown = capfd.readouterr().out
    assert not CONTROLS.findall(shown)
    assert EVIL in str(_texts(json.loads(shown) if form == "json" else yaml.safe_load(shown)))


class _texts(list[str]):
    """All texts in some data, as one."""

    def __init__(self, data: Any) -> None:
        super().__init__()
        self._take(data)

    def _take(self, data: Any) -> None:
        if isinstance(data, dict):
            for key, value in data.items():
                self.append(str(key))
                self._take(value)
        elif isinstance(data, list):
            for item in data:
                self._take(item)
        else:
            self.append(str(data))

    def __str__(self) -> str:
        return "\n".join(self)


def test_a_line_break_in_a_text_makes_no_row(hostile: Path, capfd: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    assert not [line for line in capfd.readouterr().out.splitlines() if line.startswith("FAKE")]
    main(["describe", "hostile://torchx/a"])
    shown = capfd.readouterr().out
    assert "N\\nimage  FAKE=" in shown
    (command,) = [line for line in shown.splitlines() if line.strip().startswith("command ")]
    assert command.endswith("\\nlines'")
    unclosed = "run 'a\nFAKE"
    assert wrap_command("", unclosed, io.StringIO()) == r"run 'a\nFAKE"


def test_a_terminal_gets_colours_and_no_other_sequence(hostile: Path) -> None:
    shown, _ = on_terminal("run", "-s", "local_cwd", "c.py:app", "--help")
    assert "\x1b[1m" in shown
    assert not CONTROLS.findall(re.sub(r"\x1b\[[0-9;]*m", "", shown))
    shown, code = on_terminal("run", "-s", "local_cwd", f"c.py:app{EVIL[:-1]}")
    assert code == 2
    assert "\x1b[31merror:\x1b[0m" in shown
    assert not CONTROLS.findall(re.sub(r"\x1b\[(0|31)m", "", shown))


def test_what_changes_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    from torchx.scheduling.responses import status_of
    from torchx_cli.terminal.watch import _print_changes

    described = Hostile("s").describe("a")
    _print_changes({}, changes("a", status_of(described)))
    Interrupts()._say(f"killing {EVIL}")
    captured = capfd.readouterr()
    assert len(captured.out.splitlines()) == 2
    assert not CONTROLS.findall(captured.out + captured.err)
