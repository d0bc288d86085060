"""The script of a Slurm job: a pure function of an application and its run options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchx import settings
from torchx.errors import UsageError
from torchx.schedulers.slurm.directives import directives, srun_options
from torchx.schedulers.slurm.paths import role_folder
from torchx.schedulers.slurm.quoting import APP_ID, IMG_ROOT, REPLICA_ID, heredoc, word
from torchx.schedulers.slurm.script_parts import BEGIN, KEEP, PORTS, STEP, keeper_text
from torchx.specs.app import AppDef, RetryPolicy, Role
from torchx.specs.handles import make_app_handle
from torchx.specs.macro import macros
from torchx.specs.run_options import CfgVal
from torchx.version import __version__

LONGEST_TEXT = 131_000
"""Bytes of one argument or one variable: the kernel takes 128 KiB."""
LONGEST_ALL = 1_500_000
"""Bytes of all arguments and variables of a replica: the kernel takes 2 MiB as a rule."""

ROLES_END = "END_OF_ROLES"
"""Ends the part of a script that holds the arguments and the environment of the roles."""
_ROLES = re.compile(rf"^# the roles, up to the line ({ROLES_END}_*)\n.*?^# \1\n", re.MULTILINE | re.DOTALL)

KEEPER = "KEEPER"
"""Ends the program that looks after a replica, which the script carries behind its own end."""


@dataclass(frozen=True)
class Place:
    """What a script is made for.

    Attributes:
        name: the name of the job, unique.
        folder: the folder of its logs, that all nodes see.
        session: the session part of its handle.
        mark: what stands in its comment, so that it is known as one of torchx.
        roots: the folder that each role starts in, where it has one of its own.
    """

    name: str
    folder: str
    session: str
    mark: str
    roots: Mapping[str, str]


def script_of(app: AppDef, cfg: Mapping[str, CfgVal], place: Place) -> str:
    """Returns the script that sbatch takes, also from a person's hand.

    Raises:
        UsageError: an argument or a variable cannot be, or they are too long.
    """
    _check(app)
    lines = ["#!/bin/bash", *directives(app, cfg, place.name, place.mark), ""]
    lines += [
        f"# {_what(app)}",
        f"# Made by torchx {__version__}; sbatch takes it from a person's hand, too.",
        "",
    ]
    tasks = [_task(role, place) for role in app.roles]
    mark, end = (_absent(name, tasks) for name in (KEEPER, ROLES_END))
    lines += _begin(app, place, mark)
    lines += ["", *heredoc("keep", KEEP), "", f"# the roles, up to the line {end}"]
    for number, (role, task) in enumerate(zip(app.roles, tasks, strict=True)):
        lines += [f"# each replica of {_shown(role.name)}", *heredoc(f"task_{number}", task)]
        lines.append(f'printf "%s\\n%s\\n" "$task_{number}" "$keep" > "$folder/.new" || exit 73')
        lines.append(f'mv "$folder/.new" "$folder/role-{number}.sh" || exit 73')
    lines += [f"# {end}", "", *STEP.splitlines()]
    for number, role in enumerate(app.roles):
        lines += _start(number, role, app, cfg)
    lines += _run(app, cfg)
    lines += [
        "",
        "# the program that looks after a replica, written to the folder above",
        f": <<'{mark}'",
        keeper_text(),
        mark,
    ]
    return "\n".join(lines) + "\n"


def without_roles(script: str) -> tuple[str, str]:
    """Returns a script as sbatch is given it, and what it reads from the folder of the job.

    Slurm keeps a script, and shows it to operators and with ``sacct --batch-script``: arguments and
    environment of the roles are not in it, but in a private file.

    Returns:
        The script without the roles, and the roles; these are empty where the script has none to take out.
    """
    found = _ROLES.search(script)
    if found is None:
        return script, ""
    reads = '. "$first/roles.sh" || exit 73  # arguments and environment of the roles: a private file\n'
    return script[: found.start()] + reads + script[found.end() :], found[0]


def _absent(mark: str, tasks: Sequence[str]) -> str:
    """Returns a mark that none of the tasks contains."""
    while any(mark in task for task in tasks):
        mark += "_"
    return mark


def again_at_once(cfg: Mapping[str, CfgVal], app: AppDef) -> bool:
    """Tells whether a retry of the whole takes place on the nodes that the job has."""
    return cfg.get("requeue") is False and whole_retries(app) > 0


def whole_retries(app: AppDef) -> int:
    """Returns how often the application is started again as a whole: as often as all of its roles allow."""
    tries = [role.max_retries for role in app.roles if role.retry_policy is RetryPolicy.APPLICATION]
    return min(tries, default=0)


def _what(app: AppDef) -> str:
    roles = ", ".join(f"{role.num_replicas} x {_shown(role.name)}" for role in app.roles)
    return f"{_shown(app.name)}: {roles}"


def _shown(name: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def _begin(app: AppDef, place: Place, mark: str) -> Iterator[str]:
    yield "mask=$(umask)"
    yield "umask 077"
    yield f"first={word(place.folder)}"
    yield 'for folder in "$first" "$first-$SLURM_JOB_ID"; do  # the second is of a second job of this script'
    yield '    mkdir -p "$folder" || exit 73  # all nodes have to see this folder'
    yield '    if [ ! -O "$folder" ] || [ -L "$folder" ]; then exit 73; fi  # it is not the caller\'s own'
    yield '    (set -C; echo "$SLURM_JOB_ID" > "$folder/id") 2> /dev/null'
    yield '    [ "$(cat "$folder/id")" != "$SLURM_JOB_ID" ] || break'
    yield "done"
    yield 'exec >> "$folder/batch.log" 2>&1'
    yield 'rm -f "$folder"/{over,outcome.json,stopping,stopped,first}'
    yield "attempt=$((${SLURM_RESTART_COUNT:-0} + 1))"
    yield 'echo "$attempt" > "$folder/attempt"; echo "== attempt $attempt"'
    yield "stopped="
    yield "trap 'stopped=yes' TERM  # cancelled, out of time, or preempted"
    yield ""
    yield "export TORCHX_FOLDER=$folder TORCHX_APP_ID=$SLURM_JOB_ID TORCHX_SLURM_ATTEMPT=$attempt"
    yield "export PYTHONUNBUFFERED=1 SLURM_UNBUFFEREDIO=1"
    yield f"export TORCHX_MAX_RETRIES={max((role.max_retries for role in app.roles), default=0)}"
    yield "nodes=${SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}"
    yield f'{settings.TORCHX_RANK0_HOST}=$(scontrol show hostnames "$nodes" | head -n 1)'
    yield f"export {settings.TORCHX_RANK0_HOST}=${{{settings.TORCHX_RANK0_HOST}:-$SLURMD_NODENAME}}"
    ports = {name: port for role in reversed(app.roles) for name, port in role.port_map.items()}
    if ports:
        yield from PORTS.splitlines()
    for name, port in ports.items():
        yield f"free_port {int(port)}; export {_variable(name)}=$port"
    yield f"""sed "1,/^: <<'{mark}'$/d; /^{mark}$/d" "$0" > "$folder/.keeper\""""
    yield 'mv "$folder/.keeper" "$folder/keeper.py"'


