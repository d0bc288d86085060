"""Tasks of an agent, with the client of the package over stdio: few calls, small answers, no polling."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio.from_thread
import pytest
from canary import Watched, canary
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from program import COMMAND, environment

from torchx.masking import MASK

pytestmark = pytest.mark.xdist_group("agents")  # one server for all tasks

CHANGING = ("run", "rerun", "report_page", "change_queue", "cancel")
"""The tools that change something, of those that this server allows."""

MOST_CALLS = 4
MOST_BYTES = 6_000


class Agent:
    """An agent: calls tools, and counts calls and bytes of a task."""

    def __init__(self, client: Client, portal: Any, folder: Path) -> None:
        self._client, self._portal = client, portal
        self.folder = folder
        self.calls = self.bytes = 0

    def begin(self) -> None:
        self.calls = self.bytes = 0

    def tools(self) -> dict[str, Any]:
        listed = self._portal.call(self._client.list_tools)
        return {tool.name: tool for tool in listed.tools}

    def call(self, name: str, *, fails: bool = False, **arguments: Any) -> Any:
        """Calls a tool and returns its answer."""
        result = self._portal.call(self._client.call_tool, name, arguments)
        (content,) = result.content
        self.calls += 1
        self.bytes += len(content.text.encode())
        assert result.is_error is fails, content.text
        return json.loads(content.text)

    def run(self, *arguments: str, **more: Any) -> str:
        handle: str = self.call("run", arguments=list(arguments), **more)["handle"]
        return handle


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One server, which may run and cancel, in a folder and with a state home of its own."""
    folder = tmp_path_factory.mktemp("agent")
    home = {
        "HOME": str(folder),
        "TORCHX_HOME": str(folder / "home"),
        "SLURM_CONF": f"{folder}/none",
        "TORCHX_PROVENANCE": "0",
    }
    env = environment({**home, "DOCKER_HOST": f"unix://{folder}/none.sock", "KUBECONFIG": f"{folder}/none"})
    parameters = StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], "mcp", "--allow", "run,cancel"], env=env, cwd=folder
    )
    with anyio.from_thread.start_blocking_portal() as portal:
        client = Client(stdio_client(parameters))
        with portal.wrap_async_context_manager(client):
            agent = Agent(client, portal, folder)
            agent.run("utils.sh", "--num_replicas", "2", "echo trained")
            agent.call("wait", handles=["@last"])
            yield agent


@pytest.fixture
def agent(session: Agent) -> Iterator[Agent]:
    session.begin()
    yield session
    assert session.calls <= MOST_CALLS
    assert session.bytes <= MOST_BYTES


@pytest.fixture(scope="module")
def failed(session: Agent) -> str:
    """An application of which one replica has failed."""
    script = f"test $TORCHX_REPLICA != sh/1 && exec sleep 60; exec {sys.executable} -S -c 'import nope'"
    handle = session.run("utils.sh", "--num_replicas", "3", script)
    session.call("wait", handles=[handle])
    return handle


@pytest.fixture(scope="module")
def verbose(session: Agent) -> str:
    """An application with a long log."""
    script = "for n in $(seq 500); do echo line $n of $TORCHX_REPLICA; done"
    handle = session.run("utils.sh", "--num_replicas", "2", script)
    session.call("wait", handles=[handle])
    return handle


def test_submit_and_wait(agent: Agent) -> None:
    handle = agent.run("utils.sh", "sleep 0.2; echo done")
    (ended,) = agent.call("wait", handles=[handle])
    assert (ended["handle"], ended["state"], ended["exit_code"]) == (handle, "SUCCEEDED", 0)


def test_find_the_cause_of_a_failure(agent: Agent, failed: str) -> None:
    answer = agent.call("why", handle=failed)
    assert answer["cause"]["class"] == "import_error"
    assert answer["first_failure"]["replica"] == 1


def test_fix_a_flag_and_run_again(agent: Agent) -> None:
    agent.call("run", arguments=["utils.sh", "exit 4"])
    (ended,) = agent.call("wait", handles=["@last"])
    assert ended["exit_code"] == 4
    agent.run("utils.sh", "exit 0")
    assert agent.call("wait", handles=["@last"])[0]["exit_code"] == 0


