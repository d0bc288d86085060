"""`torchx run` on local_cwd: what it prints where, its exit code, and where its values come from."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from program import COMMAND, answer, environment, on_terminal, torchx

from torchx.errors import UsageError
from torchx.specs.app import AppDef, Role
from torchx.specs.mounts import BindMount, DeviceMount, TmpfsMount, VolumeMount
from torchx.specs.serialize import app_to_dict
from torchx.specs.workspace import Workspace
from torchx_cli.resubmission import from_description

COMPONENTS = '''
import torchx.specs as specs


def app(*args: str, name: str = "app", n: int = 1, env: dict[str, str] | None = None) -> specs.AppDef:
    """Runs a shell line.

    Args:
        args: the line
        name: of the role
        n: how many
        env: variables
    """
    return specs.AppDef(name, [specs.Role(name, "", entrypoint="sh", args=["-c", " ".join(args)],
        num_replicas=n, env=env or {})])


def pair(first: str, second: str) -> specs.AppDef:
    """Two roles."""
    def role(name: str, line: str) -> specs.Role:
        return specs.Role(name, "", entrypoint="sh", args=["-c", line])

    return specs.AppDef("pair", [role("server", first), role("client", second)])
'''


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text(COMPONENTS, encoding="utf-8")
    return tmp_path


def config(text: str) -> None:
    Path(".torchxconfig").write_text(text, encoding="utf-8")


def request_of(*words: str) -> dict[str, list[str]]:
    """The command of each replica of a dry-run."""
    data = answer("run", "--dryrun", "-o", "json", *words)
    return {role["name"]: [role["entrypoint"], *role["args"]] for role in data["app"]["roles"]}


FALSE_LIKE = '''
from typing import Optional
import torchx.specs as specs


def app(n: int = 5, x: float = 2.5, b: bool = True, s: str = "d", o: Optional[int] = 7) -> specs.AppDef:
    """Shows its values."""
    return specs.AppDef("a", [specs.Role("a", "", entrypoint="echo", args=[f"{n!r} {x} {b} {s!r} {o}"])])
'''


def test_values_of_zero_false_and_empty_text_arrive(folder: Path) -> None:
    (folder / "f.py").write_text(FALSE_LIKE)
    pairs = [("n", "0"), ("x", "0.0"), ("b", "false"), ("s", ""), ("o", "0")]
    submit = ("run", "-s", "local_cwd", "--dryrun", "-o", "json", "f.py:app")
    texts = [
        answer(*submit, *(f"--{name}={value}" for name, value in pairs)),
        answer(
            *submit[:-1], *(f"--each={name}={value}" for name, value in pairs if value), "f.py:app", "--s="
        ),
        answer(
            "rerun", handle_of("f.py:app"), *(f"--set={name}={value}" for name, value in pairs), *submit[3:6]
        ),
    ]
    values = {"n": 0, "x": 0.0, "b": False, "s": "", "o": 0}
    request = {
        "component_name": "f.py:app",
        "scheduler": "local_cwd",
        "scheduler_args": {},
        "component_args": values,
    }
    texts.append(json.loads(torchx("run", "--stdin", *submit[3:6], stdin=json.dumps(request)).stdout))
    (folder / ".torchxconfig").write_text(
        "[component:f.py:app]\n" + "".join(f"{name} = {value}\n" for name, value in pairs)
    )
    texts.append(answer(*submit))
    assert [text["app"]["roles"][0]["args"] for text in texts] == [["0 0.0 False '' 0"]] * 5


def handle_of(component: str) -> str:
    """Runs a component and returns its handle."""
    return torchx("run", "-s", "local_cwd", component).stdout.split()[0]


def test_dry_run_on_slurm_names_files_of_job() -> None:
    words = ("c.py:app", "echo an argument")
    short = torchx("run", "-s", "slurm", "--dryrun", *words)
    flagged = torchx("run", "-s", "slurm", "--dryrun", "--", *words)
    full = torchx("run", "-s", "slurm", "--dryrun=full", *words)
    data = torchx("run", "-s", "slurm", "--dryrun", "-o", "json", *words)
    assert [done.returncode for done in (short, flagged, full, data)] == [0, 0, 0, 0]
    script = short.stdout.partition("=== SCHEDULER REQUEST ===")[2]
    assert len(script.splitlines()) < 60
    names = re.findall(r"^#> (?!end$)(.*)$", full.stdout, re.MULTILINE)
    assert re.findall("^#   (.*)$", script, re.MULTILINE) == sorted(names)
    assert "an argument" not in script
    files = json.loads(data.stdout)["request"]["files"]
    assert sorted(files) == sorted(names)
    assert "an argument" in files["role-0.sh"]
    assert "#|   'echo an argument'" in full.stdout


def test_handle_is_on_stdout_and_output_on_stderr() -> None:
    done = torchx("run", "-s", "local_cwd", "utils.echo", "--msg", "hi")
    assert done.returncode == 0
    assert done.stdout.startswith("local_cwd://torchx/echo-")
    assert done.stdout.count("\n") == 1
    assert done.stderr == "echo/0 │ hi\n"


def test_replicas_are_distinguished_and_aligned() -> None:
    done = torchx(
        "run", "c.py:pair", "--first", "echo up; sleep 0.5", "--second", "sleep 0.2; echo a >&2; printf b"
    )
    assert done.returncode == 0
    assert done.stderr == "server/0 │ up\nclient/0 │ a\nclient/0 │ b\n"


@pytest.mark.parametrize(("line", "code"), [("exit 3", 3), ("kill -9 $$$$", 137), ("kill $$$$", 143)])
def test_the_exit_code_is_that_of_the_replica(line: str, code: int) -> None:
    assert torchx("run", "c.py:app", line).returncode == code


def test_a_failure_shows_what_failed_first_and_why() -> None:
    first = "exec sleep 60"
    second = "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo line $i; done; exit 4"
    done = torchx("run", "c.py:pair", "--first", first, "--second", second)
    app_id = done.stdout.strip().rpartition("/")[2]
    assert done.returncode == 4
    lines = done.stderr.splitlines()[12:]
    assert lines[0].startswith(f"{app_id} FAILED after ")
    assert lines[1] == "  client/0 failed first: exit 4 (attempt 1 of 1); server/0 was stopped"
    assert lines[2:12] == [f"  │ line {i}" for i in range(3, 13)]
    assert lines[12] == f"  full log: torchx log {app_id}/client/0"
    assert shlex.split(lines[13])[1:] == ["torchx", "run", "c.py:pair", "--first", first, "--second", second]
    assert len(lines) == 14
    full = torchx(*shlex.split(lines[12])[3:])
    assert full.stdout == "".join(f"client/0 │ line {i}\n" for i in range(1, 13))


def test_a_signal_is_named_with_what_it_often_means() -> None:
    done = torchx("run", "c.py:app", "kill -9 $$$$")
    assert "app/0 failed first: killed by SIGKILL" in done.stderr
    assert "out-of-memory" in done.stderr


def test_of_one_replica_last_lines_are_not_shown_twice() -> None:
    done = torchx("run", "c.py:app", "echo once; exit 1")
    assert done.stderr.count("once") == 2  # the line itself, and the command to run it again
    assert "  │ once" not in done.stderr


def test_detach_returns_at_once_and_leaves_the_application_running() -> None:
    done = torchx("run", "--detach", "c.py:app", "sleep 60")
    assert (done.returncode, done.stderr) == (0, "")
    handle = done.stdout.strip()
    assert answer("status", handle, "-o", "json")["state"] in ("SUBMITTED", "PENDING", "RUNNING")
    assert torchx("cancel", handle).returncode == 0


def test_json_in_place_of_the_handle() -> None:
    done = torchx("run", "--json", "c.py:app", "exit 5")
    data = json.loads(done.stdout)
    assert done.returncode == 5
    assert (data["state"], data["exit_code"], data["scheduler"]) == ("FAILED", 5, "local_cwd")
    assert data["handle"] == f"local_cwd://torchx/{data['app_id']}"
    assert data["first_failure"]["role"] == "app"
    started = json.loads(torchx("run", "--json", "-d", "c.py:app", "sleep 60").stdout)
    assert started["exit_code"] is None
    torchx("cancel", started["handle"])


def test_the_command_sees_who_launched_it() -> None:
    done = torchx("run", "c.py:app", "echo $TORCHX_CONTEXT_NAME $TORCHX_PARENT_RUN_ID; echo $TORCHX_JOB_ID")
    lines = done.stderr.splitlines()
    assert lines == ["app/0 │ cli_run", f"app/0 │ {done.stdout.strip()}"]


def test_a_dry_run_shows_and_sends_nothing() -> None:
    done = torchx("run", "--dryrun", "c.py:app", "--n", "2", "echo", "x")
    assert done.returncode == 0
    assert done.stdout.startswith("=== APPLICATION ===\nname: app\n")
    assert "=== SCHEDULER REQUEST ===\n" in done.stdout
    assert answer("list", "-o", "json") == []
    data = answer("run", "--dryrun", "-o", "json", "-cfg", "prepend_cwd=1", "c.py:app", "x")
    assert set(data) == {"scheduler", "cfg", "app", "request", "notes"}
    assert data["cfg"]["prepend_cwd"] is True
    yaml = torchx("run", "--dryrun", "-o", "yaml", "c.py:app", "x")
    assert yaml.stdout.startswith("scheduler: local_cwd\ncfg:\n")


@pytest.mark.parametrize("sweep", [[], ["--each", "a=1,2"]])
def test_retries_by_cause_need_retries(sweep: list[str]) -> None:
    flags = ["run", "--dryrun", "--retry-on", "3", *sweep, "utils.sh"]
    line = "echo {a}"
    assert torchx(*flags, line).stderr.count("note: --retry-on has no effect: max_retries is 0") == 1
    assert "--retry-on" not in torchx(*flags, "--max_retries", "1", line).stderr
    assert "to retry: --max_retries N after the component" in torchx(*flags, line).stderr


def test_retries_of_a_component_without_their_flag() -> None:
    shown = torchx("run", "--dryrun", "--retry-on", "3", "utils.echo").stderr
    assert "to retry: set Role(max_retries=...) in its function" in shown


def test_what_a_component_prints_comes_on_stderr() -> None:
    loud = COMPONENTS.replace("    return", '    print("called")\n    return', 1)
    Path("loud.py").write_text(f'{loud}\n\nprint("imported")\n', encoding="utf-8")
    done = torchx("run", "--dryrun", "-o", "json", "loud.py:app", "x")
    assert done.stderr == "imported\ncalled\n"
    assert json.loads(done.stdout)["app"]["name"] == "app"
    ran = torchx("run", "loud.py:app", "true")
    assert (ran.stdout.count("\n"), ran.stderr) == (1, "imported\ncalled\n")
    assert torchx("run", "loud.py:app", "--help").stdout.startswith("Runs a shell line.\n")


def test_secrets_are_never_shown() -> None:
    secret = "abcdefgh12345"
    for form in ([], ["-o", "json"], ["-o", "yaml"]):
        shown = torchx(
            "run", "--dryrun", *form, "c.py:app", "--env", f"HF_TOKEN={secret}", f"curl -H {secret}"
        )
        assert shown.returncode == 0
        assert secret not in shown.stdout + shown.stderr
        assert "********" in shown.stdout
    failed = torchx(
        "run", "c.py:app", "--env", f"HF_TOKEN={secret}", "test $$HF_TOKEN = abcdefgh12345 && exit 7"
    )
    assert failed.returncode == 7  # the application itself has it
    handle = failed.stdout.strip()
    for words in (["describe", handle], ["describe", handle, "-o", "json"], ["status", handle, "-o", "json"]):
        assert secret not in torchx(*words).stdout


def test_the_component_of_the_configuration() -> None:
    config("[cli:run]\ncomponent = c.py:app\n")
    assert request_of("--", "--n", "2", "--", "echo", "--epochs", "3") == {
        "app": ["sh", "-c", "echo --epochs 3"]
    }
    assert request_of("--", "--name", "x", "echo") == {"x": ["sh", "-c", "echo"]}
    assert request_of() == {"app": ["sh", "-c", ""]}
    assert request_of("utils.echo") == {"echo": ["echo", "hello world"]}
    assert request_of("--", "utils.echo", "--msg", "x") == {"echo": ["echo", "x"]}


def test_all_words_after_the_component_are_its_own() -> None:
    assert request_of("c.py:app", "--", "-s", "x") == {"app": ["sh", "-c", "-s x"]}
    assert request_of("c.py:app", "x", "-s", "--wait") == {"app": ["sh", "-c", "x -s --wait"]}
    refused = torchx("run", "c.py:app", "--dryrun")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: unknown flag `--dryrun` for c.py:app")


def test_values_come_from_the_nearest_place() -> None:
    config("[component:c.py:app]\nname = conf\nn = 3\n[local_cwd]\nprepend_cwd = true\nlog_dir = /conf\n")
    data = answer(
        "run", "--dryrun", "-o", "json", "-cfg", "log_dir=/typed", "c.py:app", "--name", "typed", "x"
    )
    assert (data["cfg"]["prepend_cwd"], data["cfg"]["log_dir"]) == (True, "/typed")
    assert [(role["name"], role["num_replicas"]) for role in data["app"]["roles"]] == [("typed", 3)]


def test_a_profile(folder: Path) -> None:
    config("[profile:big:component:c.py:app]\nn = 9\n[component:c.py:app]\nn = 2\n")
    plain, big = (
        answer(*words, "run", "--dryrun", "-o", "json", "c.py:app", "x")["app"]["roles"][0]["num_replicas"]
        for words in ([], ["--profile", "big"])
    )
    assert (plain, big) == (2, 9)


def test_workspace_of_configuration_that_cannot_be_used_is_reported() -> None:
    config("[cli:run]\nworkspace = .\n")
    done = torchx("run", "utils.echo")
    assert done.returncode == 0
    assert done.stderr.startswith(
        "note: local_cwd runs in the working directory; the workspace from .torchxconfig line 2 [cli:run] is "
        "ignored without --workspace\n"
    )


@pytest.mark.parametrize(
    ("given", "used"), [([], "."), (["--workspace", ""], None), (["--workspace="], None)]
)
def test_an_empty_workspace_replaces_the_configured_one(given: list[str], used: str | None) -> None:
    config("[cli:run]\nworkspace = .\n")
    data = answer("run", "--dryrun", "-o", "json", "-s", "slurm", *given, "utils.echo")
    workspace = data["app"]["roles"][0]["workspace"]
    assert (workspace is None) == (used is None)


def test_json_on_stdin() -> None:
    requested = {
        "component_name": "c.py:app",
        "scheduler": "local_cwd",
        "scheduler_args": {"prepend_cwd": True},
        "component_args": {"n": 2, "name": "json"},
        "component_args_str": "--name typed echo 'a b'",
        "dryrun": True,
        "parent_run_id": "p",
    }
    done = torchx("run", "--stdin", "-o", "json", stdin=json.dumps(requested))
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    role = data["app"]["roles"][0]
    assert (role["name"], role["num_replicas"], role["args"]) == ("typed", 2, ["-c", "echo a b"])
    assert data["cfg"]["prepend_cwd"] is True
    assert role["env"]["TORCHX_PARENT_RUN_ID"] == "p"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "--stdin takes a JSON object: "),
        ("[]", "--stdin takes a JSON object, got a list"),
        pytest.param("[" * 200_000, "--stdin takes a JSON object: ", id="deep"),
        ('{"component_name": "c.py:app", "scheduler": "local_cwd", "scheduler_args": {}, '
         '"component_args_str": "--msg \\"x"}',
         "`component_args_str` cannot be split: no closing quotation (from --stdin)"),
        ('{"component_name": "utils.echo", "scheduler": "local_cwd", "scheduler_args": {}, '
         '"component_args": {"msg": "\\ud800"}}',
         "role `echo` of application `echo` has '\\ud800' among its arguments or its environment, "),
        ("{}", "`component_name` is missing (from --stdin)\n  e.g. {"),
        (" \n", "--stdin takes a JSON object: stdin is empty\n  e.g. {"),
        ('{"name": "x", "roles": []}', "unknown keys `name`, `roles` (from --stdin)\n  keys: "),
        ('{"app": {"name": "x", "roles": [{"name": "r"}]}}',
         "`app.roles[0].image`, `scheduler` are missing (from --stdin)\n  e.g. torchx describe"),
        ('{"componet_name": 1}',
         "unknown key `componet_name` (from --stdin)\n  did you mean `component_name`?"),
        ('{"component_name": 1}', "`component_name` takes a string, got a number (from --stdin)"),
        ('{"component_name": "utils.echo", "scheduler": "local_cwd", "scheduler_args": {}, '
         '"component_args_str": ["--msg", null]}',
         "`component_args_str[1]` takes a string or true or false or a number, got null (from --stdin)"),
        ('{"scheduler": "local_cwd", "app": null}', "`app` takes an object, got null (from --stdin)"),
        ('{"scheduler": "local_cwd", "app": {"name": null, "roles": null}}',
         "`app.name` takes a string, got null (from --stdin)"),
        ('{"component_name": "c.py:app", "scheduler": "local_cwd", "scheduler_args": {"log_dri": 1}}',
         "unknown run option `log_dri` for local_cwd (from --stdin)\n  did you mean `log_dir`?"),
        ('{"component_name": "c.py:app", "scheduler": "local_cwd", "scheduler_args": {}, '
         '"component_args": {"m": 1}}',
         "unknown argument `m` for c.py:app (from the JSON of --stdin)"),
    ],
)  # fmt: skip
def test_json_that_cannot_be_right(text: str, message: str) -> None:
    done = torchx("run", "--stdin", stdin=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}")


def places(data: Any, path: str = "app") -> Iterator[tuple[str, Any, Any]]:
    """Yields the path of each value in JSON, and its container and key there."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        inner = f"{path}.{key}" if isinstance(data, dict) else f"{path}[{key}]"
        yield inner, data, key
        if isinstance(value, (dict, list)) and not inner.endswith(("metadata", "capabilities", "tags")):
            yield from places(value, inner)


