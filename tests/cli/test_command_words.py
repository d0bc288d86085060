"""How a command line is read: abbreviations, repeated flags, values."""

from __future__ import annotations

import pytest

from torchx.command_line import ArgumentError
from torchx.errors import RunOptionError
from torchx.settings import POLICIES
from torchx.specs import runopts
from torchx_cli.app import build, load
from torchx_cli.command import expand_flags, flag_table
from torchx_cli.flags import OLDER_SPELLINGS
from torchx_cli.rule_flags import LACKS, flag_of, flag_options


def spelled(*words: str, command: str = "run") -> list[str]:
    loaded = load(command)
    params = loaded.params
    return list(expand_flags(list(words), flag_table(params, command != "run", f"torchx {command}")))


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["-s", "x", "a.b", "-s", "y"], ["-s", "x", "--", "a.b", "-s", "y"]),
        (["-sx", "a"], ["-s", "x", "--", "a"]),
        (["-s=x", "a"], ["-s", "x", "--", "a"]),
        (["--scheduler=x=y", "a"], ["--scheduler", "x=y", "--", "a"]),
        (["-cfg", "a=b", "-cfg=c=d", "x"], ["-cfg", "a=b", "-cfg", "c=d", "--", "x"]),
        (["-c", "a=b", "x"], ["-cfg", "a=b", "--", "x"]),
        (["--work", "x", "a"], ["--workspace", "x", "--", "a"]),
        (["--scheduler-args", "a=b", "x"], ["-cfg", "a=b", "--", "x"]),
        (["--parent-run-id", "p", "x"], ["--parent_run_id", "p", "--", "x"]),
        (
            ["--no-wait", "--notice=5m", "--buck-target", "p", "x"],
            ["--no-queue", "--warn-before", "5m", "--workspace", "p", "--", "x"],
        ),
        (["--dry", "-d", "x"], ["--dryrun", "short", "-d", "--", "x"]),
        (["--dryrun=", "x"], ["--dryrun", "short", "--", "x"]),
        (["--dryrun=full", "x"], ["--dryrun", "full", "--", "x"]),
        (["-ds", "x", "a"], ["-d", "-s", "x", "--", "a"]),
        (["-s=--", "--", "-j", "1"], ["-s", "--", "--", "-j", "1"]),
        (["-", "-x"], ["--", "-", "-x"]),
    ],
)
def test_words_are_spelled_out(given: list[str], read: list[str]) -> None:
    assert spelled(*given) == read


def test_flags_after_the_handle_are_read_too() -> None:
    assert spelled("h", "-fn5", "--time", command="log") == ["-f", "-n", "5", "--timestamps", "--", "h"]


def test_an_abbreviation_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    spelled("-c", "a=b", "--work=x", "--scheduler-args", "c=d", "y")
    assert capsys.readouterr().err == (
        "note: `-c` was read as `-cfg`\nnote: `--work` was read as `--workspace`\n"
    )


def test_older_spellings_work_unlisted() -> None:
    params = load("run").params
    table = flag_table(params, False, "torchx run")
    with build().make_context("torchx", ["run"]) as ctx:
        text = load("run").get_help(load("run").make_context("run", [], parent=ctx, resilient_parsing=True))
    for spelling in (*OLDER_SPELLINGS, "--parent_run_id", "--tee_logs"):
        assert table.split(
            [spelling, "x"] if spelling not in ("--no-wait", "--tee_logs") else [spelling]
        ).hits
        assert f"{spelling} " not in text
    for short in ("--notic", "--no-wai", "--buck-targ", "--parent_run", "--tee_log"):
        with pytest.raises(ArgumentError):
            table.split([short, "x"])


def test_a_missing_run_option_is_named_by_its_flag() -> None:
    spellings = sorted(spelling for param in load("run").params for spelling in param.opts)
    for names in LACKS:
        for name in names:
            with pytest.raises(RunOptionError, match=name):
                flag_options({name: "x"}, "slurm", runopts())
            flag = flag_of(name, spellings)
            assert flag in spellings or (flag, name) == ("", POLICIES)


def test_the_flags_of_run_are_in_groups() -> None:
    with build().make_context("torchx", ["run"]) as ctx:
        text = load("run").get_help(load("run").make_context("run", [], parent=ctx, resilient_parsing=True))
    titles = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == [
        "Arguments",
        "Program and files",
        "Scheduler",
        "Attached or not",
        "Sweeps and order",
        "Failures and stalls",
        "Time limits and checkpoints",
        "Notifications",
        "Record",
        "Output",
    ]
    assert text.count("\n    torchx run ") == 3
    assert max(map(len, text.splitlines())) <= 80


def test_every_command_can_be_loaded_and_has_help() -> None:
    program = build()
    with program.make_context("torchx", ["status", "x"]) as ctx:
        for name in program.list_commands(ctx):
            command = program.get_command(ctx, name)
            with command.make_context(name, [], parent=ctx, resilient_parsing=True) as own:
                text = command.get_help(own)
                assert command.help, name
                for param in command.get_params(own):
                    shown = getattr(param, "help", None)
                    assert shown, f"{name} {param.opts} has no help"
                    assert shown.split()[0] in text or param.hidden


def test_flags_take_text_or_nothing() -> None:
    """Anything else would go through pydantic, which takes longer to import than a command to run."""
    for name in (
        "run",
        "status",
        "log",
        "list",
        "cancel",
        "delete",
        "describe",
        "runopts",
        "builtins",
        "lint",
    ):
        for param in load(name).params:
            descriptor = getattr(param, "type_descriptor", None)
            if descriptor is not None:
                assert descriptor.annotation in (str, bool, list[str]), (name, param.name)
