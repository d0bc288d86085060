"""The hint of an unknown flag: of the component, of the scheduler, or as other tools call it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress

from torchx.command_line import FALSE_TEXTS, NO_VALUE, TRUE_TEXTS, UNKNOWN, ArgumentError, FlagTable, same
from torchx.config import load_config
from torchx.config.paths import located_component
from torchx.errors import TorchxError
from torchx.printable import table
from torchx.schedulers import BUILT_IN, DEFAULT_SCHEDULER, create_scheduler
from torchx_cli import component_flags

_COMPONENT = """
num_replicas j | n N nodes num-nodes num_nodes nnodes ntasks replicas instances count scale workers
j | nproc_per_node nproc-per-node nproc ntasks-per-node gpus-per-node processes
gpu | gpus num-gpus num_gpus accelerator accelerators
cpu | cpus num-cpus num_cpus cpus-per-task vcpus
memMB | memory mem ram
image | container container-image docker-image
mounts | v volume volumes mount bind
max_retries | retries retry restart max-restarts max_restarts backoff-limit
env | e envs environment
entrypoint | command
m | module
script | file
"""
"""Flags of components | the names of other tools."""

_FIELDS = table(
    """
--gpu: Resource(gpu=...)
--cpu: Resource(cpu=...)
--memMB: Resource(memMB=...)
--image: Role(image=...)
--mounts: Role(mounts=...)
--max_retries: Role(max_retries=...)
--num_replicas: Role(num_replicas=...)
"""
)
"""Flag -> the field of a role that a component without this flag sets."""

_FLAGS = """
run rerun | --detach | detached background bg daemon
run rerun | --env | e envs environment
run | --time-limit | t time timeout walltime max-time max-duration
run rerun | --name | J job-name job_name
run rerun | --name VALUE | n
run | --workspace | w workdir working-dir working_dir chdir cwd context
run rerun | --log | follow attach logs stream tail no-detach foreground
run rerun | --tag | l label labels tags
run rerun | --note | comment message description
run rerun | --notify | mail-user mail-type email
run | --each | array sweep matrix grid
run | a shell command: torchx run utils.sh 'COMMAND' | wrap
run | --after | dependency depends-on depends_on wait-for needs
run rerun | -s | infra executor engine
run rerun | --secret | secrets
torchx | --version | v V
log | --streams stderr | stderr err errors error
log | --streams stdout | stdout out
log | -n | limit last max
log | for the first lines, pipe it into head | head
log | --regex | grep filter pattern search
log | --no-prefix | raw no-log-prefix
results | --best=-VALUE | max maximize maximum
results | --best VALUE | min minimize minimum
list events results | -n | limit last max max-items
list | --state | status filter states
list | --state running | running active r
list | --state failed | failed
list status describe why events results diff | -o | format output-format
prune | --older-than VALUE | age before until
status describe | --watch | f follow live refresh
cancel delete | --all | a
cancel delete prune | --yes | assume-yes noconfirm
prune | --yes | f force
delete | --force | f
attach | -n | tail last max limit
attach | the result as JSON: torchx wait -o json; the lines: torchx log -f -o json | o output json format
run | jobs that need GPUs wait for them by themselves; to fail instead: --no-queue | queue wait-for-gpu
run | leave it out: ended applications stay until you delete them | rm
run | a run option of slurm: -s slurm -cfg partition=VALUE | p
run | to reach a port of a running replica: torchx port APP PORT | p publish ports expose
run | a component defines the application, not YAML: torchx builtins | f filename
run | leave it out: torchx sets torchrun's rendezvous and ranks | standalone node_rank master_addr master_port
run | leave it out: torchx sets torchrun's rendezvous and ranks | node-rank master-addr master-port
run | leave it out: torchx sets torchrun's rendezvous and ranks | rdzv_endpoint rdzv-endpoint rdzv_id rdzv-id
run | leave it out: /dev/shm has the size of the memory, Resource(memMB=...) | shm-size shm_size ipc
run | leave it out: the containers of local_docker share a network, local_cwd has the machine's | network net
run | leave it out: local_docker pulls the image before each run | pull
run | leave it out: the programs run as you, and in a container as the user of its image | user u
run | leave it out: torchx starts no machines; it runs on those of the scheduler | spot use-spot
run | a run shows its output; for a shell in a replica: torchx exec APP sh | it i tty interactive
list | yours are listed, also ended ones; those of all users: --all-users | a all u user users A
list | --tag | selector label labels
list | to watch running applications: torchx top | w watch f follow
exec | leave it out, the program has a terminal if stdin is one: torchx exec APP sh | t it ti tty interactive
prune | all ended applications: torchx prune --older-than 0 | all a
cancel delete | a named one is changed immediately; --all and --state list first, and confirm | dryrun dry-run
wait | --for 'log:VALUE' | log grep regex pattern
wait | --for VALUE | until condition event
delete | by their age: torchx prune --older-than AGE | older-than age
log | the lines of all replicas are merged, in the order of their times | merged merge interleave
log | to ignore case: --regex '(?i)PATTERN' | i ignore-case
log | a log has the lines of all attempts | attempt attempts retry previous p
log | name the replica: torchx log APP/ROLE/0 | c container
log | a log has the lines of all replicas | all-containers all-pods
list | it is sorted: the newest are first | sort order sort-by
list | to choose columns: --columns | l long wide
results | all rows and columns as data: -o csv or -o json | columns fields filter where
queue | to repeat it: watch torchx queue | watch w f follow
top | to print them once: torchx list, or torchx status APP | once batch b
top | only some applications: torchx top APP | n limit max
cancel | KILL follows after the grace period: torchx cancel APP | f force signal
"""
"""Commands | the flag, or a sentence | the names of other tools."""

_OWN_FLAGS = ("env", "name", "workspace", "tag", "note", "notify", "secret")
"""Flags of `torchx run` that a user may take for run options."""

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
    other = _elsewhere(command, flag, _value_of(flag, args))
    if other and other.startswith("-"):
        other = f"did you mean `{other}`?"
    if command not in ("run", "rerun"):
        return other
    name, table = _component_in(args)
    value, given = _value_of(flag, args), _value_of("-s", args) or _value_of("--scheduler", args)
    is_own = same(flag) in table.exact
    if is_own or not (other or f"{given} {flag[1:]}" in _SHORT):
        if is_own:
            meant = [same(flag)]
        else:
            meant = _component_flags(flag)
        hint = _of_component(command, flag, meant, name, table, args)
        if hint:
            return hint
    if value == name != "":  # a switch
        value = "true"
    return _of_scheduler(flag, value, given, other)


def _of_component(
    command: str, flag: str, meant: Sequence[str], name: str, table: FlagTable, args: Sequence[str]
) -> str | None:
    """Returns the hint for a flag that means one of a component, which may not have it."""
    if not meant:
        return None
    if command == "rerun":
        return "to change a flag of the component: --set FLAG=VALUE"
    if not name:
        return f"an argument of the component, as in: torchx run {_example(flag, meant[0], args)}"
    own = [_shown(each) for each in meant if each in table.exact]
    if own:
        return f"`{own[0]}` is a flag of {name}: put it after {name}"
    return _of_field(name, flag)


def _of_field(component: str, flag: str) -> str | None:
    """Returns the hint for a flag that a component lacks, and that means a field of its roles."""
    field = next((_FIELDS[each] for each in _component_flags(flag) if each in _FIELDS), None)
    return field and f"{component} has no flag for it; its function sets {field}"


def of_retries(component: str) -> str:
    """Returns how to set the retries of a component, which may have no flag for them.

    >>> of_retries("utils.sh"), of_retries("utils.echo")
    ('--max_retries N after the component', 'set Role(max_retries=...) in its function')
    """
    if "--max_retries" in _component_in([component])[1].exact:
        return "--max_retries N after the component"
    return "set Role(max_retries=...) in its function"


def _example(typed: str, flag: str, args: Sequence[str]) -> str:
    """Returns arguments of `torchx run` with a flag of a component that was given without its component.

    Args:
        typed: the flag as typed.
        flag: the flag of a component that it means.
        args: the arguments of the command.
    """
    at = next((at for at, arg in enumerate(args) if arg.partition("=")[0] == typed), 0)
    with suppress(TorchxError):
        named = load_config().get("cli:run", "component")
        if named is not None and flag in _component_in([located_component(named)])[1].exact:
            return shlex.join(["--", *args[at:]])
    example = _shown(flag, _value_of(typed, args) or "VALUE")
    for place, arg in enumerate(args):
        if arg.endswith(".py") and flag not in ("--script", "--m"):
            component = {"--j": "dist.torchrun"}.get(flag, "utils.python")
            return _with_script([component, *example.split(" ", 1), "--script", arg], args[place + 1 :])
    return f"COMPONENT {example}"


def _with_script(run: Sequence[str], rest: Sequence[str]) -> str:
    """Returns a command line with the arguments of a script after `--`."""
    dashes = ["--"] * (rest[:1] not in ([], ["--"]))
    return shlex.join([*run, *dashes, *rest])


def of_program(instead: Sequence[str], argv: Sequence[str]) -> str:
    """Returns the hint for a script or a program in place of a component, with its arguments.

    Args:
        instead: the arguments of `torchx run` that run it.
        argv: the arguments that follow its name.
    """
    if instead[-1] == "torchrun":
        return _of_torchrun(argv)
    if instead[0] != "utils.python":
        return f"to run it: torchx run {shlex.join([*instead, *argv])}"
    if argv[:1] == ["-j"]:
        instead, argv = ["dist.torchrun", *argv[:2], *instead[1:]], argv[2:]
    return f"to run it: torchx run {_with_script(instead, argv)}"


def _of_torchrun(argv: Sequence[str]) -> str:
    """Returns the hint for torchrun in place of a component, with its script and its numbers of processes.

    >>> _of_torchrun(["--nproc", "2", "a.py", "x"])
    'to run it: torchx run dist.torchrun -j 1x2 --script a.py -- x'
    """
    at = next((at for at, arg in enumerate(argv) if arg.endswith(".py")), len(argv))
    counts = [
        _value_of(name, argv[:at]) or _value_of(name.replace("_", "-"), argv[:at])
        for name in ("--nnodes", "--nproc_per_node", "--nproc")
    ]
    j = f"{counts[0] or 1}x{counts[1] or counts[2] or 1}"
    run = ["dist.torchrun", "-j", j, "--script", *(argv[at : at + 1] or ["PATH"])]
    return f"to run it: torchx run {_with_script(run, argv[at + 1 :])}"


def _of_scheduler(flag: str, value: str, given: str, other: str | None) -> str | None:
    """Returns the hint for a flag that may be a run option, or else has another meaning."""
    if option := _run_option(given or DEFAULT_SCHEDULER, flag, value, undeclared=True):
        return f"did you mean `-cfg {option}`?"
    if other or given:
        return other
    return of_option(flag, value)


def of_option(name: str, value: str = "") -> str | None:
    """Returns the hint for a run option of another scheduler, or for a flag with its name.

    Args:
        name: the name of the option, or the flag.
        value: its value; may be empty.
    """
    if name in _OWN_FLAGS:
        return f"a flag of torchx run: --{name} VALUE"
    for scheduler in BUILT_IN:
        if option := _run_option(scheduler, name, value, undeclared=len(name) > 2):
            return f"a run option of {scheduler}: -s {scheduler} -cfg {option}"
    return None


def number_of_lines(args: Sequence[str]) -> str | None:
    """Returns the number of lines after a flag of `torchx log` that takes no value.

    >>> number_of_lines(["log", "--tail", "100", "@last"]), number_of_lines(["log", "@last", "x"])
    ('100', None)
    """
    match = re.search(r" -(?:[ft][ =]|-tail[ =]|-follow[ =]|)(\d+)( |$)", " ".join(args))
    return match and match[1]


def of_number(args: Sequence[str]) -> str | None:
    """Returns the hint for :func:`number_of_lines`."""
    lines = number_of_lines(args)
    return lines and f"for the last lines: -n {lines}"


def of_component_flag(
    component: str, error: ArgumentError, args: Sequence[str], run_flags: FlagTable
) -> str | None:
    """Returns the hint for a wrong flag of a component, None if the error itself has the best one.

    Args:
        component: the name of the component.
        error: the error about the flag.
        args: the arguments of the component.
        run_flags: the flags of `torchx run`.
    """
    if not error.flag.startswith("-"):
        return None  # a name in --each or --stdin
    if error.code == NO_VALUE and error.flag == "-h":
        return f"for help: torchx run {component} --help"
    names = (arg.partition("=")[0] for arg in args if arg.startswith("--"))
    typed = next((name for name in names if name != "--" and error.flag.startswith(name)), error.flag)
    value, table = _value_of(typed, args), _component_in([component])[1]
    size = _megabytes(value)
    if error.flag == "-j" and component == "utils.python":
        return f"a flag of dist.torchrun: torchx run dist.torchrun {shlex.join(args)}"
    for flag in _component_flags(error.flag):
        if flag in table.exact and (error.code == UNKNOWN or (size and flag == "--memMB")):
            return f"did you mean `{_shown(flag, size * (flag == '--memMB'))}`?"
    if error.code != UNKNOWN:
        return None
    if same(error.flag) in run_flags.exact:
        return f"`{error.flag}` is a flag of torchx run: put it before {component}"
    meant = _elsewhere("run", error.flag, value)
    if meant and (meant.startswith("-") or error.flag.startswith("--")):
        if meant.startswith("-"):
            meant = f"`{meant} {value}` is a flag of torchx run: put it before {component}"
        return f"{meant}   {error.hint}"
    if field := _of_field(component, error.flag):
        return f"{field}   {error.hint}"
    return None


def _megabytes(size: str) -> str:
    """Returns the number of a size such as `4G` in megabytes; empty for other texts.

    >>> _megabytes("4G"), _megabytes("512MiB"), _megabytes("4096"), _megabytes("all")
    ('4096', '512', '', '')
    """
    match = re.fullmatch(r"(\d{1,9})([MGT])i?B?", size, re.ASCII | re.IGNORECASE)
    if match is None:
        return ""
    return str(int(match[1]) * 1024 ** "MGT".index(match[2].upper()))


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
    if len(flag) == 3:
        flag = flag.removeprefix("-")
    if flag == "--memMB":
        value = _megabytes(value) or value
    if flag == "-j" and not re.fullmatch(r"\d+x\d+", value):
        value = "NODESxPROCESSES"
    return f"{flag} {value}".rstrip()


def _value_of(flag: str, args: Sequence[str]) -> str:
    for arg, following in zip(args, [*args, ""][1:], strict=True):
        if arg.startswith(f"{flag}="):
            return arg.partition("=")[2]
        if arg == flag and not following.startswith("-"):
            return following
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
    if undeclared:
        name = _SHORT.get(f"{scheduler} {name}", name)
    with suppress(TorchxError):
        options = create_scheduler(scheduler, "").run_opts()
        known = frozenset(options._names() if undeclared else dict(options))
        for each in (name, name.replace("-", "_")):
            option = None
            if each in known:
                option = options.get(each)
            if option is not None:
                if option.opt_type is bool and value not in TRUE_TEXTS | FALSE_TEXTS:
                    value = "true"
                return f"{each}={shlex.quote(value) if value else 'VALUE'}"
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


def _elsewhere(command: str, flag: str, value: str) -> str | None:
    """Returns the flag that other tools call so, or a sentence; None without either."""
    for commands, template, names in _rows(_FLAGS):
        fits = "VALUE" not in template or not value.replace(":", "").isdigit()
        if fits and command in commands.split() and flag.lstrip("-") in names.split():
            return template.replace("VALUE", value or "NAME")
    return None