def test_a_wrong_type_anywhere_names_its_key() -> None:
    role = Role("r", "i", entrypoint="e", args=["a"], env={"A": "b"}, port_map={"p": 80})
    role.mounts = [
        BindMount("/a", "/b"),
        VolumeMount("v", "/b"),
        DeviceMount("/a", "/b"),
        TmpfsMount("/b", 1),
    ]
    role.workspace = Workspace({"/w": ""})
    role.resource.devices["d"] = 1
    data: Any = {"scheduler": "local_cwd", "app": app_to_dict(AppDef("a", [role]))}
    checked = 0
    for path, container, key in [*places(data["app"])]:
        kept = container[key]
        wrongs: list[Any] = [None, [None], True, {"x": {}}]
        for wrong in wrongs:
            if isinstance(wrong, dict if isinstance(kept, dict) else type(kept)) and not kept:
                continue
            if wrong is None and key in ("min_replicas", "workspace", "size_mb"):
                continue
            container[key] = wrong
            with pytest.raises(UsageError) as refused:
                from_description(data, None)  # type: ignore[arg-type]  # needed for masked values only
            assert path in refused.value.message, (path, wrong)
            checked += 1
        container[key] = kept
    assert checked > 80
    from_description(data, None)  # type: ignore[arg-type]
    for container, key in ((data["app"]["roles"][0], "!"), (data["app"], "*")):
        container[key] = 1
        with pytest.raises(UsageError, match=r"\.[!*]` is not known"):
            from_description(data, None)  # type: ignore[arg-type]
        del container[key]


