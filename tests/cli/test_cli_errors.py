"""A museum of command lines that cannot work: one clear error each, the exit code, and nothing started."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest
from program import COMMAND, environment

from torchx.runner import get_runner
from torchx_cli.main import main

USAGE = [
    ("run -s local_cwd -cfg log_dri=/tmp/x utils.echo",
     "error: unknown run option `log_dri` for local_cwd (from -cfg)\n"
     "  did you mean `log_dir`?   all options: torchx runopts local_cwd"),
    ("run -cfg prepend_cwd=perhaps utils.echo",
     'error: run option `prepend_cwd` takes bool, got "perhaps" (from -cfg)\n'
     "  true or false   all options: torchx runopts local_cwd"),
    ("run -cfg partition=gpu utils.echo",
     "error: unknown run option `partition` for local_cwd (from -cfg)\n"
     "  a run option of slurm: -s slurm -cfg partition=VALUE   all options: torchx runopts local_cwd"),
    ("run -cfg log_dir:/tmp utils.echo",
     "error: -cfg takes KEY=VALUE, got `log_dir:/tmp`\n  did you mean `-cfg log_dir=/tmp`?"),
    ("port x/web 8080:80",
     "error: PORT is one port, got `8080:80`\n  the local port comes last: torchx port x/web 80 8080"),
    ("wait --for condition=Ready x",
     "error: --for takes a condition, got `condition=Ready`\n  did you mean `ready`?"),
    ("run --warn-before 5x utils.echo", "error: --warn-before is `5x`, expected a duration"),
    ("run --notice=5x utils.echo", "error: --notice is `5x`, expected a duration"),
    ("run --stall 1m --progress ( utils.echo", "error: --progress is `(`, not a valid pattern"),
    ("run --retry-on 300 utils.echo", "error: --retry-on has `300`, expected an exit code"),
    ("run --no-wait -s slurm utils.echo", "error: --no-wait does not work with slurm, which has no queue"),
    ("run -cfg notice=5x utils.echo", "error: run option `notice` is `5x`, expected a duration"),
    ("run -cfg log_dir=a -cfg log_dir=b utils.echo", "error: run option `log_dir` is given twice"),
    ("run -cfg grace_period=nan utils.echo", "error: run option `grace_period` of local_cwd is nan"),
    ("run -cfg grace_period=1e12 utils.echo",
     "error: run option `grace_period` of local_cwd is 1000000000000.0, expected a number from 0 to 1,000,"),
    ("run -cfg retry_backoff=-1 utils.echo", "error: run option `retry_backoff` of local_cwd is -1.0"),
    ("run -cfg =x utils.echo", "error: `=x` does not begin with a `key=value` pair (from -cfg)"),
    ("run utils.echo extra", 'error: utils.echo takes flags only, got "extra"'),
    ("run utils.echo --num_replicas many", 'error: --num_replicas takes an int, got "many"'),
    ("run no.such.module:app", "error: no module `no.such.module`"),
    ("run :app", "error: `:app` is not a component name"),
    ("status ://", "error: `://` is not an application handle"),
    ("status local_cwd://torchx/", "error: `local_cwd://torchx/` is not an application handle"),
    ("log x/r/5-1", "error: `5-1` in `x/r/5-1` is not a replica id"),
    ("log --tail 100 x", "error: unexpected argument `100`\n  for the last lines: -n 100"),
    ("log --follow=9 x", 'error: --follow takes no value, got "9"\n  for the last lines: -n 9'),
    ("attach --tail 9 x", "error: unknown flag `--tail`\n  did you mean `-n`?"),
    ("log x/", "error: `x/` names no logs"),
    ("run -s local_cw utils.echo",
     "error: unknown scheduler `local_cw`\n"
     "  did you mean `local_cwd`?   all schedulers: local_cwd, "),
    ("run -s local_cwd -s local_cwd utils.echo", "error: -s is given twice; it takes one value"),
    ("run utils.ehco", "error: no component `utils.ehco`\n  did you mean `utils.echo`?"),
    ("run utils.echo --mgs hi", "error: unknown flag `--mgs` for utils.echo\n  did you mean `--msg`?"),
    ("run", "error: no component given\n  e.g. torchx run utils.echo --msg hi"),
    ("run -- --msg hi", "error: expected a component, got `--msg`"),
    ("run --msg hi", "error: unknown flag `--msg`"),
    ("run --workspace nowhere utils.echo", "error: workspace `nowhere`"),
    ("run --detach --wait utils.echo", "error: --detach cannot be combined with --wait"),
    ("run -o xml utils.echo", "error: -o takes text, json or yaml, got `xml`"),
    ("run -s", "error: -s takes NAME, got nothing"),
    ("run -s '' utils.echo",
     'error: -s takes NAME, got ""\n  leave it out for the default; is a variable of your shell empty?'),
    ("run -cfg log_dir=/a,log_dir=/b utils.echo", "error: run option `log_dir` is given twice (from -cfg)"),
    ("run utils.sh", "error: utils.sh: nothing to run; add a command, as in utils.sh 'nvidia-smi | head'"),
    ("run utils.sh ''", "error: utils.sh: nothing to run; add a command"),
    ("run dist.torchrun -j 0 --script a.py",
     'error: dist.torchrun: -j takes [MIN:]NODESxPROCESSES, each at least 1 and MIN at most NODES; got "0"'),
    ("run --each lr= utils.echo",
     "error: the parameter `lr` has no values (from --each)\n  list them, as in --each lr=1,2,3"),
    ("run --each @runs.csv utils.echo",
     "error: runs.csv (from --each) cannot be read: No such file or directory\n  looked for /"),
    ("run --env-file no-such-file utils.echo",
     "error: no-such-file (from --env-file) cannot be read: No such file or directory\n  looked for /"),
    ("run utils.python --script no-such.py",
     "error: the script `no-such.py` of role `python` does not exist in /"),
    (f"run --name {'n' * 300} utils.echo",
     "error: the name of the application `nnnnnnnnnnnnnnnnnnnnnnnn…` is too long for a file: 300 bytes\n"
     "  shorten it to 200 or less"),
    ("events ''", "error: an argument is empty\n  is a variable of your shell empty?"),
    ("runopts ''", "error: an argument is empty"),
    ("run --dryrun=all utils.echo", 'error: --dryrun takes full or no value, got "all"'),
    ("rnu utils.echo", "error: unknown command `rnu`\n  did you mean `run`?   all commands: torchx --help"),
    ("ps", "error: unknown command `ps`\n  did you mean `list`?"),
    ("logs @last", "error: unknown command `logs`\n  did you mean `log`?"),
    ("sacct", "error: unknown command `sacct`\n  did you mean `list`?"),
    ("sinfo", "error: unknown command `sinfo`\n  did you mean `doctor`?"),
    ("schedulers", "error: unknown command `schedulers`\n  did you mean `runopts`?"),
    ("gpus", "error: unknown command `gpus`\n  did you mean `queue`?"),
    ("up", "error: unknown command `up`\n  did you mean `run`?"),
    ("down x", "error: unknown command `down`\n  did you mean `cancel`?"),
    ("debug x", "error: unknown command `debug`\n  did you mean `why`?"),
    ("rm x", "error: unknown command `rm`\n  did you mean `delete`?"),
    ("kill x", "error: unknown command `kill`\n  did you mean `cancel`?"),
    ("ls", "error: unknown command `ls`\n  did you mean `list`?"),
    ("inspect x", "error: unknown command `inspect`\n  did you mean `describe`?"),
    ("--log_level loud list", "error: --log_level takes one of DEBUG, INFO, "),
    ("--foo", "error: unknown flag `--foo`\n  see: torchx --help"),
    ("status", "error: missing argument `HANDLE`\n  the newest application: torchx status @last   see: "),
    ("run bash train.sh", "error: no component `bash`\n  to run it: torchx run utils.sh bash train.sh"),
    ("run --each lr=1,2 utils.python --script x.py",
     "error: unknown argument `lr` for utils.python (from --each)\n"
     "  for the program: use {lr} in the arguments, e.g. --lr={lr}   "),
    ("rerun x --lr 3", "error: unknown flag `--lr`\n  to change an argument: --set FLAG=VALUE   "),
    ("list --running", "error: unknown flag `--running`\n  did you mean `--state running`?"),
    ("status a/b", "error: `a/b` is not an application handle\n  a handle reads SCHEDULER://SESSION/APP_ID"),
    ("status nowhere://torchx/x", "error: unknown scheduler `nowhere`"),
    ("status a b", "error: unexpected argument `b`"),
    ("log x/r/y", "error: `y` in `x/r/y` is not a replica id"),
    ("log x -n many", "error: -n takes a whole number, got `many`"),
    ("log x --since tomorrow", "error: --since takes a time, got `tomorrow`"),
    ("log x --regex (", "error: --regex takes a pattern, got `(`"),
    ("log x --streams both", "error: --streams takes stdout, stderr or combined, got `both`"),
    ("list -cfg a=b", "error: -cfg requires -s, as options belong to one scheduler"),
    ("list -s nowhere", "error: unknown scheduler `nowhere`"),
    ("runopts nowhere", "error: unknown scheduler `nowhere`"),
    ("configure -s nowhere", "error: unknown scheduler `nowhere`"),
    ("builtins --print utils.ehco", "error: no component `utils.ehco`"),
    ("lint missing.py", "error: "),
    ("--profile big run utils.echo", "error: unknown profile `big` (from --profile)"),
]  # fmt: skip

STATE = [
    ("status local_cwd://torchx/nope", "error: there is no application `local_cwd://torchx/nope`"),
    (
        f"status local_cwd://torchx/{'x' * 300}",
        f"error: there is no application `local_cwd://torchx/{'x' * 300}`\n  all applications: torchx list",
    ),
    (f"log local_cwd://torchx/{'x' * 300}", "error: there is no application `local_cwd://torchx/xx"),
    ("cancel local_cwd://torchx/../../etc", "error: there is no application `local_cwd://torchx/../../etc`"),
    ("log local_cwd://torchx/nope/role/0", "error: there is no application `local_cwd://torchx/nope`"),
    ("cancel local_cwd://torchx/nope", "error: there is no application `local_cwd://torchx/nope`"),
    ("delete local_cwd://torchx/nope", "error: there is no application `local_cwd://torchx/nope`"),
    ("describe local_cwd://torchx/nope", "error: there is no application `local_cwd://torchx/nope`"),
    ("status @lst", "error: there is no application `@lst`\n  did you mean `@last`?"),
    ("status @last", "error: no application is known for @last\n  all applications: torchx list"),
]

UNREACHED = [f"status {'x' * 300}", "status nope", "log nope", "cancel nope"]
"""What a Docker engine might have that does not answer: `conftest` names one."""


def check(line: str, message: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(line)) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(message), output.err
    assert "Traceback" not in output.err
    with get_runner() as runner:
        assert runner.list("local_cwd") == []


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("line", "message"), USAGE)
def test_what_cannot_be_right(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(line, message, 2, capsys)


@pytest.mark.parametrize("values", ["[1,2", "[", "[a,b]"])
def test_values_in_brackets_are_a_json_list(values: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--each", f"lr={values}", "utils.sh", "echo {lr}"]) == 2
    assert f"the values `{values}` of `lr` are not a JSON list (from --each)" in capsys.readouterr().err


def test_a_value_that_needs_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    setup = "module load x; export A=1"
    command = ["run", "-s", "slurm", "--dryrun", "utils.echo"]
    assert main([*command[:3], "-cfg", f"setup={setup}", *command[3:]]) == 2
    assert capsys.readouterr().err == (
        "error: unknown run option `export A` for slurm (from -cfg)\n"
        "  quote a value with `=` after `,` or `;`: -cfg 'NAME=\"VALUE\"'\n"
    )
    assert main([*command[:3], "-cfg", f'setup="{setup}"', *command[3:]]) == 0


@pytest.mark.parametrize(("line", "message"), STATE)
def test_what_is_not_there(line: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(line, message, 1, capsys)


@pytest.mark.parametrize("line", UNREACHED)
def test_what_may_be_where_no_engine_answers(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(line, "error: local_docker did not answer: no Docker engine answers at unix://", 69, capsys)


def test_an_outage_is_reported_once_for_several_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"local_docker://torchx/none-{number}" for number in range(3)]
    assert main(["cancel", *names]) == 69
    assert capsys.readouterr().err.count("error: no Docker engine answers at ") == 1
    assert main(["cancel", "-o", "json", *names]) == 69
    assert [row["error"]["exit_code"] for row in json.loads(capsys.readouterr().out)] == [69] * 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[local_cwd]\nlog_dri = x\n",
            "error: .torchxconfig line 2 [local_cwd]: unknown run option `log_dri` for local_cwd",
        ),
        (
            "[local_cwd]\nprepend_cwd = x\n",
            'error: .torchxconfig line 2 [local_cwd]: `prepend_cwd` takes bool, got "x"\n  true or false',
        ),
        ("[local]]\n[cli\n", "error: .torchxconfig line 2: expected a section `[name]`, got `[cli`"),
        ("[cli:run]\nschedule = x\n", "error: .torchxconfig line 2 [cli:run]: unknown key `schedule`"),
        (
            "[component:utils.echo]\nmgs = x\n",
            "error: unknown argument `mgs` for utils.echo (from .torchxconfig line 2 [component:utils.echo])",
        ),
    ],
)
def test_a_configuration_that_cannot_be_right(
    text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(".torchxconfig").write_text(text, encoding="utf-8")
    check("run utils.echo", message, 2, capsys)


HEAD = "import torchx.specs as specs\n\n\ndef app() -> specs.AppDef:\n    return "


@pytest.mark.parametrize(
    ("app", "message"),
    [
        ('specs.AppDef("a", [])', "error: application `a` has no roles, so there is nothing to run"),
        ('specs.AppDef("a", [specs.Role("r", "")])', "error: role `r` of application `a` has no entrypoint"),
        (
            'specs.AppDef("a", [specs.Role("r", "", entrypoint="sh", num_replicas=0)])',
            "error: role `r` of application `a` needs at least one replica, got num_replicas=0",
        ),
        (
            'specs.AppDef("a", [specs.Role("r", "", entrypoint="sh")] * 2)',
            "error: application `a` has two roles of the name `r`",
        ),
        (
            'specs.AppDef("a", [specs.Role("r", "", entrypoint="sh", args=[5])])',
            "error: role `r` of application `a` has 5 among its arguments or its environment, expected",
        ),
        (
            'specs.AppDef("a", [specs.Role("r", "", entrypoint="sh", env={"A": 5})])',
            "error: role `r` of application `a` has 5 among its arguments or its environment, expected",
        ),
        (
            'specs.AppDef("a", [specs.Role("r", "", entrypoint="nope")])',
            "error: role `r` cannot be started: no program `nope` on PATH",
        ),
        (
            'specs.AppDef("a", [specs.Role("r", "", entrypoint="./mine.py")])',
            "error: role `r` cannot be started: ",
        ),
        (
            'specs.AppDef("a", [specs.Role("r", "", entrypoint="/tmp")])',
            "error: role `r` cannot be started: /tmp is a folder",
        ),
        (
            'specs.AppDef("a" * 300, [specs.Role("r", "", entrypoint="sh")])',
            "error: the name of the application `aaaaaaaaaaaaaaaaaaaaaaaa…` is too long for a file",
        ),
        (
            'specs.AppDef("a", [specs.Role("r" * 300, "", entrypoint="sh")])',
            "error: the name of the role `rrrrrrrrrrrrrrrrrrrrrrrr…` is too long for a file",
        ),
    ],
)
def test_an_application_that_cannot_run(app: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(f"{HEAD}{app}\n", encoding="utf-8")
    check("run mine.py:app", message, 2, capsys)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"def app(:\n", "error: mine.py:1:"),
        (b"\xff\xfe bad", "error: mine.py:1:"),
        (None, "error: no file `mine.py`"),
    ],
)
def test_a_component_file_that_cannot_be_read(
    content: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        Path("mine.py").write_bytes(content)
    check("run mine.py:app", message, 2, capsys)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[local_cwd\nx", b"no section\n"])
def test_a_configuration_that_cannot_be_read(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path(".torchxconfig").write_bytes(content)
    assert main(["run", "utils.echo"]) == 2
    shown = capsys.readouterr()
    assert "\nerror: .torchxconfig" in f"\n{shown.err}"
    assert main(["list"]) == 0  # needs no configuration
    assert capsys.readouterr().err.startswith("note: .torchxconfig")


@pytest.mark.parametrize("line", ["run utils.echo", "lint x.py", "run c.py:app"])
def test_a_working_directory_that_is_gone(line: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    command = f"cd {gone}; rmdir {gone}; exec {shlex.join(COMMAND)} {line}"
    gone.mkdir()
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment(), timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "error: the working directory does not exist: it has been removed\n  cd to another folder first\n"
    )


def test_a_traceback_is_shown_when_it_is_requested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debug", "status", "local_cwd://torchx/nope"]) == 1
    output = capsys.readouterr().err
    assert "Traceback" in output
    assert "\n  all applications: torchx list" in output


def test_a_component_that_fails_points_into_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text(
        "import torchx.specs as specs\n\n\ndef app(n: int = 1) -> specs.AppDef:\n    return 1 / (n - 1)\n",
        encoding="utf-8",
    )
    check(
        "run mine.py:app",
        "error: mine.py:app failed: ZeroDivisionError: division by zero  (mine.py:5",
        2,
        capsys,
    )


def test_a_defect_is_reported_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torchx_cli.commands.tools.runopts

    def broken(opts: object) -> list[object]:
        raise KeyError("lost")

    monkeypatch.setattr(torchx_cli.commands.tools.runopts, "say", broken)
    assert main(["runopts", "local_cwd"]) == 1
    assert capsys.readouterr().err == (
        "error: KeyError: 'lost'\n  this is a bug in torchx; for a traceback: torchx --debug ...\n"
    )
