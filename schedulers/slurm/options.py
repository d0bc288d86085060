"""The run options of the scheduler ``slurm``: those of its own, and every option of sbatch by its name."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torchx.errors import UsageError
from torchx.specs.run_options import CfgVal, InvalidRunConfigException, runopt, runopts
from torchx.suggestions import did_you_mean

GPU_OPTIONS = ("gpus-per-task", "gpus-per-node", "gres")
WORKSPACE_TYPES = ("dir", "docker")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SBATCH = _words(
    """
    account acctg-freq batch bb bbf begin chdir cluster-constraint comment constraint container
    container-id contiguous core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
    delay-boot dependency distribution exclude exclusive export export-file extra extra-node-info
    get-user-env gid gpu-bind gpu-freq gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint
    hold ignore-pbs job-name kill-on-invalid-dep licenses mail-type mail-user mcs-label mem mem-bind
    mem-per-cpu mem-per-gpu mincpus network nice no-kill nodefile nodelist nodes ntasks-per-core
    ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode overcommit oversubscribe partition power
    prefer priority profile propagate qos reboot resv-ports reservation segment signal sockets-per-node
    spread-job stepmgr switches thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid
    use-min-nodes wait-all-nodes wckey
    container-image container-mounts container-workdir container-name container-save container-mount-home
    no-container-mount-home container-remap-root no-container-remap-root container-entrypoint
    no-container-entrypoint container-entrypoint-log container-writable container-readonly container-env
    """
)
"""Long options of sbatch from 20.11 to 25.x, and those of its container plugin; a dry run asks no sbatch."""

OURS: Mapping[str, str] = {
    "array": "an application is one job: submit it as often as you need it",
    "ntasks": "the replicas of a role are its tasks: num_replicas",
    "output": "the logs of replicas are kept: torchx log",
    "error": "the logs of replicas are kept: torchx log",
    "input": "replicas read nothing",
    "wrap": "the role's program is what runs",
    "clusters": "torchx asks one cluster about its jobs: SLURM_CLUSTERS=… in the environment says which",
    "parsable": "torchx reads what sbatch says",
    "test-only": "see it with --dryrun",
    "wait": "torchx run --wait waits",
    "no-requeue": "requeue=false",
    "quiet": "quiet is a run option",
}
"""Options of sbatch that are not for run options, and what to do in place of them."""

WHOLE_JOB = _words(
    """
    begin chdir comment deadline dependency export export-file get-user-env gid hold ignore-pbs
    job-name kill-on-invalid-dep mail-type mail-user nice open-mode priority propagate signal uid
    wait-all-nodes wckey
    """
)
"""Options of sbatch that stand once, at the first role; all others are repeated for each."""

_ANY = runopt(None, str, False, "an option of sbatch")


class SlurmOptions(runopts):
    """Run options that also take every long option of sbatch by its name; ``_`` may stand for ``-``."""

    def canonical_key(self, name: str) -> str:
        """Returns the name under which an option is known: ``mail-user`` for ``mail_user``."""
        if name in self._opts:
            return name
        for known in (name.replace("_", "-"), name.replace("-", "_")):
            if known in self._opts or known in OURS or is_option(known):
                return known
        return super().canonical_key(name)

    def get(self, name: str) -> runopt | None:
        """Returns an option by its name; one of sbatch takes any text, or true and false as a flag."""
        key = self.canonical_key(name)
        found = self._opts.get(key)
        return found if found is not None else _ANY if is_option(key) else None

    def resolve(self, cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
        """Checks options and fills in defaults.

        Raises:
            InvalidRunConfigException: an option is unknown or of the wrong type.
        """
        own: dict[str, CfgVal] = {}
        further: dict[str, CfgVal] = {}
        for name, value in cfg.items():
            key = self.canonical_key(name)
            if key in OURS and key not in self._opts:
                raise _not_here(key, cfg)
            if key in self._opts or not is_option(key):
                own[name] = value
            elif value is None or isinstance(value, (str, int, float)):
                further[key] = value
            else:
                raise InvalidRunConfigException(
                    f"option `{key}` of sbatch takes a text, a number, true or false, got {value!r}", key, cfg
                )
        return {**super().resolve(own), **further}

    def cfg_from_str(self, cfg_str: str, strict: bool = False) -> dict[str, CfgVal]:
        """Reads options from text such as ``partition=gpu,gres=gpu:2``."""
        return self._with_sbatch(cfg_str).cfg_from_str(cfg_str, strict)

    def cfg_from_json_repr(self, json_repr: str, strict: bool = False) -> dict[str, CfgVal]:
        """Reads options from a JSON object."""
        import json

        whole = runopts.cfg_from_json_repr(self._with_sbatch(""), "{}")
        try:
            given = json.loads(json_repr)
        except ValueError:
            given = None
        if not isinstance(given, dict):
            return super().cfg_from_json_repr(json_repr, strict)
        further = {n: v for n, v in given.items() if is_option(k := self.canonical_key(n)) and k not in self}
        rest = {name: value for name, value in given.items() if name not in further}
        whole.update(super().cfg_from_json_repr(json.dumps(rest), strict))
        whole.update({self.canonical_key(name): value for name, value in further.items()})
        return whole

    def _with_sbatch(self, cfg_str: str) -> runopts:
        """Returns these options as plain ones, with those of sbatch that a text names."""
        from torchx.specs.pairs import to_dict

        plain = _Plain(self)
        plain.update(self)
        for name in to_dict(cfg_str):
            key = self.canonical_key(name)
            if key in OURS and key not in self._opts:
                raise _not_here(key, {})
            if key not in self._opts and is_option(key):
                plain._opts[key] = copy.copy(_ANY)
        return plain


class _Plain(runopts):
    """Options that go by the names of others."""

    def __init__(self, of: SlurmOptions) -> None:
        super().__init__()
        self._of = of

    def canonical_key(self, name: str) -> str:
        return self._of.canonical_key(name)


def _not_here(key: str, cfg: Mapping[str, CfgVal]) -> InvalidRunConfigException:
    return InvalidRunConfigException(
        f"option `{key}` of sbatch is no run option: {OURS[key].partition(': ')[0]}", key, cfg, hint=OURS[key]
    )


def is_option(name: str) -> bool:
    """Tells whether sbatch has a long option of this name, in any release or on this machine."""
    if name in SBATCH:
        return True
    if name in OURS or not name.replace("-", "").isalnum() or not name.isascii() or name != name.lower():
        return False
    from torchx.schedulers.slurm.commands import options_of

    return name in (options_of("sbatch") or ())


def run_opts() -> SlurmOptions:
    """Returns the run options."""
    opts = SlurmOptions()
    opts.add("partition", type_=str, help="partition to run in")
    opts.add("account", type_=str, help="account to charge")
    opts.add("time", type_=str, help="time limit: minutes, HH:MM:SS or D-HH:MM:SS")
    opts.add("qos", type_=str, help="quality of service")
    opts.add("constraint", type_=str, help="features that nodes must have")
    opts.add("comment", type_=str, help="comment of the job; a mark of torchx comes behind it")
    opts.add("mail-user", type_=str, help="who is told by mail")
    opts.add("mail-type", type_=str, help="what they are told of: BEGIN, END, FAIL, ALL")
    opts.add(
        "job_dir",
        type_=str,
        help="folder that all nodes see, for logs and workspaces; slurm in the state home unless told",
    )
    opts.add(
        "requeue",
        type_=bool,
        help="whether a retry goes back to the queue, as after preemption and the failure of a node; "
        "yes, if there are retries. No: at once, on the same nodes",
    )
    opts.add("fail_fast", type_=bool, default=True, help="end all replicas when one fails for good")
    opts.add(
        "gpu_option",
        type_=str,
        default="gpus-per-task",
        help="how GPUs are asked for: gpus-per-task; gpus-per-node or gres, with a node for each replica",
    )
    opts.add(
        "containers",
        type_=bool,
        default=False,
        help="run each role in its image, by --container-image of srun; the cluster needs the plugin",
    )
    opts.add(
        "sbatch",
        type_=list[str],
        help="lines of #SBATCH, in .torchxconfig as --exclusive;--gres=gpu:2. After -cfg they go by their "
        "names: exclusive=true,gres=gpu:2",
    )
    opts.add("all_users", type_=bool, default=False, help="for torchx list: also what others have submitted")
    opts.add(
        "workspace_type",
        type_=str,
        default="dir",
        help="how a workspace travels: dir, a copy in job_dir; docker, in an image",
    )
    opts.add("workspace_limit_mb", type_=int, default=1024, help="MB that a workspace may have")
    opts.add("image_repo", type_=str, help="repository that images with a workspace are pushed to")
    opts.add("quiet", type_=bool, default=False, help="do not tell how a build and a push go on")
    return opts


def check_options(cfg: Mapping[str, CfgVal]) -> None:
    """Refuses run options with values that cannot be.

    Raises:
        UsageError: one has.
    """
    for option, known in (("gpu_option", GPU_OPTIONS), ("workspace_type", WORKSPACE_TYPES)):
        value = cfg.get(option)
        if value is not None and value not in known:
            raise UsageError(
                f"run option `{option}` of slurm is `{value}`, expected {' or '.join(known)}",
                hint=did_you_mean(str(value), known),
            )
    for name, value in sbatch_options(cfg).items():
        if isinstance(value, str) and any(ord(letter) < 32 for letter in value):
            raise UsageError(f"run option `{name}` of slurm has a line end or a control character in it")


def sbatch_options(cfg: Mapping[str, CfgVal]) -> dict[str, CfgVal]:
    """Returns the options that go to sbatch by their names: lines of #SBATCH first, then those by name.

    >>> sbatch_options({"partition": "gpu", "quiet": False, "sbatch": ["#SBATCH --exclusive", "gres=gpu:2"]})
    {'exclusive': True, 'gres': 'gpu:2', 'partition': 'gpu'}
    """
    found = dict(_lines(cfg.get("sbatch")))
    for name, value in cfg.items():
        if name in SBATCH or (name not in _OWN and value is not None):
            value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
            if value is False:
                found.pop(name, None)
            elif value is not None and value != "":
                found[name] = value
    return found


def _lines(lines: Any) -> Iterator[tuple[str, CfgVal]]:
    for line in lines if isinstance(lines, (list, tuple)) else ():
        text = str(line).strip().removeprefix("#SBATCH").strip()
        name, equals, value = text.removeprefix("--").partition("=")
        if not equals and " " in name:
            name, _, value = name.partition(" ")
        name = name.strip().replace("_", "-")
        if name in OURS:
            raise UsageError(
                f"option `{name}` of sbatch is no line of the run option `sbatch`", hint=OURS[name]
            )
        if not is_option(name):
            raise UsageError(
                f"run option `sbatch` of slurm has the line `{line}`, which names no option of sbatch",
                hint=did_you_mean(name, SBATCH, "e.g. sbatch=--exclusive;--gres=gpu:2"),
            )
        yield name, value.strip() or True


_OWN = _words(
    "job_dir requeue fail_fast gpu_option containers sbatch all_users workspace_type workspace_limit_mb "
    "image_repo quiet"
)
