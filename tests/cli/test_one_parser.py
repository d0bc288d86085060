"""One table of command lines, read by a command, by a component and by completion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from torchx.command_line import ArgumentError
from torchx.discovery import component_of, parse_arguments
from torchx.discovery.call.command_line import parse_command_line
from torchx.errors import UsageError
from torchx.specs import AppDef, runopts
from torchx_cli.app import TYPER
from torchx_cli.command import TorchxCommand
from torchx_cli.completion.complete import Line
from torchx_cli.completion.offers import of_component
from torchx_cli.run_request import typed_options

SOURCE = """
from torchx.specs import AppDef


def flags(
    *args: str, name: str = "", nodes: str = "", s: str = "", q: bool = False, quick: bool = False
) -> AppDef:
    return AppDef("a")
"""

app = typer.Typer(**TYPER)
called: dict[str, Any] = {}


@app.command(cls=TorchxCommand, context_settings={"allow_interspersed_args": False})
def command(
    args: Annotated[list[str] | None, typer.Argument(metavar="ARGS")] = None,
    name: Annotated[str, typer.Option("--name", show_default=False)] = "",
    nodes: Annotated[str, typer.Option("--nodes", show_default=False)] = "",
    s: Annotated[str, typer.Option("--s", "-s", show_default=False)] = "",
    q: Annotated[bool, typer.Option("--q", "-q")] = False,
    quick: Annotated[bool, typer.Option("--quick")] = False,
) -> None:
    called.update(name=name, nodes=nodes, s=s, q=q, quick=quick, args=list(args or ()))


COMMAND: Any = typer.main.get_command(app)


def by_command(args: list[str]) -> tuple[dict[str, str], list[str]]:
    called.clear()
    with COMMAND.make_context("program", list(args)) as ctx:
        COMMAND.invoke(ctx)
    rest = called.pop("args")
    return {k: "true" if v is True else v for k, v in called.items() if v}, rest


def flags(
    *args: str, name: str = "", nodes: str = "", s: str = "", q: bool = False, quick: bool = False
) -> AppDef:
    return AppDef("a")


COMPONENT = component_of(flags)


def by_component(args: list[str]) -> tuple[dict[str, str], list[str]]:
    split = parse_command_line(COMPONENT, args)
    return {name: values[-1] for name, values in split.values().items()}, split.rest


def by_completion(args: list[str]) -> tuple[dict[str, str], list[str]]:
    line = Line(COMMAND, args)
    return {name: values[-1] for name, values in line.values.items()}, line.rest


READ: list[tuple[list[str], dict[str, str], list[str]]] = [
    (["--name", "a", "x", "--name", "b"], {"name": "a"}, ["x", "--name", "b"]),
    (["--name=a=b", "x"], {"name": "a=b"}, ["x"]),
    (["--nodes=--x"], {"nodes": "--x"}, []),
    (["--na", "a", "--no=3"], {"name": "a", "nodes": "3"}, []),
    (["--name", "-5"], {"name": "-5"}, []),
    (["--name", "- a sentence"], {"name": "- a sentence"}, []),
    (["--name", "-"], {"name": "-"}, []),
    (["-sx"], {"s": "x"}, []),
    (["-s=x"], {"s": "x"}, []),
    (["-s", "x"], {"s": "x"}, []),
    (["-qsx", "y"], {"q": "true", "s": "x"}, ["y"]),
    (["-qs", "x", "y"], {"q": "true", "s": "x"}, ["y"]),
    (["--quick", "--", "--name", "x"], {"quick": "true"}, ["--name", "x"]),
    (["--", "--", "x"], {}, ["--", "x"]),
    (["-5", "--name", "x"], {}, ["-5", "--name", "x"]),
    (["-", "-q"], {}, ["-", "-q"]),
    ([], {}, []),
]


@pytest.mark.parametrize("read", [by_command, by_component])
@pytest.mark.parametrize(("args", "values", "rest"), READ)
def test_commands_and_components_agree(
    read: Any, args: list[str], values: dict[str, str], rest: list[str]
) -> None:
    got, remaining = read(args)
    assert ({name: value for name, value in got.items() if value}, remaining) == (values, rest)


@pytest.mark.parametrize(("args", "values", "rest"), READ)
def test_completion_agrees(args: list[str], values: dict[str, str], rest: list[str]) -> None:
    got, remaining = by_completion(args)
    with_value = {name: value for name, value in values.items() if value != "true"}  # a switch has none
    assert ({name: value for name, value in got.items() if value}, remaining) == (with_value, rest)


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["--foo"], "unknown flag `--foo`", ""),
        (["--nme", "x"], "unknown flag `--nme`", "did you mean `--name`?"),
        (["-name", "x"], "unknown flag `-name`", "did you mean `--name`?"),
        (["-n", "x"], "unknown flag `-n`", ""),  # --name or --nodes
        (["--hlp"], "unknown flag `--hlp`", ""),
        (["-z"], "unknown flag `-z`", ""),
        (["-qz"], "unknown flag `-z` in `-qz`", ""),
        (["--n", "x"], "`--n` is ambiguous: --name, --nodes", "write it in full"),
        (["--name", "a", "--name=b"], "--name is given twice; it takes one value", ""),
        (["-s", "a", "--s", "b"], "--s is given twice; it takes one value", ""),
        (["--name"], "--name takes a ", ""),
        (["--name", "--"], "--name takes a ", ""),
        (["--name", "--quick"], "--name takes a ", ""),
        (["-qs"], "-s takes a ", ""),
        (["--name", "-what"], "and `-what` looks like a flag", "if it is the value: --name=-what"),
    ],
)
def test_errors_agree(args: list[str], message: str, hint: str) -> None:
    for read in (by_command, by_component):
        with pytest.raises(ArgumentError) as error:
            read(args)
        assert message in error.value.message
        assert (error.value.hint or "").startswith(hint)
        assert ("did you mean" in (error.value.hint or "")) == ("did you mean" in hint)
    by_completion(args)  # no error, as the line is incomplete


@pytest.mark.parametrize(
    ("args", "current", "offered"),
    [
        ([], "--n", ["--name", "--nodes", "--no-q", "--no-quick"]),
        (["--na=a"], "--na", ["--name"]),
        (["--quick"], "--name", ["--name"]),
        (["script.py"], "--n", []),
        (["--name", "a", "script.py", "x"], "--n", []),
        (["--"], "--n", []),
        (["--name"], "--n", []),
    ],
)
def test_completion_offers_flags_up_to_the_first_positional_argument(
    args: list[str], current: str, offered: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "c.py"
    file.write_text(SOURCE)
    offers = [offer.text for offer in of_component(f"{file}:flags", args, current)]
    assert [text for text in offers if text.startswith(current)] == offered


def lists(
    env: dict[str, str] | None = None,
    tags: list[str] | None = None,
    sizes: tuple[int, ...] = (),
    lr: str = "",
) -> AppDef:
    return AppDef("a")


@pytest.mark.parametrize(
    ("args", "name", "expected"),
    [
        (["--env", "A=1", "--env", "B=2,C=3"], "env", {"A": "1", "B": "2", "C": "3"}),
        (["--env", "A=1", "--env=A=2"], "env", {"A": "2"}),
        (["--tags", "a,b", "--tags", "c"], "tags", ["a", "b", "c"]),
        (["--sizes", "1", "--sizes", "2,3"], "sizes", (1, 2, 3)),
    ],
)
def test_repeated_flags_of_lists_and_mappings_accumulate(
    args: list[str], name: str, expected: object
) -> None:
    assert parse_arguments(component_of(lists), args).values[name] == expected


def test_a_repeated_flag_names_the_wrong_text() -> None:
    with pytest.raises(ArgumentError, match=r'--sizes takes a list .*"x"'):
        parse_arguments(component_of(lists), ["--sizes", "1", "--sizes", "x"])
    assert parse_arguments(component_of(lists), ["--tags=a", "--tags=b"], last_wins=True).values["tags"] == [
        "b"
    ]


def test_repeated_run_options_of_lists_and_mappings_accumulate() -> None:
    opts = runopts()
    opts.add("tags", type_=list[str], help="")
    opts.add("labels", type_=dict[str, str], help="")
    opts.add("queue", type_=str, help="")
    assert typed_options(["tags=a,b,labels=x:1", "labels=y:2", "tags=c;queue=q"], "s", opts) == {
        "tags": ["a", "b", "c"],
        "labels": {"x": "1", "y": "2"},
        "queue": "q",
    }
    with pytest.raises(UsageError, match="`queue` is given twice"):
        typed_options(["queue=a", "queue=b"], "s", opts)