def test_run_with_a_secret(agent: Agent) -> None:
    file = agent.folder / "token"
    file.write_text(canary())
    handle = agent.run("utils.sh", "echo has $API; exit 3", secret=[f"API=@{file}"])
    agent.call("wait", handles=[handle])
    assert agent.call("log", target=handle)["lines"] == [f"sh/0 | has {MASK}"]


def test_run_again_with_a_secret(agent: Agent) -> None:
    file = agent.folder / "token"
    file.write_text(canary())
    handle = agent.run("utils.sh", "test $API", secret=[f"API=@{file}"])
    error = agent.call("rerun", handle=handle, fails=True)["error"]
    assert error["names"] == ["API"]
    again = agent.call("rerun", handle=handle, secret=[f"API=@{file}"])["handle"]
    assert agent.call("wait", handles=[again])[0]["exit_code"] == 0


def test_correct_a_misspelled_flag(agent: Agent) -> None:
    error = agent.call("run", arguments=["utils.echo", "--mgs", "hi"], fails=True)["error"]
    assert "--msg" in error["hint"]
    agent.run("utils.echo", "--msg", "hi")


def test_find_the_replica_that_prints_something(agent: Agent, failed: str) -> None:
    assert agent.call("log", target=failed, regex="^ModuleNotFoundError")["lines"] == [
        "sh/1 | ModuleNotFoundError: No module named 'nope'"
    ]


def test_compare_a_failure_with_the_last_success(agent: Agent) -> None:
    agent.run("utils.sh", "--num_replicas", "1", "echo trained; exit 1")
    agent.call("wait", handles=["@last"])
    answer = agent.call("why", handle="@last")
    assert {d["part"] for d in answer["differences"]} >= {"arguments: argument 1"}
    assert answer["last_success"].startswith("local_cwd://")


def test_compare_two_runs(agent: Agent) -> None:
    first, second = agent.run("utils.echo", "--msg", "a"), agent.run("utils.echo", "--msg", "b")
    sections = {
        section["name"]: section for section in agent.call("diff", first=first, second=second)["sections"]
    }
    assert "msg" in json.dumps(sections["arguments"])


def test_cancel_an_application(agent: Agent) -> None:
    handle = agent.run("utils.sh", "sleep 600")
    (cancelled,) = agent.call("cancel", handles=[handle])
    assert (cancelled["cancelled"], cancelled["state"]) == (True, "CANCELLED")
    assert agent.call("status", handle=handle)["state"] == "CANCELLED"


def test_list_with_a_filter(agent: Agent, failed: str) -> None:
    rows = agent.call("list", state="failed", scheduler="local_cwd", lines=5)
    assert failed in [row["handle"] for row in rows]
    assert {row["state"] for row in rows} == {"FAILED"}


def test_page_through_a_log(agent: Agent, verbose: str) -> None:
    page = agent.call("log", target=f"{verbose}/sh/0", regex="line [123]..? of")
    seen = page["lines"]
    while "more" in page:
        cursor = page["more"][0]["cursor"]
        page = agent.call("log", target=f"{verbose}/sh/0", regex="line [123]..? of", cursor=cursor)
        seen += page["lines"]
        agent.bytes = 0  # each page is small; together they are the log
    assert seen == [f"sh/0 | line {n} of sh/0" for n in range(1, 501) if str(n)[0] in "123" and n > 9]


def test_read_the_end_of_a_log(agent: Agent, verbose: str) -> None:
    assert agent.call("log", target=f"{verbose}/sh/1", lines=2)["lines"] == [
        "sh/1 | line 499 of sh/1",
        "sh/1 | line 500 of sh/1",
    ]


def test_a_long_end_keeps_the_last_lines(agent: Agent, verbose: str) -> None:
    answer = agent.call("log", target=f"{verbose}/sh/1", lines=500)
    assert answer["lines"][-1] == "sh/1 | line 500 of sh/1"
    assert answer["omitted"].startswith(f"{500 - len(answer['lines'])} earlier lines")


def test_show_the_options_of_a_scheduler(agent: Agent) -> None:
    options = agent.call("run_options", scheduler="local_cwd")["local_cwd"]
    assert "grace_period" in [option["name"] for option in options]