def _variable(port: str) -> str:
    return "TORCHX_PORT_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in port.upper())


def _task(role: Role, place: Place) -> str:
    """Returns what a replica does: its folder, then what its program gets, environment and words.

    The variables of a role are for its program alone: what runs it must not stumble over its PATH.
    """
    root = place.roots.get(role.name, "")
    values = macros.Values(
        img_root=IMG_ROOT, app_id=APP_ID, replica_id=REPLICA_ID, rank0_env=settings.TORCHX_RANK0_HOST
    )
    filled = values.apply(role)
    folder = role_folder(role.name)
    handle = make_app_handle("slurm", place.session, APP_ID)
    env = {
        settings.TORCHX_JOB_ID: handle,
        settings.TORCHX_REPLICA: f"{role.name}/{REPLICA_ID}",
    }
    lines = [
        "torchx_replica=$SLURM_PROCID torchx_app=$TORCHX_APP_ID torchx_folder=$TORCHX_FOLDER",
        f"torchx_role={word(folder)} torchx_root={word(root)} torchx_retries=$TORCHX_RETRIES",
        'export TORCHELASTIC_ERROR_FILE="$torchx_folder/$torchx_role/$torchx_replica/error.json"',
        'export PET_LOG_DIR="$torchx_folder/torchelastic/$torchx_role"',
        *(f"export {name}={word(value)}" for name, value in env.items()),
    ]
    if root:
        lines.append('cd "$torchx_root" || exit 74')
    given = [f"{name}={value}" for name, value in filled.env.items()], [filled.entrypoint, *filled.args]
    _check_length(role, [*given[0], *given[1]])
    variables = [f"{name}={word(value)}" for name, value in filled.env.items()]
    lines.append("set -- " + " \\\n  ".join([*variables, "--", *map(word, given[1])]))
    return "\n".join(lines)


def _check_length(role: Role, texts: Sequence[str]) -> None:
    sizes = [len(text.encode("utf-8", "surrogateescape")) for text in texts]
    if max(sizes) > LONGEST_TEXT or sum(sizes) > LONGEST_ALL:
        raise UsageError(
            f"arguments and environment of role `{role.name}` are too long for one command",
            hint="put long ones into a file",
        )