def test_flags_beside_stdin_are_refused() -> None:
    done = torchx("run", "--stdin", "-s", "local_cwd", stdin="{}")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: --stdin cannot be combined with -s\n  set it in the JSON; these flags"
    )


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_stdin_that_is_not_utf8_is_named(locale: str) -> None:
    done = subprocess.run(
        [*COMMAND, "run", "--stdin"], input=b'{"component_name": "\xff"}', capture_output=True,
        env=environment({"LC_ALL": locale}),
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: --stdin takes a JSON object: stdin is not UTF-8\n")


def test_a_request_needs_only_a_component() -> None:
    done = torchx("run", "--stdin", "--name", "short", stdin='{"component_name": "utils.echo"}')
    assert (done.returncode, done.stdout.startswith("local_cwd://torchx/short-")) == (0, True)


def test_the_help_of_a_component() -> None:
    done = torchx("run", "c.py:app", "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Runs a shell line.\n")
    assert "--n INT" in done.stdout
    assert json.loads(torchx("run", "c.py:app", "--help", "-o", "json").stdout)
    assert answer("list", "-o", "json") == []


def test_terminal_gets_colour_and_no_wider_lines() -> None:
    shown, code = on_terminal(
        "run", "c.py:pair", "--first", "echo up; exit 1", "--second", "sleep 60", columns=50
    )
    assert code == 1
    assert "\x1b[36mserver/0 │ \x1b[0mup" in shown
    assert "\x1b[31mFAILED\x1b[0m" in shown
    plain, _ = on_terminal(
        "run", "c.py:pair", "--first", "echo up; exit 1", "--second", "sleep 60", env={"NO_COLOR": "1"}
    )
    assert "\x1b" not in plain


def test_a_progress_bar_stays_behind_its_name() -> None:
    shown, _ = on_terminal("run", "c.py:app", r"printf '10%%\r20%%\r30%%\n'", env={"NO_COLOR": "1"})
    assert "app/0 │ 10%\rapp/0 │ 20%\rapp/0 │ 30%\n" in shown


def test_without_unicode() -> None:
    done = torchx("run", "utils.echo", env={"LANG": "C", "LC_ALL": ""})
    assert done.stderr == "echo/0 | hello world\n"


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (
            ["echo hi", "--num_replicas", "2"],
            "  --num_replicas was passed to the program: flags of utils.sh go before its first other "
            "argument, `echo hi`",
        ),
        (["--", "echo hi", "--num_replicas", "2"], ""),
        (["exit 127"], ""),
    ],
)
def test_flag_after_arguments_is_explained_if_no_program_exists(args: list[str], hint: str) -> None:
    done = torchx("run", "-s", "local_cwd", "utils.sh", *args)
    assert done.returncode == 127
    assert done.stderr.endswith(f"\n{hint}\n" if hint else "\n")
    assert ("was passed to the program" in done.stderr) == bool(hint)


