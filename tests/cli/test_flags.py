"""The flags of all commands: one meaning each, and no part of a flag that ends or removes something."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from torchx.command_line import ArgumentError, same
from torchx_cli.app import COMMANDS, load
from torchx_cli.command import EXACT_COMMANDS, EXACT_FLAGS, expand_flags, flag_table

MEANINGS = """
--after              start when other applications have ended
-a --all             all applications or options
--all-users          applications of other users too
--allow              tools that change something
--any                the first one is enough
--artifact           only this artifact
--as                 the name of the copy
--as-it-was          with the recorded source
--at-once            at most so many runs at the same time
--avoid-bad-nodes    without the nodes on which replicas have failed
--best               the run to show
--checkpoint-dir     folder for checkpoints
--columns            columns of the table
-d --detach          return after the submission
--dryrun             show what would be done
--each               run once for each value
--env                a variable
--env-file           a file with variables
--everywhere         applications that were submitted from elsewhere too
--exit-code          differences make the exit code 1
--failed             only what failed
--fold               equal lines once
-f --follow          continue with new output
--for                the condition to wait for
--force              although something is in the way
--gpus               only the GPUs
--home               the state home there
--json               the same as -o json
--keep               keep the last ones
-n --lines           at most so many
--log                stream the logs
--mask               secrets of the output too
--metric             a metric from the logs
--name               the name of applications
--native             frames of compiled code too
--no-prefix          lines without the replica
--no-queue           fail instead of queueing
--no-retry-on        failures that are never retried
--note               a note
--notify             a target of notifications
--notify-on          kinds of notifications
--older-than         minimum age
--on-stall           the reaction to a stall
--straggler          the steps by which a slow rank is behind
--once               at most one application of this name
-o --output          the form of the output
--parent-run-id --parent_run_id  the parent run
--plain              plain text
--preflight          a check before the program
--print              print it, and do nothing else
--priority           the place in the queue
--progress-regex     pattern of the lines that count as progress
--python             the Python there
-q --quiet           handles only
--rank               only these ranks
--ranks              torchrun's ranks
--regex              only lines that match
--replace            replace an entry of the same name
--requeue            start again after these causes
--resume             continue an interrupted copy
--retry-on           failures to retry
--roles              only these roles
-s --scheduler --schedulers  the scheduler
--secret             a secret variable
--set                another value of an argument
--show               only these replicas
--since              only what is newer
--sort               the order
--source             the recorded source
--stall              the time without progress
--state              only these states
-i --stdin           read stdin
--streams            the streams of the log
--tag                a tag
-t --tail            the same as --follow
--tee_logs           the replica before each line
--time-limit         the time of the application
--timeout            the time that the command waits
--timestamps         the time before each line
--until              only what is older
-v --verbose         all details
--wait               wait until the end
--warn-before        notify the programs before the time limit
-w --watch           repeat until the application has ended
--workspace          the folders to copy
-y --yes             no confirmation
--zip                combine values in order
-cfg                 run options of the scheduler
"""


def commands() -> Iterator[tuple[str, list[Any], bool]]:
    """Yields each command with its flags and whether these may follow an argument."""

    def below(name: str, command: Any) -> Iterator[tuple[str, list[Any], bool]]:
        for inner, each in getattr(command, "commands", {}).items():
            yield from below(f"{name} {inner}", each)
        if not getattr(command, "commands", {}):
            params = [param for param in command.params if param.param_type_name == "option"]
            yield name, params, True

    for name in COMMANDS:
        yield from below(name, load(name))


def meanings() -> dict[str, int]:
    """Returns the number of the meaning of each spelling."""
    found: dict[str, int] = {}
    for number, line in enumerate(MEANINGS.strip().split("\n")):
        for word in line.partition("  ")[0].split():
            assert word not in found, f"{word} has two meanings"
            found[word] = number
    return found


def test_each_flag_has_one_meaning() -> None:
    known, used = meanings(), set()
    for command, params, _ in commands():
        for param in params:
            spellings = [*param.opts, *param.secondary_opts]
            used |= {*spellings}
            assert len({known[each] for each in spellings}) == 1, f"{command}: {spellings}"
    assert used == {*known}


def test_flag_takes_value_in_all_commands_or_in_none() -> None:
    kinds: dict[str, dict[bool, list[str]]] = {}
    for command, params, _ in commands():
        for param in params:
            for spelling in param.opts:
                takes = not getattr(param, "is_flag", False)
                kinds.setdefault(spelling, {}).setdefault(takes, []).append(command)
    both = {spelling for spelling, by_kind in kinds.items() if len(by_kind) > 1}
    assert both == {
        "--dryrun",
        "--print",
        "--watch",
    }  # run --dryrun=full, builtins --print NAME, stacks --watch S


EMPTY_MEANS_NONE = ("--workspace", "--parent_run_id", "--note")


def test_no_flag_takes_an_empty_value() -> None:
    for command, params, _ in commands():
        table = flag_table(params, True, f"torchx {command}")
        for param in params:
            if getattr(param, "is_flag", False) or param.opts[0] in (*EMPTY_MEANS_NONE, "--dryrun"):
                continue
            for value in ["", " ", *[", ,"] * ("," in (param.metavar or ""))]:
                with pytest.raises(ArgumentError) as caught:
                    list(expand_flags([param.opts[0], value], table, command.split(" ")[-1]))
                assert f'{param.opts[0]} takes {param.metavar}, got "{value}"' in caught.value.message


@pytest.mark.parametrize("flag", EMPTY_MEANS_NONE)
def test_an_empty_value_may_mean_none(flag: str) -> None:
    params = next(params for command, params, _ in commands() if command == "run")
    assert [*expand_flags([flag, ""], flag_table(params, False, "torchx run"), "run")] == [flag, ""]


def is_read(command: str, params: list[Any], text: str) -> str:
    """Returns the flag as which a command reads a text, or an empty string."""
    try:
        return flag_table(params, True, f"torchx {command}").find(text, []).spelling
    except ArgumentError:
        return ""


def test_whole_flag_is_never_read_as_part_of_another() -> None:
    for command, params, _ in commands():
        own = {same(spelling) for param in params for spelling in (*param.opts, *param.secondary_opts)}
        for spelling in meanings():
            if spelling.startswith("--") and same(spelling) not in own:
                assert is_read(command, params, spelling) == "", f"{command} {spelling}"


def parts(spelling: str) -> Iterator[str]:
    for length in range(3, len(spelling)):
        yield spelling[:length]


@pytest.mark.parametrize("name", EXACT_COMMANDS)
def test_a_command_that_removes_takes_whole_flags(name: str) -> None:
    for command, params, _ in commands():
        if command == name:
            whole = {spelling for param in params for spelling in (*param.opts, *param.secondary_opts)}
            for spelling in whole:
                for part in parts(spelling):
                    assert part in whole or is_read(command, params, part) == "", f"{command} {part}"


def test_flags_that_end_or_replace_something_are_whole() -> None:
    for command, params, _ in commands():
        for param in params:
            if param.opts[0] in EXACT_FLAGS:
                for part in parts(param.opts[0]):
                    assert is_read(command, params, part) != param.opts[0], f"{command} {part}"