def _start(number: int, role: Role, app: AppDef, cfg: Mapping[str, CfgVal]) -> Iterator[str]:
    alone = role.max_retries if role.retry_policy is RetryPolicy.REPLICA else 0
    together = role.max_retries if role.retry_policy is RetryPolicy.ROLE else 0
    options = srun_options(role, cfg, number if len(app.roles) > 1 else None)
    program = f'"$folder/role-{number}.sh" {word(role_folder(role.name))}'
    srun = f"TORCHX_RETRIES={alone} step {options} \\\n        sh {program}"
    yield f"role_{number}() {{"
    if together:
        yield f"    local code tries={together}"
        yield f"    until {srun}"
        yield "    do"
        yield "        code=$?"
        yield '        [ -z "$stopped" ] && [ ! -e "$folder/stopping" ] && ((tries-- > 0)) || return "$code"'
        yield '        rm -f "$folder/first"'
        yield "    done"
    else:
        yield f"    {srun}"
    yield "}"


def _run(app: AppDef, cfg: Mapping[str, CfgVal]) -> Iterator[str]:
    """Yields the end of the script: all roles together, and the steps after a failure."""
    yield from BEGIN.splitlines()
    yield "run() {"
    yield "    local code=0 left=0 result number"
    yield '    rm -f "$folder/first"'
    for number in range(len(app.roles)):
        yield f"    begin {number} & left=$((left + 1))"
    yield "    while ((left > 0)); do"
    yield "        wait -n; result=$?"
    yield '        [ -n "$stopped" ] && break'
    yield "        left=$((left - 1))"
    yield "        ((code)) || code=$result"
    if cfg.get("fail_fast", True) and len(app.roles) > 1:
        yield "        if ((result && left)); then  # the others are ended, too"
        yield '            touch "$folder/stopping"'
        yield '            timeout 20 scancel --signal=TERM "$SLURM_JOB_ID"'
        yield '            for _ in $(seq 100); do [ -n "$(jobs -rp)" ] || break; sleep 0.1; done'
        yield '            for role in $(jobs -rp); do kill -TERM "$role"; done'
        yield "            wait; break"
        yield "        fi"
    yield "    done"
    yield '    [ -z "$stopped" ] || wait'
    yield '    if ((code)) && [ -s "$folder/first" ]; then read -r code < "$folder/first"; fi'
    yield f"    for number in {' '.join(str(number) for number in range(len(app.roles)))}; do"
    yield "        ((code == 0)) || break"
    yield '        read -r code < "$folder/.ended-$number" || code=1  # not ended: no success'
    yield "    done"
    yield '    return "$code"'
    yield "}"
    yield ""
    retries = whole_retries(app)
    at_once = again_at_once(cfg, app)
    if at_once:
        yield f"retries={retries}"
        yield "until run; do"
        yield "    code=$?"
        yield '    { [ -z "$stopped" ] && ((retries-- > 0)); } || break'
        yield "    export TORCHX_SLURM_ATTEMPT=$((TORCHX_SLURM_ATTEMPT + 1))"
        yield '    echo "$TORCHX_SLURM_ATTEMPT" > "$folder/attempt"; echo "== attempt $TORCHX_SLURM_ATTEMPT"'
        yield "    code=0"
        yield "done"
        yield "code=${code:-0}"
    else:
        yield "run; code=$?"
    yield 'if [ -n "$stopped" ]; then'
    yield '    touch "$folder/stopped"  # who waits may look now'
    yield '    exit "$((code ? code : 143))"'
    yield "fi"
    yield "if ((code)) && tail -n 4 \"$folder/batch.log\" | grep -qE 'has expired|already complet'; then"
    yield '    exit "$code"  # Slurm was ending the job before that was heard of here: its own word counts'
    yield "fi"
    if retries and not at_once:
        yield f"if ((code && attempt <= {retries})); then"
        yield '    timeout 60 scontrol requeue "$SLURM_JOB_ID" && exit "$code"'
        yield "fi"
    yield f'echo "$SLURM_JOB_ID $code $(date +%s) {len(app.roles)}" > "$folder/.over"'
    yield 'mv "$folder/.over" "$folder/over"'
    yield 'exit "$code"'


def _check(app: AppDef) -> None:
    for role in app.roles:
        for text in (role.entrypoint, *role.args):
            if "\0" in text:
                raise UsageError(f"role `{role.name}` has a zero byte in the argument {text!r}")
        for name, value in role.env.items():
            if "\0" in value or not (name.isidentifier() and name.isascii()):
                raise UsageError(
                    f"role `{role.name}` has an environment variable that no shell can set: {name!r}"
                )
