"""Run options of the scheduler ``local_docker``."""

from __future__ import annotations

from torchx.schedulers.shared.options import LOCAL, add_shared
from torchx.schedulers.shared.options import check_local as check_local
from torchx.specs.run_options import runopts


def run_options() -> runopts:
    """Returns the run options."""
    opts = runopts()
    opts.add(
        "copy_env",
        list[str],
        "copy these environment variables to the containers; patterns such as AWS_* work",
    )
    opts.add("env", dict[str, str], "set variables in all containers: A:1,B:2")
    opts.add("privileged", bool, "give the containers all rights on this machine", False)
    add_shared(opts, "image_repo", "quiet", *LOCAL)
    return opts
