"""The help page of a component: what stands on it, and that it fits."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchx.discovery import Component, component_of, find_component, list_components, parse_arguments
from torchx.discovery.call.build import build_app
from torchx.specs import AppDef
from torchx_cli.terminal import output
from torchx_cli.terminal.component_help import render

PAGE = """\
Trains the digits model on one or more machines.

  --lr FLOAT               learning rate                        default 0.001
  --optimizer              adam | sgd                           default adam
  --data PATH              folder or URL of the data set        required
  --resume / --no-resume   continue from the last checkpoint    default no
  -n, --n INT
  SCRIPT_ARGS…             handed to the script

Flags go before SCRIPT_ARGS: the first of these, or --, ends them.

torchx run -s local_cwd trainer --data path -- ARGS
"""


def trainer(
    *script_args: str,
    lr: float = 0.001,
    optimizer: Literal["adam", "sgd"] = "adam",
    data: Path,
    resume: bool = False,
    n: int | None = None,
) -> AppDef:
    """Trains the digits model on one or more machines.

    Args:
        script_args: handed to the script
        lr: learning rate
        data: folder or URL of the data set
        resume: continue from the last checkpoint
    """
    return AppDef("t")


@dataclass
class Opt:
    """Settings.

    Args:
        lr: how fast
    """

    lr: float
    names: Annotated[list[str], "-ns"]


def grouped(
    opt: Opt,
    very_long_argument_name_indeed: dict[str, str] = {"a": "b" * 30},  # noqa: B006  (never changed)
    x: list[list[int]] | None = None,
) -> AppDef:
    """Groups.

    Example::

        torchx run grouped --opt.lr 1

    Args:
        x: a text that is long enough to be broken into lines on every page that is not very wide at all
    """
    return AppDef("g")


def test_a_page() -> None:
    page = render(component_of(trainer), 80)
    assert re.sub(" +", " ", page) == re.sub(" +", " ", PAGE)
    starts = {
        line.index(word) for line in page.split("\n") for word in ("default ", "required") if word in line
    }
    assert len(starts) == 1


def test_fields_of_dataclass_are_described_by_its_docstring() -> None:
    page = render(component_of(grouped), 100)
    assert re.search(r"--opt\.lr FLOAT +how fast +required", page)
    assert "-ns, --opt.names TEXT,…" in page
    assert "    torchx run grouped --opt.lr 1\n" in page
    assert "--x JSON" in page


def test_the_example_line_is_understood() -> None:
    for component in (component_of(trainer), component_of(grouped)):
        line = render(component, 300).strip().split("\n")[-1]
        words = line.split(f" {component.name} ")[1].split()
        assert parse_arguments(component, words).notes == []


@pytest.mark.parametrize("width", [20, 40, 59, 60, 80, 100, 200])
@pytest.mark.parametrize("name", [info.name for info in list_components()])
def test_no_line_is_wider_than_the_page(name: str, width: int) -> None:
    check_width(find_component(name), width)


@given(st.integers(24, 160), st.sampled_from([trainer, grouped]), st.booleans())
def test_no_line_is_wider_than_any_page(width: int, fn: Callable[..., AppDef], colour: bool) -> None:
    check_width(component_of(fn), width, colour)


def check_width(component: Component, width: int, colour: bool = False) -> None:
    page = render(component, width, colour)
    plain = output.plain(page)
    unbroken = [
        p for p in plain.split("\n") if len(p) > width and len(p.split()) > 1 and not p.endswith("\\")
    ]
    assert not [line for line in unbroken if not line.strip().startswith("torchx run")]
    assert ("\x1b[" in output.shown(page)) == colour
    assert plain == render(component, width)


def test_every_flag_of_a_component_is_on_its_page() -> None:
    for info in list_components():
        component = find_component(info.name)
        page = render(component, 100)
        for parameter in component.parameters:
            assert all(flag in page for flag in parameter.flags)
            assert parameter.help, f"{info.name} says nothing of {parameter.name}"


@pytest.mark.parametrize("name", sorted({info.name for info in list_components()} - {"utils.hydra"}))
def test_example_of_a_built_in_component_is_accepted(name: str) -> None:
    example = render(find_component(name), 500).rstrip().rpartition("\n")[2]
    arguments = parse_arguments(find_component(name), shlex.split(example)[5:])
    assert build_app(find_component(name), arguments).roles


def test_a_long_word_fits_a_narrow_window() -> None:
    assert max(map(len, render(find_component("utils.python"), 60).splitlines())) <= 60


def test_a_component_without_a_docstring() -> None:
    def bare(n: int = 3) -> AppDef:
        return AppDef("b")

    assert render(component_of(bare), 80) == (
        "bare: no description\n\n  -n, --n INT     default 3\n\ntorchx run -s local_cwd bare\n"
    )