def test_find_a_component_and_its_flags(agent: Agent) -> None:
    names = [component["name"] for component in agent.call("components")]
    assert "utils.sh" in names
    arguments = {each["name"]: each for each in agent.call("component", arguments=["utils.sh"])["arguments"]}
    assert arguments["num_replicas"] == {
        "name": "num_replicas",
        "type": "INT",
        "required": False,
        "default": "1",
        "help": "number of replicas",
    }
    assert "*args" in arguments


def test_run_a_component_of_a_file_that_prints(agent: Agent) -> None:
    (agent.folder / "comps.py").write_text(
        "import sys, os\nfrom torchx.specs import AppDef, Role\nprint('loading')\nos.write(1, b'noise')\n"
        "def greet(name: str) -> AppDef:\n"
        '    """Greets.\n\n    Args:\n        name: whom\n    """\n'
        "    return AppDef('greet', [Role('w', '', entrypoint='echo', args=['hi', name])])\n"
    )
    agent.run("comps.py:greet", "--name", "you")
    agent.call("wait", handles=["@last"])
    assert agent.call("log", target="@last")["lines"] == ["w/0 | hi you"]


def test_submit_once(agent: Agent) -> None:
    first = agent.call("run", arguments=["utils.echo"], once="task-1")
    again = agent.call("run", arguments=["utils.echo"], once="task-1")
    assert (first["handle"], first["existed"], again["existed"]) == (again["handle"], False, True)


def test_submit_an_application_again(agent: Agent, failed: str) -> None:
    handle = agent.call("rerun", handle=failed)["handle"]
    (ended,) = agent.call("wait", handles=[handle])
    assert (ended["state"], handle == failed) == ("FAILED", False)


def test_wait_for_a_line_of_a_log(agent: Agent) -> None:
    handle = agent.run("utils.sh", "sleep 0.1; echo ready to serve; sleep 600")
    (met,) = agent.call("wait", handles=[handle], **{"for": "log:ready to"})
    assert met["line"] == "ready to serve"
    agent.call("cancel", handles=[handle])


def test_continue_a_wait_that_has_timed_out(agent: Agent) -> None:
    handle = agent.run("utils.sh", "sleep 600")
    answer = agent.call("wait", handles=[handle], timeout="0.1")
    assert answer["result"][0]["state"] in ("SUBMITTED", "RUNNING")
    assert answer["next"].startswith("not yet")
    agent.call("cancel", handles=[handle])


def test_show_a_request_before_it_is_submitted(agent: Agent) -> None:
    request = agent.call("dryrun", arguments=["utils.sh", "--num_replicas", "2", "hostname"])
    assert request["app"]["roles"][0]["num_replicas"] == 2


def test_read_a_large_status_in_parts(agent: Agent) -> None:
    agent.run("utils.sh", "--num_replicas", "20", "exit 0")
    agent.call("wait", handles=["@last"])
    cut = agent.call("status", handle="@last")
    more = next(part for part in cut["more"] if part["at"] == "/roles/0/replicas")
    assert (cut["result"]["state"], more["of"]) == ("SUCCEEDED", 20)
    agent.bytes = 0  # a page of its own
    page = agent.call("status", handle="@last", cursor=more["cursor"])
    assert page["result"][0]["id"] == more["shown"]


def test_list_the_events_of_an_application(agent: Agent, failed: str) -> None:
    kinds = [event["kind"] for event in agent.call("events", handle=failed)["lines"]]
    assert (kinds[0], kinds[-1]) == ("submitted", "ended")


def test_action_that_is_not_allowed_and_errors_change_nothing(agent: Agent, failed: str) -> None:
    error = agent.call("delete", handles=[failed], fails=True)["error"]
    assert (error["code"], error["hint"]) == (
        "not_allowed",
        "start the server with: torchx mcp --allow delete",
    )
    usage = agent.call("status", handl=failed, fails=True)["error"]
    assert ("did you mean `handle`" in usage["hint"], usage["exit_code"]) == (True, 2)
    assert agent.call("status", handle="--help", fails=True)["error"]["code"] == "usage"
    assert agent.call("status", handle=failed, roles="sh")


def test_correct_an_unknown_run_option(agent: Agent) -> None:
    error = agent.call("dryrun", arguments=["utils.echo"], scheduler_args={"nope": 1}, fails=True)["error"]
    assert (error["argument"], error["hint"]) == ("scheduler_args", "all options: the tool `run_options`")


