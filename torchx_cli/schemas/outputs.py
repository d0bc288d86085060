"""The type of the JSON output of each command."""

from __future__ import annotations

from typing import NamedTuple


class Output(NamedTuple):
    """The output of a command.

    Attributes:
        kind: its type, as in objects.txt.
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
_JOBS = Output("list of string", "The ids of the tracked runs.")
_METADATA = Output("object", "The metadata of a run by name.")
_ARTIFACTS = Output("list of TrackedArtifact", "The artifacts of a run.")
_LINEAGE = Output("list of LineageStep", "The sources and descendants of a run.")

OUTPUTS: dict[str, Output] = {
    "run": _RUN,
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
    "wait": Output("list of Waited", "An object for each application."),
    "events": Output("Event", "One object per event.", is_stream=True),
    "cancel": Output("list of Cancelled", "An object for each application."),
    "top": Output("list of TopApp", "An object for each application."),
    "report": Output("Report", "The data of the page."),
    "results": Output("list of RunResult", "An object for each run."),
    "list": Output("list of Listed", "The applications, the newest first."),
    "queue": Output("Queue", "The GPUs of this machine, and the waiting applications."),
    "describe": Output(
        "Described",
        "The description of an application; with --source the origin of its source.",
        {"--source": "SourceDetails"},
    ),
    "delete": Output("list of Deleted", "An object for each application."),
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
    "runopts": Output("object of list of RunOption", "The run options by scheduler."),
    "builtins": Output("list of ListedComponent", "The components."),
    "config show": Output("ConfigResult", "The configuration and its sources."),
    "lint": Output("LintResult", "The problems of the components."),
    "doctor": Output("object of list of EngineFinding", "The findings by scheduler, and `installation`."),
    "plugins": Output("list of InstalledPlugin", "The installed plugins."),
    "schema": Output(
        "object", "A JSON Schema; without COMMAND an object with one for each command, and `error`."
    ),
}
"""Command -> its output with -o json."""

ERROR = Output("ErrorResult", "The output of a command that failed, also of a stream: as its last line.")
