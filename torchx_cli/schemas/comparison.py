"""The output of `torchx diff`, as types."""

from __future__ import annotations

from typing import Annotated, TypedDict

from torchx_cli.schemas.applications import Identity
from torchx_cli.schemas.keys import AppName, AppState, SubmittedAt


class Compared(Identity):
    """One of two compared applications."""

    name: AppName
    state: AppState
    submitted_at: SubmittedAt


class DiffValue(TypedDict):
    """A value that two applications do not share."""

    name: Annotated[str, "the name of the value"]
    a: Annotated[str | None, "the value of the first application; null without one"]
    b: Annotated[str | None, "the value of the second application; null without one"]
    measured: Annotated[bool, "whether it is a measurement, which differs from run to run"]


class DiffSection(TypedDict):
    """One part of a comparison."""

    name: Annotated[str, "the part: arguments, program, run options, environment, ..."]
    equal: Annotated[
        bool | None, "whether all values are equal, apart from measurements; null if not compared"
    ]
    missing: Annotated[str | None, "why it is not compared"]
    differences: Annotated[list[DiffValue], "the values that differ"]
    notes: Annotated[list[str], "values that could not be compared, one sentence each"]


class SourceDiff(TypedDict):
    """The differences of the source files."""

    text: Annotated[str, "a unified diff"]
    missing: Annotated[list[str], "the parts that could not be compared, one sentence each"]


class Comparison(TypedDict):
    """The comparison of two applications."""

    a: Annotated[Compared, "the first application"]
    b: Annotated[Compared, "the second application"]
    equal: Annotated[bool, "whether they are equal, apart from measurements"]
    sections: Annotated[list[DiffSection], "the parts of the comparison"]
    source_diff: Annotated[SourceDiff | None, "the differences of the source files; null without --source"]
