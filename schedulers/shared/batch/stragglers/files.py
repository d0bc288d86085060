"""The files of a job by which its nodes find slow ranks."""

from __future__ import annotations

import json

from torchx.schedulers.shared.batch.node.files import node_file
from torchx.schedulers.shared.batch.paths import role_folder
from torchx.specs.app import AppDef
from torchx.specs.run_options import RunOptions
from torchx.stragglers.record import StragglerRule


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
    roles = [[role.name, role_folder(role.name), role.num_replicas] for role in app.roles]
    data = {"steps": rule.steps, "pattern": rule.pattern, "roles": roles}
    place = "shared/batch/stragglers"
    return {
        "stragglers.json": json.dumps(data) + "\n",
        "stragglers.py": node_file("stragglers.py", place),
        "steps.py": node_file("steps.py", place),
    }
