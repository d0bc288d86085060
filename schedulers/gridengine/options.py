"""Run options of the ``gridengine`` scheduler."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from torchx.errors import RunOptionError
from torchx.masking.names import name_set
from torchx.schedulers.shared.options import CLUSTER, add_shared, check_shared
from torchx.scheduling.limits import LimitRule
from torchx.specs.run_options import RunOptions, runopts

OWN = name_set("b c cwd e i j N now o pe S shell sync t tc terse v V verify wd notify r ckpt inherit")
"""The options of qsub that torchx sets itself, or that would change how it reads the job."""


def run_options() -> runopts:
    """Returns the run options."""
    opts = runopts()
    opts.add("queue", str, "queue to run in, as of qsub -q")
    opts.add("project", str, "project to charge")
    opts.add("account", str, "account of the job in the accounting")
    opts.add(
        "pe", str, "parallel environment (default: mpi for several replicas or CPUs; list them: qconf -spl)"
    )
    opts.add("slots", int, "slots of each replica (default: its CPUs, at least 1)")
    opts.add(
        "memory_resource", str, "request the memory of a replica by this resource, e.g. h_vmem or mem_free"
    )
    opts.add("gpu_resource", str, "request the GPUs of a replica by this resource", "gpu")
    opts.add("resources", list[str], "further resources, e.g. arch=lx-amd64;h=node1*")
    opts.add("qsub", list[str], "further options of qsub, e.g. -R y;-ac note=x;-hold_jid 12")
    opts.add("requeue", bool, "retry the whole job by the queue, instead of on the same hosts", False)
    opts.add(
        "export", bool, "run the replicas with the environment of this shell; it is not shown by qstat", True
    )
    opts.add(
        "job_dir",
        str,
        "folder for logs and workspaces, shared with all hosts (default: gridengine in the state home)",
    )
    add_shared(opts, "grace_period", "setup", "straggler", "progress", *CLUSTER)
    return opts


def check_options(cfg: RunOptions) -> None:
    """Checks the values of run options.

    Raises:
        UsageError: a value is not allowed.
    """
    check_shared("gridengine", cfg)
    rule = LimitRule.of(cfg)
    rule.check_uncounted("gridengine", "Grid Engine requeues after lost hosts without a limit")
    slots = cfg.get("slots")
    if isinstance(slots, int) and slots < 1:
        raise RunOptionError("slots", f"of gridengine is {slots}, expected at least 1")
    for name in ("queue", "project", "account", "pe", "memory_resource", "gpu_resource"):
        value = str(cfg.get(name) or "x")
        if not value.isprintable() or any(letter.isspace() for letter in value):
            raise RunOptionError(name, f"of gridengine is {value!r}, expected a name without spaces")
    list(directives_of(cfg))


def directives_of(cfg: RunOptions) -> Iterator[str]:
    """Yields the options of qsub that the user gives, one of each line.

    >>> list(directives_of({"queue": "all.q", "resources": ["h_rt=60"], "qsub": ["-R y"]}))
    ['-q all.q', '-l h_rt=60', '-R y']

    Raises:
        RunOptionError: an option is not one of qsub, or is set by torchx.
    """
    for name, option in (("queue", "q"), ("project", "P"), ("account", "A")):
        if cfg.get(name):
            yield f"-{option} {cfg[name]}"
    for resource in _texts("resources", cfg):
        if resource.startswith("-") or " " in resource:
            raise RunOptionError("resources", f"of gridengine has `{resource}`, expected NAME=VALUE")
        yield f"-l {resource}"
    avoided = "&".join(f"!{host}" for host in _texts("avoid_hosts", cfg))
    if avoided:
        yield f"-l h={avoided}"
    for line in _texts("qsub", cfg):
        name, _, value = line.removeprefix("#$").strip().partition(" ")
        option = name.removeprefix("-")
        if option in OWN:
            raise RunOptionError("qsub", f"may not contain the option {name}, which torchx sets")
        if not re.fullmatch("-[A-Za-z_]+", name):
            raise RunOptionError(
                "qsub", f"of gridengine has `{line}`, expected an option of qsub such as -R y"
            )
        yield f"{name} {value}".strip()


def _texts(name: str, cfg: RunOptions) -> Iterator[str]:
    value: Any = cfg.get(name) or ()
    for text in value:
        if not str(text).isprintable():
            raise RunOptionError(name, "of gridengine contains a line break or control character")
        try:
            shlex.split(str(text))
        except ValueError as error:
            raise RunOptionError(name, f"of gridengine has `{text}`: {error}") from None
        yield str(text).strip()
