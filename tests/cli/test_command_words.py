"""How a command line is read: abbreviations, repeated flags, values."""

from __future__ import annotations

import pytest

from torchx_cli.app import build, load
from torchx_cli.command import expand_flags, flag_table


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
        (["--scheduler-args", "a=b", "x"], ["--scheduler_args", "a=b", "--", "x"]),
        (["--parent-run", "p", "x"], ["--parent_run_id", "p", "--", "x"]),
        (["--dry", "-d", "x"], ["--dryrun", "yes", "-d", "--", "x"]),
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
    spelled("-c", "a=b", "--parent=x", "--scheduler-args", "c=d", "y")
    assert capsys.readouterr().err == (
        "note: `-c` was read as `-cfg`\nnote: `--parent` was read as `--parent_run_id`\n"
    )


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
                    assert shown.split()[0] in text


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
