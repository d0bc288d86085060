"""The hint of an unknown flag: of the component, of the scheduler, or as other tools call it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from torchx.command_line import NO_VALUE, UNKNOWN, ArgumentError, FlagTable, same
from torchx.errors import TorchxError
from torchx.schedulers import BUILT_IN, DEFAULT_SCHEDULER, create_scheduler
from torchx_cli import component_flags

_COMPONENT = """
num_replicas j | n N nodes num-nodes num_nodes nnodes ntasks replicas instances count scale workers
j | nproc_per_node nproc-per-node nproc ntasks-per-node gpus-per-node processes
gpu | gpus num-gpus num_gpus accelerator accelerators
cpu | c cpus num-cpus num_cpus cpus-per-task vcpus
memMB | memory mem m ram
image | i container container-image docker-image
mounts | v volume volumes mount bind
max_retries | retries restart max-restarts max_restarts backoff-limit
env | e envs environment
entrypoint | command
m | module
script | file
name | J job-name job_name
"""
"""Flags of components | the names of other tools."""

_FLAGS = """
run rerun | --detach | detached background bg daemon
run rerun | --env | e envs environment
run | --time-limit | time timeout walltime max-time max-duration
run | --workspace | w workdir working-dir working_dir chdir cwd context
run rerun | --log | follow attach logs stream tail
run rerun | --tag | l label labels tags
run rerun | --note | comment message description
run rerun | --notify | mail-user mail-type email
run | --each | array sweep matrix
run | --after | dependency depends-on depends_on
run | -s | infra executor
run rerun | --secret | secrets
torchx | --version | v V
log | --streams stderr | stderr err
log | --streams stdout | stdout out
log | -n | limit last max head
log | --regex | grep filter pattern search
log | --no-prefix | raw no-log-prefix
list events results | -n | limit last max max-items
list | --state | status filter states
list | --all-users | user u users
list status describe why events results diff | -o | format output-format
status describe | --watch | f follow live refresh
cancel delete | --all | a
cancel delete prune | --yes | assume-yes noconfirm
delete | --force | f
"""
"""Commands | the flag | the names of other tools."""

_TEXTS = """
run | p publish ports expose | to reach a port of a running replica: torchx port APP PORT
run | it i tty interactive rm | a run shows its output; for a shell in a replica: torchx exec APP sh
status | v verbose details long | all details: torchx describe APP
list | a all | ended applications are listed too; those of other users: --all-users
list | w watch f follow | to watch running applications: torchx top
exec | t it tty interactive | the program has a terminal if stdin is one
cancel | f force signal | KILL follows after the grace period: torchx cancel APP
"""
"""Commands | the names of other tools | the hint."""


_SHORT = {
    "slurm p": "partition",
    "slurm t": "time",
    "slurm A": "account",
    "slurm q": "qos",
    "slurm C": "constraint",
    "kubernetes n": "namespace",
}
"""Scheduler and letter -> the run option that its own tools call so."""


def of_flag(command: str, error: ArgumentError, args: Sequence[str]) -> str | None:
    """Returns the hint for an unknown flag of a command, None if only a similar name can help.

    Args:
        command: the name of the command.
        error: the error about the flag.
        args: the arguments of the command.
    """
    flag = error.flag
    if command not in ("run", "rerun"):
        return _elsewhere(command, flag)
    name, table = _component_in(args)
    own = [same(flag), *_component_flags(flag)]
    for each in own:
        if each in table.exact and not (each != own[0] and _elsewhere(command, flag)):
            return f"`{_shown(each)}` is a flag of {name}: put it after {name}"
    given = _value_of("-s", args) or _value_of("--scheduler", args)
    value = _value_of(flag, args)
    value = "true" if value and value == name else value
    option = "" if own[1:] else _run_option(given or DEFAULT_SCHEDULER, flag, value, undeclared=True)
    if option:
        return f"did you mean `-cfg {option}`?"
    if found := _elsewhere(command, flag):
        return found
    if own[1:] and not name:
        return f"an argument of the component, as in: torchx run COMPONENT {_shown(own[1], value or 'VALUE')}"
    if own[1:] or given:
        return None
    for scheduler in BUILT_IN:
        if option := _run_option(scheduler, flag, value):
            return f"a run option of {scheduler}: -s {scheduler} -cfg {option}"
    return None


def of_component_flag(component: str, error: ArgumentError, run_flags: FlagTable) -> str | None:
    """Returns the hint for a wrong flag of a component, None if the error itself has the best one.

    Args:
        component: the name of the component.
        error: the error about the flag.
        run_flags: the flags of `torchx run`.
    """
    if error.code == NO_VALUE and error.flag == "-h":
        return f"for help: torchx run {component} --help"
    if error.code != UNKNOWN:
        return None
    outline = component_flags.outline_of(component)
    own = component_flags.flags_of(outline).exact if outline is not None else {}
    for flag in _component_flags(error.flag):
        if same(flag) in own:
            return f"did you mean `{_shown(flag)}`?"
    if same(error.flag) in run_flags.exact:
        return f"`{error.flag}` is a flag of torchx run: put it before {component}"
    return None


def _component_in(args: Sequence[str]) -> tuple[str, FlagTable]:
    """Returns the component on a command line of `torchx run`, and its flags; both are empty without one."""
    for arg in args:
        if "." in arg or ":" in arg:
            with suppress(TorchxError, OSError, ValueError):
                outline = component_flags.outline_of(arg)
                if outline is not None:
                    return arg, component_flags.flags_of(outline)
    return "", FlagTable([])


def _shown(flag: str, value: str = "") -> str:
    """Returns a flag of a component in its shortest form; `-j` with the form of its value."""
    short = flag.removeprefix("-") if len(flag) == 3 else flag
    return f"{short} NODESxPROCESSES" if short == "-j" else f"{short} {value}".rstrip()


def _value_of(flag: str, args: Sequence[str]) -> str:
    for arg, following in zip(args, [*args[1:], ""], strict=True):
        if arg.startswith(f"{flag}="):
            return arg.partition("=")[2]
        if arg == flag:
            return "" if following.startswith("-") else following
    return ""


def _run_option(scheduler: str, flag: str, value: str, *, undeclared: bool = False) -> str:
    """Returns the run option of a scheduler that has the name of a flag, with a value; may be empty.

    Args:
        scheduler: the scheduler.
        flag: the flag.
        value: its value; may be empty.
        undeclared: also options that the scheduler passes on, and letters that its own tools use.
    """
    name = flag.lstrip("-")
    name = _SHORT.get(f"{scheduler} {name}", name) if undeclared else name
    with suppress(TorchxError):
        options = create_scheduler(scheduler, "").run_opts()
        for each in (name, name.replace("-", "_")):
            option = options.get(each)
            if option is not None and (undeclared or each in options):
                return f"{each}={'true' if option.opt_type is bool else value or 'VALUE'}"
    return ""


def _rows(table: str) -> Iterator[list[str]]:
    return ([part.strip() for part in line.split(" | ")] for line in table.strip().split("\n"))


def _component_flags(flag: str) -> list[str]:
    """Returns the flags of components with this name or, in another tool, this meaning."""
    name, found = flag.lstrip("-"), list[str]()
    for flags, names in _rows(_COMPONENT):
        own = flags.split()
        if name in own:
            return [f"--{name}"]
        if name in names.split():
            found += [f"--{each}" for each in own]
    return found


def _elsewhere(command: str, flag: str) -> str | None:
    name = flag.lstrip("-")
    for commands, own, names in _rows(_FLAGS):
        if command in commands.split() and name in names.split():
            return f"did you mean `{own}`?"
    for commands, names, text in _rows(_TEXTS):
        if command in commands.split() and name in names.split():
            return text
    return None