def test_values_of_variables_are_in_no_output(agent: Agent) -> None:
    value = canary()
    with Watched(value) as watched:
        agent.run("utils.sh", "echo token=$API_KEY", env=[f"API_KEY={value}"])
        agent.call("wait", handles=["@last"])
        texts = [agent.call("describe", handle="@last"), agent.call("log", target="@last")]
    assert (watched.seen, watched.looks > 0) == ([], True)
    assert value not in json.dumps(texts)


def test_the_tools_are_described(session: Agent) -> None:
    listed = session.tools()
    assert "delete" not in listed
    for name, tool in listed.items():
        assert len(tool.description) <= 300, name
        assert tool.annotations.read_only_hint is (name not in CHANGING)
        for key, found in tool.input_schema["properties"].items():
            assert found["description"], (name, key)


HANG = "import os, threading; print('step 1', flush=True); threading.Event().wait(); os.environ['LR']"


def test_resolve_a_hang(agent: Agent) -> None:
    """Start a job, find it stalled, read the stacks, cancel it, and run it with another argument."""
    script = f"exec {sys.executable} -S -c {HANG!r}"
    handle = agent.run("utils.sh", "--num_replicas", "2", script, stall="0.5s")
    (met,) = agent.call("wait", handles=[handle], **{"for": "stalled"})
    assert met["met"] is True
    groups = agent.call("stacks", target=handle)["groups"]
    assert sum(group["count"] for group in groups) == 2
    assert agent.call("cancel", handles=[handle])[0]["state"] == "CANCELLED"


def test_rerun_with_changed_arguments(agent: Agent) -> None:
    handle = agent.run("utils.echo", "--msg", "a")
    again = agent.call("rerun", handle=handle, set={"msg": "b = c", "num_replicas": 2})["handle"]
    agent.call("wait", handles=[again])
    assert sorted(agent.call("log", target=again)["lines"]) == ["echo/0 | b = c", "echo/1 | b = c"]


def test_a_list_of_chosen_columns_is_short(agent: Agent, failed: str) -> None:
    rows = agent.call("list", state="failed", columns="state,exit")
    assert {"handle": failed, "state": "FAILED", "exit_code": 1} in rows


def test_read_ranks_and_replicas_of_a_running_job(agent: Agent) -> None:
    handle = agent.run("utils.sh", "--num_replicas", "2", "echo [rank3]: step 7; exec sleep 600")
    agent.call("wait", handles=[handle], **{"for": "log:step 7"})
    assert "ranks" in agent.call("status", handle=handle, ranks=True)
    (shown,) = agent.call("top", handles=[handle])
    assert shown["handle"] == handle
    agent.calls = 0
    assert agent.call("queue").keys() == {"gpus", "reserved", "waiting"}  # other users may wait
    agent.call("cancel", handles=[handle])


def test_change_the_queue(agent: Agent) -> None:
    all_cpus = ["utils.sh", "--cpu", str(len(os.sched_getaffinity(0))), "exec sleep 600"]
    first, second = (agent.run(*all_cpus, scheduler_args={"reserve": True}) for _ in range(2))
    app_id = second.rpartition("/")[2]
    answer = agent.call("change_queue", action="hold", handles=[second])
    assert [(row["handle"], row["changed"]) for row in answer["result"]] == [(second, True)]
    assert f"{app_id} is held" in answer["notes"]
    error = agent.call("change_queue", action="hold", handles=[app_id[:5]], fails=True)["error"]
    assert error["code"] == "ambiguous_name", "half a name changes nothing"
    agent.calls = 0
    agent.call("change_queue", action="move", handles=[second], fails=True)
    agent.call("cancel", handles=[first, second])


def test_report_a_failure(agent: Agent, failed: str) -> None:
    assert agent.call("report_page", handle=failed, output="failed.html")["text"] == "failed.html"
    agent.call("report_page", handle=failed, output="none/failed.html", fails=True)
    assert "failed first" in (agent.folder / "failed.html").read_text()
    data = agent.call("report", handle=failed)
    assert data.get("result", data)["failure"]["description"].startswith("sh/1 failed first")
