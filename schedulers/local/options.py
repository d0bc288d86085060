"""Run options of the schedulers ``local_cwd`` and ``local_dir``."""

from __future__ import annotations

from torchx.schedulers.shared.options import LOCAL, add_shared
from torchx.schedulers.shared.options import check_local as check_local
from torchx.specs.run_options import runopts


def run_options(scheduler: str) -> runopts:
    """Returns the run options of a scheduler of local processes."""
    opts = runopts()
    opts.add("log_dir", str, "folder for the logs (default: in the state home)")
    opts.add("prepend_cwd", bool, "put the working directory first on PATH, not last", False)
    opts.add(
        "auto_set_cuda_visible_devices",
        bool,
        "fail if the replicas cannot get GPUs of their own; otherwise warn",
        False,
    )
    add_shared(opts, *LOCAL)
    if scheduler == "local_dir":
        opts.add(
            "image_limit_mb",
            int,
            "largest image archive in MB, packed and unpacked",
            10_240,
        )
    return opts
