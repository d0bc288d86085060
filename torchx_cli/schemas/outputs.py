"""The type of the JSON output of each command."""

from __future__ import annotations

from typing import NamedTuple


class Output(NamedTuple):
    """The output of a command.

    Attributes:
        kind: its type, in the form of objects.txt.
        about: one sentence about it.
        variants: the types of the output with other flags, by flag.
        is_stream: whether each line of the output is an object of this type.
    """

    kind: str
    about: str
    variants: dict[str, str] = {}  # noqa: RUF012  # never changed
    is_stream: bool = False


_RUN = Output(
    "Result",
    "The application when the command ends; with --dryrun its request.",
    {"--dryrun": "DryRun"},
)
_JOBS = Output("[string]", "The ids of the tracked runs.")
_METADATA = Output("{any}", "The metadata of a run by name.")
_ARTIFACTS = Output("[TrackedArtifact]", "The artifacts of a run.")
_LINEAGE = Output("[LineageStep]", "The sources and descendants of a run.")

OUTPUTS: dict[str, Output] = {
    "run": _RUN._replace(variants={**_RUN.variants, "COMPONENT --help": "ComponentHelp"}),
    "rerun": _RUN,
    "status": Output("Status", "The status of an application."),
    "why": Output("Explained", "The explanation of the state of an application."),
    "log": Output(
        "Line",
        "One object per line of the log.",
        {"--fold": "FoldedLine"},
        is_stream=True,
    ),
    "stacks": Output("Stacks", "The stacks of an application; with --watch one object per line."),
    "wait": Output("[Waited]", "An object for each application."),
    "events": Output("Event", "One object per event.", is_stream=True),
    "cancel": Output("[Cancelled]", "An object for each application."),
    "top": Output("[TopApp]", "An object for each application."),
    "report": Output("Report", "The data of the page."),
    "results": Output("[RunResult]", "An object for each run."),
    "list": Output(
        "[Listed]",
        "The applications, the newest first; with --columns the handle and the keys of these columns.",
        {"--columns": "[ListedColumns]"},
    ),
    "nodes": Output("[BadNode]", "An object for each node."),
    "queue": Output(
        "Queue",
        "The GPUs of this machine, and the waiting applications; with ACTION an object for each application.",
        {"ACTION": "[Reordered]"},
    ),
    "describe": Output(
        "Described",
        "The description of an application; with --source the origin of its source.",
        {"--source": "SourceDetails"},
    ),
    "delete": Output("[Deleted]", "An object for each application."),
    "diff": Output("Comparison", "The comparison of two applications."),
    "prune": Output("PruneResult", "The removed applications and files."),
    "tracker jobs": _JOBS,
    "tracker metadata": _METADATA,
    "tracker artifacts": _ARTIFACTS,
    "tracker lineage": _LINEAGE,
    "tracker list jobs": _JOBS,
    "tracker list metadata": _METADATA,
    "tracker list artifacts": _ARTIFACTS,
    "tracker list lineage": _LINEAGE,
    "runopts": Output("{[RunOption]}", "The run options by scheduler."),
    "builtins": Output("[ListedComponent]", "The components."),
    "config show": Output("ConfigResult", "The configuration and its sources."),
    "lint": Output("LintResult", "The problems of the components."),
    "doctor": Output("{[EngineFinding]}", "The findings by scheduler, and `installation`."),
    "plugins": Output("[InstalledPlugin]", "The installed plugins."),
    "schema": Output(
        "{any}", "A JSON Schema; without COMMAND an object with one for each command, and `error`."
    ),
}
"""Command -> its output with -o json."""

ERROR = Output("ErrorResult", "The output of a command that failed, also of a stream: as its last line.")
