"""The server for agents as a process: requests beside each other, their end, and its own."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from local import sh, submit
from mcp.client.client import Client
from program import COMMAND, environment, torchx
from support import wait_until

from torchx.errors import UsageError
from torchx.masking import MASK
from torchx_cli.mcp import calls, paging, server, tools

pytestmark = pytest.mark.xdist_group("agents")


class Raw:
    """A server and the lines of its protocol."""

    def __init__(self, *flags: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "mcp", *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(),
            text=True,
        )
        info = {"name": "test", "version": "1"}
        self.send(0, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        assert self.receive()["result"]["serverInfo"]["name"] == "torchx"
        self.send(None, "notifications/initialized")

    def send(self, number: int | None, method: str, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def call(self, number: int, name: str, **arguments: Any) -> None:
        self.send(number, "tools/call", name=name, arguments=arguments)

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def children(self) -> list[int]:
        """Returns the processes of calls that run."""
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return found


@pytest.fixture
def raw() -> Iterator[Raw]:
    made = Raw("--allow", "cancel")
    yield made
    made.process.kill()
    made.process.wait()
    for pipe in (made.process.stdin, made.process.stdout):
        assert pipe is not None
        pipe.close()


@pytest.fixture
def sleeper() -> Iterator[str]:
    """An application that runs until the test has ended."""
    app_id = submit(sh("sleep 600"), grace_period=0.5)
    yield app_id
    torchx("cancel", app_id)


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


def test_blocking_wait_delays_no_other_call(raw: Raw, sleeper: str) -> None:
    raw.call(1, "wait", handles=[sleeper])
    raw.call(2, "wait", handles=[sleeper])
    waiting = wait_until(lambda: len(pids := raw.children()) == 2 and pids, "both wait")
    raw.call(3, "status", handle=sleeper)
    answer = raw.receive()
    assert answer["id"] == 3
    assert sleeper in answer["result"]["content"][0]["text"]
    raw.send(None, "notifications/cancelled", requestId=1, reason="test")
    wait_until(lambda: sum(map(is_running, waiting)) == 1, "the process of the cancelled call has ended")
    raw.call(4, "cancel", handles=[sleeper])
    answers = {}
    while not {2, 4} <= answers.keys():
        received = raw.receive()
        answers[received["id"]] = received
    assert json.loads(answers[2]["result"]["content"][0]["text"])[0]["state"] == "CANCELLED"


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_no_process_outlives_the_server(how: str, raw: Raw, sleeper: str) -> None:
    raw.call(1, "wait", handles=[sleeper])
    (waiting,) = wait_until(raw.children, "the call waits")
    if how == "closed":
        assert raw.process.stdin is not None
        raw.process.stdin.close()
        assert raw.process.wait(120) == 0
    else:
        raw.process.send_signal(signal.SIGKILL)
        raw.process.wait(120)
    wait_until(lambda: not is_running(waiting), "the call has ended with the server")


def test_progress_is_reported_while_a_call_continues(monkeypatch: pytest.MonkeyPatch, sleeper: str) -> None:
    monkeypatch.setattr(server, "PROGRESS_EVERY", 0.01)
    heard = []

    async def progress(value: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def ask() -> Any:
        async with Client(server.make(frozenset())) as client:
            return await client.call_tool(
                "wait", {"handles": [sleeper], "timeout": "0.1"}, progress_callback=progress
            )

    result = anyio.run(ask)
    assert "timed" not in result.content[0].text
    assert heard
    assert str(heard[0]).startswith("wait continues after ")


def test_without_package_error_has_command_that_installs_it() -> None:
    code = (
        "import sys; sys.modules['anyio'] = sys.modules['mcp'] = sys.modules['mcp_types'] = None\n"
        "from torchx_cli.main import main; sys.exit(main(['mcp']))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[1:] == ["  pip install 'mcp>=2'"]
    assert done.stderr.startswith("error: `torchx mcp` requires the package `mcp`\n")


def test_a_group_that_does_not_exist_is_an_error() -> None:
    done = torchx("mcp", "--allow", "run,cancle")
    assert (done.returncode, "did you mean `cancel`" in done.stderr) == (2, True)


def test_an_endless_output_is_read_up_to_the_limit(tmp_path: Path) -> None:
    reader = calls.Lines()
    assert reader.feed(b"x" * (calls.MOST_LINE + 10)) is True
    assert reader.feed(b"y" * 100 + b"\nnext\n") is True
    assert [len(reader.lines[0]), reader.lines[1]] == [calls.LONGEST_LINE, "next"]
    whole = calls.Whole()
    assert whole.feed(b"x" * calls.MOST_OUTPUT) is True
    assert whole.feed(b"x") is False


def test_each_tool_has_the_flags_of_its_command() -> None:
    for name, tool in tools.offered(frozenset(tools.ALLOWED)).items():
        assert set(tools.schema(tool)["properties"]) - {"cursor"} == {
            f.removesuffix("!") for f in tool.flags.split()
        }, name


@pytest.mark.parametrize(
    ("name", "arguments", "argv"),
    [
        ("list", {}, ["list", "-o", "json", "--lines=200", "--"]),
        (
            "list",
            {"lines": 3, "state": "failed"},
            ["list", "-o", "json", "--state=failed", "--lines=3", "--"],
        ),
        (
            "wait",
            {"handles": ["a", "b"], "any": True},
            ["wait", "-o", "json", "--any", "--timeout=600", "--", "a", "b"],
        ),
        ("log", {"target": "a", "regex": "-x"}, ["log", "-o", "json", "--mask", "--regex=-x", "--", "a"]),
        (
            "run",
            {"arguments": ["c", "--x"], "env": ["A=1"]},
            ["run", "--detach", "--json", "--env=A=1", "c", "--x"],
        ),
        (
            "run",
            {"arguments": ["c"], "each": ["a=1,2", "b=3"], "name": "n"},
            ["run", "--detach", "--json", "--each=a=1,2", "--each=b=3", "--name=n", "c"],
        ),
        (
            "run",
            {"arguments": ["c"], "secret": ["A", "B=@file"]},
            ["run", "--detach", "--json", "--secret=A", "--secret=B=@file", "c"],
        ),
        (
            "rerun",
            {"handle": "a", "secret": ["A"]},
            ["rerun", "--detach", "--json", "--secret=A", "--", "a"],
        ),
        ("results", {"handle": "s", "sort": "-x"}, ["results", "-o", "json", "--sort=-x", "--", "s"]),
        ("stacks", {"target": "a"}, ["stacks", "-o", "json", "--", "a"]),
        ("component", {"arguments": ["c"]}, ["run", "--json", "c", "--help"]),
        ("component", {"component": "c"}, ["run", "--json", "c", "--help"]),
        ("component", {"name": "c"}, ["run", "--json", "c", "--help"]),
        ("run", {"component": "c", "arguments": ["--x"]}, ["run", "--detach", "--json", "c", "--x"]),
        (
            "run",
            {
                "arguments": ["c"],
                "each": ["a=1", "b=2"],
                "zip": True,
                "at_once": 2,
                "after": ["x:any"],
                "retry_on": ["3"],
                "no_retry_on": ["none"],
                "preflight": ["disk"],
                "requeue": "node",
                "warn_before": "5m",
                "checkpoint_dir": "ck",
                "env_file": ["e"],
            },
            [
                "run",
                "--detach",
                "--json",
                "--env-file=e",
                "--each=a=1",
                "--each=b=2",
                "--zip",
                "--at-once=2",
                "--after=x:any",
                "--retry-on=3",
                "--no-retry-on=none",
                "--preflight=disk",
                "--warn-before=5m",
                "--requeue=node",
                "--checkpoint-dir=ck",
                "c",
            ],
        ),
        (
            "list",
            {"columns": ["state", "msg"]},
            ["list", "-o", "json", "--lines=200", "--columns=state,msg", "--"],
        ),
        (
            "rerun",
            {"handle": "a", "set": {"lr": 0.5, "msg": "a b=c", "debug": False, "sizes": [1, 2]}},
            [
                "rerun",
                "--detach",
                "--json",
                "--set=lr=0.5",
                "--set=msg=a b=c",
                "--set=debug=false",
                "--set=sizes=[1, 2]",
                "--",
                "a",
            ],
        ),
        (
            "run",
            {"arguments": ["c"], "notify": ["cmd:true"], "stall": "10m"},
            ["run", "--detach", "--json", "--stall=10m", "--notify=cmd:true", "c"],
        ),
        (
            "run",
            {"arguments": ["c"], "env": {"A": "1"}, "scheduler_args": {"k": 3}, "tag": {"a": "b"}},
            ["run", "--detach", "--json", "-cfg=k=3", "--env=A=1", "--tag=a=b", "c"],
        ),
        ("log", {"handle": "a"}, ["log", "-o", "json", "--mask", "--", "a"]),
        ("wait", {"handle": "a"}, ["wait", "-o", "json", "--timeout=600", "--", "a"]),
        ("status", {"handle": "a", "ranks": True}, ["status", "-o", "json", "--ranks", "--", "a"]),
        ("list", {"columns": "state"}, ["list", "-o", "json", "--lines=200", "--columns=state", "--"]),
        ("top", {}, ["top", "-o", "json", "--"]),
        ("queue", {}, ["queue", "-o", "json", "--"]),
        ("change_queue", {"action": "hold", "handles": ["a"]}, ["queue", "-o", "json", "--", "hold", "a"]),
        ("report", {"handle": "a"}, ["report", "--json", "--", "a"]),
        ("report_page", {"handle": "a", "output": "-"}, ["report", "--output=-", "--", "a"]),
    ],
)
def test_the_command_line_of_a_call(name: str, arguments: dict[str, Any], argv: list[str]) -> None:
    assert tools.command_line(name, tools.TOOLS[name], arguments) == argv


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("status", {}, "requires the argument `handle`"),
        ("status", {"handle": ["a"]}, "takes a string"),
        ("status", {"handle": True}, "takes a string"),
        ("list", {"lines": True}, "takes a whole number"),
        ("run", {"arguments": ["c", None]}, "takes a list of strings"),
        ("run", {"arguments": ["c"], "env": [{"A": "1"}]}, "takes an object, or a list of strings"),
        ("status", {"handle": "--help"}, "got the flag `--help`"),
        ("wait", {"handles": "a"}, "takes a list of strings"),
        ("wait", {"handles": ["a"], "any": 1}, "takes true or false"),
        ("run", {"arguments": ["--help"]}, "got the flag"),
        ("rerun", {"handle": "a", "set": ["lr=1"]}, "takes an object"),
        ("status", {"handle": "a", "watch": True}, "has no argument `watch`"),
    ],
)
def test_invalid_arguments_run_nothing(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tools.command_line(name, tools.TOOLS[name], arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "hint"),
    [
        ("log", {"handle": "a", "tail": 3}, "did you mean `lines`?"),
        ("list", {"limit": 3}, "did you mean `lines`?"),
        ("run", {"arguments": ["c"], "cfg": ["a=1"]}, "did you mean `scheduler_args`?"),
        ("run", {"arguments": ["-s", "local_cwd", "c"]}, "give it as the argument `scheduler`"),
        ("run", {"arguments": ["--time-limit=3", "c"]}, "give it as the argument `time_limit`"),
        ("cancel", {}, 'A list: handles, app ids or prefixes of them, names, or @last: ["@last"].'),
        (
            "run",
            {"arguments": []},
            tools._HELP["arguments"],
        ),
    ],
)
def test_the_hint_of_a_wrong_call(name: str, arguments: dict[str, Any], hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        tools.command_line(name, tools.TOOLS[name], arguments)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("name", "error", "changed"),
    [
        (
            "run",
            {"code": "unknown_run_option", "hint": "h", "option": "x", "did_you_mean": "y"},
            {"hint": "did you mean `y`?   all options: the tool `run_options`", "argument": "scheduler_args"},
        ),
        (
            "run",
            {"code": "unknown_flag", "hint": "h", "flag": "--note"},
            {"hint": "give it as the argument `note`", "argument": "note"},
        ),
        ("run", {"code": "invalid_value", "hint": "h", "flag": "--each"}, {"argument": "each"}),
        ("run", {"code": "unknown_flag", "hint": "h", "flag": "--mgs"}, {}),
        (
            "status",
            {"code": "unknown_application", "hint": "h"},
            {"hint": "all applications: the tool `list`"},
        ),
    ],
)
def test_an_error_for_an_agent_names_arguments_and_tools(
    name: str, error: dict[str, Any], changed: dict[str, Any]
) -> None:
    assert tools.for_agent(tools.TOOLS[name], error) == {**error, **changed}


def test_descriptions_name_no_flags_and_no_shell() -> None:
    for tool in tools.TOOLS.values():
        for name, argument in tools.schema(tool)["properties"].items():
            assert not re.search(r" --|shell|repeatable|torchx [a-z]+ ", argument["description"]), name


def test_bytes_that_are_not_text_do_not_end_server(raw: Raw) -> None:
    done = torchx("run", "-s", "local_cwd", "--detach", "utils.sh", "true # \udcff")
    app_id = done.stdout.strip()
    raw.call(1, "describe", handle=app_id)
    text = raw.receive()["result"]["content"][0]["text"]
    assert r"true # \udcff" in json.dumps(json.loads(text))
    raw.call(2, "status", handle=app_id)
    assert raw.receive()["id"] == 2


def test_the_log_for_an_agent_hides_secrets(raw: Raw, tmp_path: Path) -> None:
    (tmp_path / "token").write_text('canary "7" ü')
    script = ["utils.sh", 'echo "has $API"']
    done = torchx("run", "-s", "local_cwd", "--secret", f"API=@{tmp_path}/token", *script)
    assert done.returncode == 0, done.stderr
    raw.call(1, "log", target=done.stdout.strip())
    text = raw.receive()["result"]["content"][0]["text"]
    assert json.loads(text)["lines"] == [f"sh/0 | has {MASK}"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"target": "local_cwd://torchx/nosuchapp"}, "unknown_application"),
        *(
            pytest.param(*case, marks=pytest.mark.long)  # each starts a server
            for case in (
                ({"target": "a", "lines": -1}, "invalid_value"),
                ({"target": "a", "cursor": ":" + "9" * 5000}, "usage"),
                ({"target": "local_cwd://torchx/" + "a" * 20_000}, "unknown_application"),
            )
        ),
    ],
)
def test_error_of_command_with_lines_has_its_code(raw: Raw, arguments: dict[str, Any], code: str) -> None:
    raw.call(1, "log", **arguments)
    result = raw.receive()["result"]
    assert result["isError"]
    text = result["content"][0]["text"]
    assert json.loads(text)["error"]["code"] == code
    assert len(text) < 6000


def test_an_error_about_a_long_handle_is_short(raw: Raw) -> None:
    for number, (tool, arguments) in enumerate(
        [("status", {"handle": "x" * 9000}), ("status", {"handle": "local_cwd://torchx/" + "y" * 9000})], 1
    ):
        raw.call(number, tool, **arguments)
        result = raw.receive()["result"]
        text = result["content"][0]["text"]
        assert result["isError"], text[:200]
        assert len(text.encode()) <= paging.LARGEST_WITH_FRAME
        assert json.loads(text)["error"]["code"]


@pytest.mark.parametrize("last", [False, True])
def test_a_line_larger_than_an_answer_is_cut(last: bool) -> None:
    large = {"kind": "noted", "details": {"text": "x" * 9000}}
    output = b"".join(json.dumps(each).encode() + b"\n" for each in [{"kind": "ended"}] * 300 + [large])
    seen = 0
    for _ in range(9):
        reader = calls.Lines(seen, last=last)
        reader.feed(output)
        line = reader.lines[-1]
        seen = reader.begin + len(reader.lines)
        if seen == 301:
            break
    assert line["kind"] == "noted"
    assert 4000 < paging.size(line) <= paging.LARGEST
