"""The JSON output of the commands that concern no application, as types."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class RunOption(TypedDict):
    """A run option of a scheduler, or an argument of a component."""

    name: str
    """the name of the option"""
    type: str
    """the type of the value"""
    required: bool
    """whether it must be set"""
    default: Any
    """the default"""
    help: str
    """the meaning of the option"""


class ListedComponent(TypedDict):
    """A component in the output of `torchx builtins`."""

    name: str
    """the name of the component"""
    description: str
    """one line about it"""
    origin: str
    """the origin of the component"""
    path: str | None
    """the file"""
    line: int | None
    """the line in the file, from 1"""
    problems: list[str]
    """why it cannot be run"""


class ComponentHelp(TypedDict):
    """The output of `torchx run --json COMPONENT --help`."""

    name: str
    """the component"""
    description: str
    """its purpose"""
    arguments: list[RunOption]
    """its arguments; `*NAME` for those that follow the flags"""


class LintProblem(TypedDict):
    """A problem of a component."""

    path: str
    """the file"""
    line: int
    """the line, from 1"""
    char: int
    """the column, from 1"""
    name: str
    """the component"""
    severity: str
    """the severity"""
    description: str
    """the problem"""


class LintResult(TypedDict):
    """The output of `torchx lint`."""

    checked: int
    """the number of checked components"""
    fine: int
    """the number of components without problems"""
    problems: list[LintProblem]
    """the problems"""


class ConfigValue(TypedDict):
    """A value of the configuration."""

    section: str
    """the section"""
    key: str
    """the key"""
    value: str
    """the value; secrets are masked"""
    effective: bool
    """false if another file or a profile overrides it"""
    profile: str | None
    """the profile of the section"""
    origin: str
    """the place of the value, for display; default for a default"""
    file: str | None
    """the file; null for a default"""
    line: int | None
    """the line in the file; null for a default"""


class ConfigProblem(TypedDict):
    """A problem of the configuration."""

    message: str
    """the problem"""
    hint: str | None
    """the next step"""


class IgnoredFile(TypedDict):
    """A configuration file that is not used."""

    file: str
    """the file"""
    why: str
    """the reason"""


class ConfigResult(TypedDict):
    """The output of `torchx config show`."""

    files: list[str]
    """the files in use, highest precedence first"""
    values: list[ConfigValue]
    """the values"""
    problems: list[ConfigProblem]
    """the problems of the files"""
    passed_over: list[IgnoredFile]
    """ignored files"""
    ignored: list[str]
    """sections of schedulers, commands and plugins that are not installed"""


class EngineFinding(TypedDict):
    """A finding about an engine."""

    what: str
    """the subject"""
    verdict: Literal["ok", "none", "wrong"]
    """none: it does not exist, and is optional"""
    detail: str
    """the observation"""
    hint: str | None
    """how to fix it"""


class InstalledPlugin(TypedDict):
    """A plugin."""

    kind: str
    """scheduler, named_resource, tracker, event_handler, component or command"""
    name: str
    """the name; empty for a whole module"""
    module: str
    """the module that it comes from"""
    origin: str
    """the distribution, or the namespace package"""
    also: list[str]
    """further names"""
    error: str | None
    """why it cannot be loaded"""


class TrackedArtifact(TypedDict):
    """An artifact of a tracked run."""

    name: str
    """the name of the artifact"""
    path: str
    """the path"""
    metadata: dict[str, Any]
    """data about it"""


class LineageStep(TypedDict):
    """A step of the lineage of a run."""

    source: str
    """the run that made the artifact"""
    artifact: str | None
    """the name of the artifact; null for the whole run"""
    run: str
    """the run that used it"""