@pytest.mark.parametrize(("limit", "note"), [("10", "10 s"), ("7200", "7200 s"), ("10m", ""), ("10s", "")])
@pytest.mark.parametrize("each", [(), ("--each", "msg=1,2")])
def test_a_time_limit_without_a_unit_is_noted(limit: str, note: str, each: tuple[str, ...]) -> None:
    done = torchx("run", "--dryrun", "--time-limit", limit, *each, "utils.echo")
    notes = [line for line in done.stderr.splitlines() if line.startswith("note: --time-limit")]
    assert notes == [f"note: --time-limit {limit} is {note}"] * bool(note)


COMMAND_LINE = (
    "note: several arguments are one command, whose program is `echo hi`; "
    "give a command line as one argument, flags of utils.sh before it, "
    "and flags of torchx run before utils.sh"
)
PROCESS_ID = "note: the shell gets `$$` as `$`; for the process id: `$$$$`"


@pytest.mark.parametrize(
    ("component", "args", "notes"),
    [
        ("utils.sh", ["ls", "--name=x"], []),
        ("utils.sh", ["--", "ls", "--name=x", "--dryrun"], []),
        ("utils.sh", ["ls", "--", "--name=x", "--dryrun"], []),
        ("utils.sh", ["ls", "--color", "--help"], []),
        ("utils.python", ["--script", "a.py", "--", "--name=x"], []),
        ("utils.sh", ["echo hi", "-o", "json"], [COMMAND_LINE]),
        ("utils.sh", ["--", "echo hi", "-o", "json"], [COMMAND_LINE]),
        ("utils.sh", ["--entrypoint", "ls", "echo hi", "x"], []),
        ("utils.sh", ["echo hi"], []),
        ("utils.sh", ["kill $$"], [PROCESS_ID]),
        ("utils.sh", ["--", "echo $$"], [PROCESS_ID]),
        ("utils.sh", ["echo $$$$ $${torchx.app_id} $HOME"], []),
    ],
)  # fmt: skip
def test_notes_about_arguments_of_a_program(component: str, args: list[str], notes: list[str]) -> None:
    done = torchx("run", "--dryrun", component, *args)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == notes


