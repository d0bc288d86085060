"""The type of the JSON output of each command."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchx_cli.schemas import applications, errors, sources, tools


class Output(NamedTuple):
    """The output of a command.

    Attributes:
        kind: its type.
        about: one sentence about it.
        variants: the types of the output with other flags, by flag.
        is_stream: whether each line of the output is an object of this type.
    """

    kind: Any
    about: str
    variants: dict[str, Any] = {}  # noqa: RUF012  # never changed
    is_stream: bool = False


_RUN = Output(
    applications.Result,
    "The application when the command ends; with --dryrun its request.",
    {"--dryrun": applications.DryRun},
)
_JOBS = Output(list[str], "The ids of the tracked runs.")
_METADATA = Output(dict[str, Any], "The metadata of a run by name.")
_ARTIFACTS = Output(list[tools.TrackedArtifact], "The artifacts of a run.")
_LINEAGE = Output(list[tools.LineageStep], "The sources and descendants of a run.")

OUTPUTS: dict[str, Output] = {
    "run": _RUN._replace(variants={**_RUN.variants, "COMPONENT --help": tools.ComponentHelp}),
    "rerun": _RUN,
    "status": Output(applications.Status, "The status of an application."),
    "why": Output(applications.Explained, "The explanation of the state of an application."),
    "log": Output(
        applications.Line,
        "One object per line of the log.",
        {"--fold": applications.FoldedLine},
        is_stream=True,
    ),
    "stacks": Output(applications.Stacks, "The stacks of an application; with --watch one object per line."),
    "wait": Output(list[applications.Waited], "An object for each application."),
    "events": Output(applications.Event, "One object per event.", is_stream=True),
    "cancel": Output(list[applications.Cancelled], "An object for each application."),
    "top": Output(list[applications.TopApp], "An object for each application."),
    "report": Output(applications.Report, "The data of the page."),
    "results": Output(list[applications.RunResult], "An object for each run."),
    "list": Output(
        list[applications.Listed],
        "The applications, the newest first; with --columns the handle and the keys of these columns.",
        {"--columns": list[applications.ListedColumns]},
    ),
    "queue": Output(
        applications.Queue,
        "The GPUs of this machine, and the waiting applications; with ACTION an object for each application.",
        {"ACTION": list[applications.Reordered]},
    ),
    "describe": Output(
        applications.Described,
        "The description of an application; with --source the origin of its source.",
        {"--source": sources.SourceDetails},
    ),
    "delete": Output(list[applications.Deleted], "An object for each application."),
    "diff": Output(applications.Comparison, "The comparison of two applications."),
    "prune": Output(applications.PruneResult, "The removed applications and files."),
    "tracker jobs": _JOBS,
    "tracker metadata": _METADATA,
    "tracker artifacts": _ARTIFACTS,
    "tracker lineage": _LINEAGE,
    "tracker list jobs": _JOBS,
    "tracker list metadata": _METADATA,
    "tracker list artifacts": _ARTIFACTS,
    "tracker list lineage": _LINEAGE,
    "runopts": Output(dict[str, list[tools.RunOption]], "The run options by scheduler."),
    "builtins": Output(list[tools.ListedComponent], "The components."),
    "config show": Output(tools.ConfigResult, "The configuration and its sources."),
    "lint": Output(tools.LintResult, "The problems of the components."),
    "doctor": Output(dict[str, list[tools.EngineFinding]], "The findings by scheduler, and `installation`."),
    "plugins": Output(list[tools.InstalledPlugin], "The installed plugins."),
    "schema": Output(
        dict[str, Any], "A JSON Schema; without COMMAND an object with one for each command, and `error`."
    ),
}
"""Command -> its output with -o json."""

ERROR = Output(errors.ErrorResult, "The output of a command that failed, also of a stream: as its last line.")
