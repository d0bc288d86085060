"""The parts of a Slurm job's script that are the same in every script."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PORTS = """\
ports=" "
free_port() {  # the first free one here, from the number of the job on: jobs may share a node
    port=$(($1 + SLURM_JOB_ID % 1000))
    ((port <= 65535)) || port=$((port - 64512))  # on from 1024
    while [[ $ports = *" $port "* ]] || (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
        port=$((port < 65535 ? port + 1 : 1024))
    done
    ports+="$port "
}"""

KEEP = """\
# one attempt after the other, each with its output and its end in a folder of its own
torchx_place=$torchx_folder/$torchx_role/$torchx_replica
torchx_attempt=$TORCHX_SLURM_ATTEMPT torchx_told=
unset TORCHX_FOLDER TORCHX_SLURM_ATTEMPT TORCHX_RETRIES TORCHX_APP_ID
trap 'torchx_told=yes' TERM
torchx_run_plainly() {  # on a node without Python: no times, no merging by time
    torchx_mask=$(umask)
    umask 077
    while mkdir -p "$torchx_place" && ! mkdir "$torchx_place/attempt-$torchx_attempt" 2> /dev/null; do
        torchx_attempt=$((torchx_attempt + 1))
    done
    torchx_at=$torchx_place/attempt-$torchx_attempt
    (
        umask "$torchx_mask"
        export TORCHX_ATTEMPT="$torchx_attempt"
        while [ "$1" != -- ]; do  # no program may have them as arguments, which other users can see
            command export "$1" 2> /dev/null
            shift
        done
        shift
        exec "$@"
    ) > "$torchx_at/stdout.log" 2> "$torchx_at/stderr.log" < /dev/null
    set -- $?
    torchx_end="\\"exit_code\\": $1, \\"host\\": \\"$SLURMD_NODENAME\\", \\"ended_at\\": $(date +%s)"
    echo "{$torchx_end${torchx_told:+, \\"told\\": \\"SIGTERM\\"}}" > "$torchx_at/end.json"
    umask "$torchx_mask"
    return "$1"
}
while :; do
    # printf has to be part of the shell: the arguments of a program can be seen by other users
    if command -v python3 > /dev/null && [ "$(command -v printf)" = printf ]; then
        printf '%s\\0' "$@" | python3 -I -S "$torchx_folder/keeper.py" "$torchx_place" "$torchx_attempt"
    else
        torchx_run_plainly "$@"
    fi
    torchx_code=$?
    { [ "$torchx_code" = 0 ] || [ -n "$torchx_told" ]; } && exit "$torchx_code"
    if [ "$torchx_retries" -le 0 ]; then  # the job ends as its first failure did
        (umask 077; set -C; echo "$torchx_code" > "$torchx_folder/first") 2> /dev/null
        exit "$torchx_code"
    fi
    torchx_retries=$((torchx_retries - 1))
done"""
"""Follows the arguments of each role; plain sh, so that it runs in small containers as well."""

STEP = """\
step() {  # runs a step to its end; without job control, since under it a suspended step would count as ended
    local code
    trap 'stopped=yes; [ ! -e "$folder/stopping" ] || kill -TERM "$srun"' TERM
    (umask "$mask"; exec srun "$@") & srun=$!
    while wait "$srun"; code=$?; ((code > 128)) && kill -0 "$srun" 2> /dev/null; do :; done
    return "$code"
}"""
"""Runs srun for one role, and hands a request to end on to it."""

BEGIN = """\
begin() {  # runs a role, and leaves what it ended with
    local ended=0
    rm -f "$folder/.ended-$1"
    "role_$1" || ended=$?
    echo "$ended" > "$folder/.ended-$1"
    return "$ended"
}"""
"""Runs one role in the background."""


@cache
def keeper_text() -> str:
    """Returns the program that looks after a replica, as it goes to the nodes."""
    return (Path(__file__).with_name("replica_agent.py")).read_text(encoding="utf-8").rstrip("\n")
