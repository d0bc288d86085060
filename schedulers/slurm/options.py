"""Run options of the ``slurm`` scheduler: its own, and every sbatch option by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from torchx.errors import RunOptionError
from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.masking.names import name_set
from torchx.schedulers.shared.options import (
    CLUSTER,
    add_shared,
    check_choices,
    check_shared,
)
from torchx.schedulers.slurm.limits import check_limits
from torchx.specs.run_options import CfgVal, InvalidRunConfigException, RunOptions, runopt, runopts
from torchx.suggestions import did_you_mean, nearest

with lazy_imports:
    from torchx.schedulers.slurm import commands


GPU_OPTIONS = ("gpus-per-task", "gpus-per-node", "gres")
WORKSPACE_TYPES = ("dir", "docker")
CONTAINER_TYPES = ("pyxis", "apptainer")
_CONTAINERS = {"true": "pyxis", "false": None, "none": None}
"""Values of the option `containers` of earlier versions, which was a bool."""


SBATCH = name_set(
    """
    account acctg-freq batch bb bbf begin chdir cluster-constraint comment constraint container
    consolidate-segments container-id container-type contiguous core-spec cores-per-socket cpu-freq
    cpus-per-gpu cpus-per-task deadline delay-boot dependency distribution exclude exclusive export
    export-file extra extra-node-info get-user-env gid gpu-bind gpu-freq gpus gpus-per-node
    gpus-per-socket gpus-per-task gres gres-flags hint hold ignore-pbs job-name kill-on-invalid-dep
    licenses mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network
    nice no-kill nodefile nodelist nodes ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket
    oom-kill-step open-mode overcommit oversubscribe partition power prefer priority profile propagate qos
    reboot resources resv-ports reservation segment signal sockets-per-node spread-job spread-segments
    stepmgr switches thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid
    use-min-nodes wait-all-nodes wckey
    container-image container-mounts container-workdir container-name container-save container-mount-home
    no-container-mount-home container-remap-root no-container-remap-root container-entrypoint
    no-container-entrypoint container-entrypoint-log container-writable container-readonly container-env
    """
)
"""Long sbatch options of Slurm 20.11 to 26.05 and of its container plugin; a dry run does not call sbatch."""

UNSUPPORTED: Mapping[str, tuple[str, ...]] = {
    "array": ("an application is one job", "many runs are submitted by torchx run --each"),
    "ntasks": ("each replica is a task", "set num_replicas"),
    "output": ("torchx keeps the logs of replicas", "torchx log"),
    "error": ("torchx keeps the logs of replicas", "torchx log"),
    "input": ("replicas have no stdin",),
    "wrap": ("the role's entrypoint runs",),
    "clusters": ("torchx queries one cluster", "set SLURM_CLUSTERS=… in the environment"),
    "parsable": ("torchx parses the output of sbatch",),
    "test-only": ("use torchx run --dryrun",),
    "wait": ("use torchx run --wait",),
    "no-requeue": ("use requeue=false",),
    "quiet": ("quiet is a torchx run option",),
}
"""Option of sbatch that cannot be a run option -> the reason, and the alternative."""

WHOLE_JOB = name_set(
    """
    begin chdir comment deadline dependency export export-file get-user-env gid hold ignore-pbs
    job-name kill-on-invalid-dep mail-type mail-user nice open-mode priority propagate requeue signal uid
    wait-all-nodes wckey
    """
)
"""Options of sbatch that apply to the whole job; all others are repeated for each role."""

_ANY = runopt(None, str, False, "an sbatch option")
_NAME = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*"
_LIKENESS = 0.85
"""The least share of letters in common by which an unknown name is a misspelled one."""
EXPEDITE = "expedite"
"""A value of `requeue`, which otherwise is a bool."""


class SlurmOptions(runopts):
    """Run options that also accept every long sbatch option by name, known ones with ``_`` or ``-``."""

    def canonical_key(self, name: str) -> str:
        """Returns the canonical name of an option: ``mail-user`` for ``mail_user``."""
        if name in self._opts:
            return name
        dashed = name.replace("_", "-")
        for known in (dashed, name.replace("-", "_")):
            if known in self._opts or known in UNSUPPORTED:
                return known
        if _is_known(dashed):  # an unknown name with `_` may be an option of another scheduler
            return dashed
        return super().canonical_key(name)

    def get(self, name: str) -> runopt | None:
        """Returns an option by name; sbatch options accept any text, or a bool for flags."""
        key = self.canonical_key(name)
        return self._opts.get(key) or (_ANY if is_option(key) else None)

    def resolve(self, cfg: RunOptions) -> dict[str, CfgVal]:
        """Checks options and fills in defaults.

        Raises:
            InvalidRunConfigException: an option is unknown or has the wrong type.
        """
        own: dict[str, CfgVal] = {}
        sbatch: dict[str, CfgVal] = {}
        for name, value in cfg.items():
            key = self.canonical_key(name)
            if (key in self._opts and value != EXPEDITE) or not is_option(key):
                own[name] = value
            elif value is None or isinstance(value, (str, int, float)):
                sbatch[key] = value
            else:
                raise InvalidRunConfigException(
                    f"sbatch option `{key}` must be a string, a number or a bool, got {value!r}", key, cfg
                )
        if (containers := str(own.get("containers")).lower()) in _CONTAINERS:
            own["containers"] = _CONTAINERS[containers]
        return {**super().resolve(own), **sbatch}

    def _from_json(self, key: str, opt: runopt, value: Any, cfg: RunOptions) -> Any:
        if key not in self._opts:
            return value  # an option of sbatch: checked by `resolve`
        return super()._from_json(key, opt, value, cfg)

    def _unknown(self, name: str, cfg: Data) -> InvalidRunConfigException:
        if reasons := UNSUPPORTED.get(key := self.canonical_key(name)):
            return InvalidRunConfigException(
                f"sbatch option `{key}` is not supported: {reasons[0]}", key, cfg, hint=": ".join(reasons)
            )
        return super()._unknown(name, cfg)

    def _names(self) -> Iterable[str]:
        """Returns the names of its own options and those of sbatch."""
        return (*self._opts, *SBATCH)


class _Requeue(runopt):
    """The option `requeue`, a bool or :data:`EXPEDITE`."""

    def cast_to_type(self, value: str) -> CfgVal:
        if value == EXPEDITE:
            return value
        return super().cast_to_type(value)


def is_option(name: str) -> bool:
    """Returns True if a name is passed to sbatch: a known option, or one that resembles none.

    A near miss or an abbreviation of a known option counts only if the installed sbatch lists it.

    >>> [is_option(name) for name in ("gres", "a-new-one", "partion", "arr", "job_dir", "a--b")]
    [True, True, False, False, False, False]
    """
    if name in UNSUPPORTED or not re.fullmatch(_NAME, name):
        return False
    if _is_known(name):
        return True
    known = {each.replace("_", "-") for each in (*SBATCH, *WHOLE_JOB, *UNSUPPORTED, *_own_options())}
    return not any(each.startswith(name) for each in known) and nearest(name, known, _LIKENESS) is None


def unknown_options(names: Iterable[str]) -> list[str]:
    """Returns those of the options for sbatch that neither torchx nor the installed sbatch lists."""
    return [name for name in names if name not in UNSUPPORTED and not _is_known(name)]


def _is_known(name: str) -> bool:
    return name in SBATCH or name in WHOLE_JOB or name in commands.options_of("sbatch")


def run_options() -> SlurmOptions:
    """Returns the run options."""
    opts = SlurmOptions()
    opts.add("partition", str, "partition to run in")
    opts.add("account", str, "account to charge")
    opts.add("time", str, "like time_limit, as sbatch takes it: minutes, HH:MM:SS or D-HH:MM:SS")
    opts.add("qos", str, "quality of service")
    opts.add("constraint", str, "run only on nodes with these features")
    opts.add("comment", str, "comment of the job; torchx appends a mark")
    opts.add("mail-user", str, "send mail to this address")
    opts.add("mail-type", str, "send mail on: BEGIN, END, FAIL, ALL")
    opts.add(
        "job_dir",
        str,
        "folder for logs and workspaces, shared with all nodes (default: slurm in the state home); from "
        "one that is not, output is gathered into the state home",
    )
    opts._opts["requeue"] = _Requeue(
        None,
        bool,
        False,
        "requeue the job for a retry, and after preemption or node failure (default: if a role has "
        "retries); false: retry immediately, on the same nodes; expedite: before other jobs (Slurm 26.05)",
    )
    opts.add(
        "gpu_option",
        str,
        "sbatch option that requests GPUs: gpus-per-task; gpus-per-node or gres, one node per replica",
        "gpus-per-task",
    )
    opts.add(
        "containers", str, "run each role in its image: pyxis (or true), by srun --container-image; apptainer"
    )
    opts.add(
        "sbatch",
        list[str],
        "#SBATCH lines for .torchxconfig, e.g. --exclusive;--gres=gpu:2. With -cfg use option names: "
        "exclusive=true,gres=gpu:2",
    )
    opts.add("all_users", bool, "for torchx list: include jobs of other users", False)
    opts.add(
        "workspace_type", str, "how to ship a workspace: dir, a copy in job_dir; docker, in an image", "dir"
    )
    add_shared(opts, "grace_period", "setup", "image_repo", "straggler", "progress", *CLUSTER)
    return opts


def check_options(cfg: RunOptions) -> None:
    """Checks the values of run options.

    Raises:
        UsageError: a value is not allowed.
    """
    choices = {"gpu_option": GPU_OPTIONS, "workspace_type": WORKSPACE_TYPES, "containers": CONTAINER_TYPES}
    check_choices("slurm", cfg, choices)
    check_shared("slurm", cfg)
    check_limits(cfg)
    for name, value in sbatch_options(cfg).items():
        if isinstance(value, str) and any(ord(letter) < 32 for letter in value):
            raise RunOptionError(name, "of slurm contains a line break or control character")


def sbatch_options(cfg: RunOptions) -> dict[str, CfgVal]:
    """Returns the options passed to sbatch: those in #SBATCH lines, then those given by name.

    >>> sbatch_options({"partition": "gpu", "quiet": False, "sbatch": ["#SBATCH --exclusive", "gres=gpu:2"]})
    {'exclusive': True, 'gres': 'gpu:2', 'partition': 'gpu'}
    """
    options = dict(_lines(cfg.get("sbatch")))
    for name, value in cfg.items():
        if name in SBATCH or (name not in _own_options() and value is not None):
            if isinstance(value, str):
                value = {"true": True, "false": False}.get(value, value)
            if value is False:
                options.pop(name, None)
            elif value is not None and value != "":
                options[name] = value
    avoided: Any = cfg.get("avoid_hosts")
    if avoided:
        options["exclude"] = ",".join([str(options.get("exclude", "")), *avoided]).strip(",")
    return options


def _lines(lines: Any) -> Iterator[tuple[str, CfgVal]]:
    for line in lines if isinstance(lines, (list, tuple)) else ():
        text = str(line).strip().removeprefix("#SBATCH").strip()
        name, equals, value = text.removeprefix("--").partition("=")
        if not equals and " " in name:
            name, _, value = name.partition(" ")
        name = name.strip().replace("_", "-")
        if name in UNSUPPORTED:
            hint = ": ".join(UNSUPPORTED[name])
            raise RunOptionError("sbatch", f"may not contain the sbatch option `{name}`", hint=hint)
        if not is_option(name):
            raise RunOptionError(
                "sbatch",
                f"of slurm has `{line}`, which is not an sbatch option",
                hint=did_you_mean(name, SBATCH, "e.g. sbatch=--exclusive;--gres=gpu:2"),
            )
        yield name, value.strip() or True


@cache
def _own_options() -> frozenset[str]:
    """Returns the run options that are not options of sbatch."""
    return frozenset(name for name, _ in run_options()) - SBATCH
