"""The files of a job by which its nodes find slow ranks."""

from __future__ import annotations

from torchx.schedulers.shared.batch.node.files import node_file
from torchx.schedulers.shared.batch.paths import role_folder
from torchx.specs.app import AppDef
from torchx.specs.run_options import RunOptions
from torchx.stragglers.record import StragglerRule

PLACE = "shared/batch/stragglers"


def files(app: AppDef, cfg: RunOptions) -> dict[str, str]:
    """Returns the files for the nodes, by their names; none without the option.

    Args:
        app: the application.
        cfg: the run options.

    Raises:
        RunOptionError: the number of steps is out of range.
    """
    rule = StragglerRule.of(cfg)
    if rule is None:
        return {}
    roles = [(role.name, role_folder(role.name), role.num_replicas) for role in app.roles]
    watch = node_file("stragglers.py", PLACE).replace("STEPS = 0 ", f"STEPS = {rule.steps} ")
    return {
        "stragglers.py": watch.replace("]] = []  # the name", f"]] = {roles!r}  # the name"),
        "steps.py": node_file("steps.py", PLACE).replace('PATTERN = "" ', f"PATTERN = {rule.pattern!r} "),
    }
