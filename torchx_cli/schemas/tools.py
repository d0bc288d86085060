"""The JSON output of the commands that concern no application, as types."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict


class RunOption(TypedDict):
    """A run option of a scheduler, or an argument of a component."""

    name: Annotated[str, "the name of the option"]
    type: Annotated[str, "the type of the value"]
    required: Annotated[bool, "whether it must be set"]
    default: Annotated[Any, "the default"]
    help: Annotated[str, "the meaning of the option"]


class ListedComponent(TypedDict):
    """A component in the output of `torchx builtins`."""

    name: Annotated[str, "the name of the component"]
    description: Annotated[str, "one line about it"]
    origin: Annotated[str, "the origin of the component"]
    path: Annotated[str | None, "the file"]
    line: Annotated[int | None, "the line in the file, from 1"]
    problems: Annotated[list[str], "why it cannot be run"]


class ComponentHelp(TypedDict):
    """The output of `torchx run --json COMPONENT --help`."""

    name: Annotated[str, "the component"]
    description: Annotated[str, "its purpose"]
    arguments: Annotated[list[RunOption], "its arguments; `*NAME` for those that follow the flags"]


class LintProblem(TypedDict):
    """A problem of a component."""

    path: Annotated[str, "the file"]
    line: Annotated[int, "the line, from 1"]
    char: Annotated[int, "the column, from 1"]
    name: Annotated[str, "the component"]
    severity: Annotated[str, "the severity"]
    description: Annotated[str, "the problem"]


class LintResult(TypedDict):
    """The output of `torchx lint`."""

    checked: Annotated[int, "the number of checked components"]
    fine: Annotated[int, "the number of components without problems"]
    problems: Annotated[list[LintProblem], "the problems"]


class ConfigValue(TypedDict):
    """A value of the configuration."""

    section: Annotated[str, "the section"]
    key: Annotated[str, "the key"]
    value: Annotated[str, "the value; secrets are masked"]
    effective: Annotated[bool, "false if another file or a profile overrides it"]
    profile: Annotated[str | None, "the profile of the section"]
    origin: Annotated[str, "the place of the value, for display; default for a default"]
    file: Annotated[str | None, "the file; null for a default"]
    line: Annotated[int | None, "the line in the file; null for a default"]


class ConfigProblem(TypedDict):
    """A problem of the configuration."""

    message: Annotated[str, "the problem"]
    hint: Annotated[str | None, "the next step"]


class IgnoredFile(TypedDict):
    """A configuration file that is not used."""

    file: Annotated[str, "the file"]
    why: Annotated[str, "the reason"]


class ConfigResult(TypedDict):
    """The output of `torchx config show`."""

    files: Annotated[list[str], "the files in use, highest precedence first"]
    values: Annotated[list[ConfigValue], "the values"]
    problems: Annotated[list[ConfigProblem], "the problems of the files"]
    passed_over: Annotated[list[IgnoredFile], "ignored files"]
    ignored: Annotated[list[str], "sections of schedulers, commands and plugins that are not installed"]


class EngineFinding(TypedDict):
    """A finding about an engine."""

    what: Annotated[str, "the subject"]
    verdict: Annotated[Literal["ok", "none", "wrong"], "none: it does not exist, and is optional"]
    detail: Annotated[str, "the observation"]
    hint: Annotated[str | None, "how to fix it"]


class InstalledPlugin(TypedDict):
    """A plugin."""

    kind: Annotated[str, "scheduler, named_resource, tracker, event_handler, component or command"]
    name: Annotated[str, "the name; empty for a whole module"]
    module: Annotated[str, "the module that it comes from"]
    origin: Annotated[str, "the distribution, or the namespace package"]
    also: Annotated[list[str], "further names"]
    error: Annotated[str | None, "why it cannot be loaded"]


class TrackedArtifact(TypedDict):
    """An artifact of a tracked run."""

    name: Annotated[str, "the name of the artifact"]
    path: Annotated[str, "the path"]
    metadata: Annotated[dict[str, Any], "data about it"]


class LineageStep(TypedDict):
    """A step of the lineage of a run."""

    source: Annotated[str, "the run that made the artifact"]
    artifact: Annotated[str | None, "the name of the artifact; null for the whole run"]
    run: Annotated[str, "the run that used it"]