@pytest.mark.parametrize("each", [(), ("--each", "n=1,2")])
@pytest.mark.parametrize("flag", ["--dryrun", "--dryrun=full"])
def test_dryrun_after_arguments_starts_nothing(each: tuple[str, ...], flag: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    done = torchx("run", *each, "utils.sh", "touch", str(made), "{n}", flag)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        f"to see the request: torchx run {flag} utils.sh touch {made} '{{n}}'   to pass it: " in done.stderr
    )
    assert not made.exists()


@pytest.mark.parametrize("flag", ["--cpu", "--gpu", "--memMB"])
def test_a_resource_of_minus_one_is_noted(flag: str) -> None:
    done = torchx("run", "--dryrun", "utils.sh", f"{flag}=-1", "true")
    assert done.stderr == f"note: role `sh` has {flag[2:]}=-1, which requests nothing\n"


@pytest.mark.parametrize("each", [(), ("--each", "num_replicas=1,2")])
@pytest.mark.parametrize("flag", ["--cpu=-2", "--gpu=-4", "--memMB=-1024"])
def test_another_negative_resource_is_an_error(flag: str, each: tuple[str, ...]) -> None:
    done = torchx("run", "--dryrun", *each, "utils.sh", flag, "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"has {flag[2:]}; expected 0 or more, or -1 for no request" in done.stderr


@pytest.mark.parametrize(
    ("name", "used"),
    [("日本語", ""), ("模型-2", "2"), ("a b", "a-b"), ("train", "train"), ("a_b.c", "a_b.c")],
)
def test_a_name_that_the_id_does_not_have(name: str, used: str) -> None:
    done = torchx("run", "--dryrun", "--name", name, "utils.echo")
    contains = f"has `{used}` for the name" if used else "does not contain the name"
    note = f"note: the id {contains} `{name}`: it has only a-z, 0-9, -, _ and ."
    assert done.stderr.splitlines() == [note] * (name != used)
