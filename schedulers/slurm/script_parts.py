"""Constant parts of the scripts of Slurm jobs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

PORTS = """\
ports=" "
free_port() {  # finds a free port; the search depends on the job id, as jobs may share a node
    port=$(($1 + SLURM_JOB_ID % 1000))
    ((port <= 65535)) || port=$((port - 64512))  # continue from 1024
    while [[ $ports = *" $port "* ]] || (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
        port=$((port < 65535 ? port + 1 : 1024))
    done
    ports+="$port "
}"""

ATTEMPT_LOOP = """\
# runs attempts, each with its output and exit status in its own folder
torchx_place=$torchx_folder/$torchx_role/$torchx_replica
torchx_attempt=$TORCHX_SLURM_ATTEMPT torchx_signalled=
unset TORCHX_FOLDER TORCHX_SLURM_ATTEMPT TORCHX_RETRIES TORCHX_APP_ID
trap 'torchx_signalled=yes' TERM
torchx_run_plainly() {  # on a node without Python: no timestamps
    torchx_mask=$(umask)
    umask 077
    while mkdir -p "$torchx_place" && ! mkdir "$torchx_place/attempt-$torchx_attempt" 2> /dev/null; do
        torchx_attempt=$((torchx_attempt + 1))
    done
    torchx_at=$torchx_place/attempt-$torchx_attempt
    (
        umask "$torchx_mask"
        export TORCHX_ATTEMPT="$torchx_attempt"
        while [ "$1" != -- ]; do  # not passed as arguments, which other users can see
            command export "$1" 2> /dev/null
            shift
        done
        shift
        exec "$@"
    ) > "$torchx_at/stdout.log" 2> "$torchx_at/stderr.log" < /dev/null
    set -- $?
    torchx_end="\\"exit_code\\": $1, \\"host\\": \\"$SLURMD_NODENAME\\", \\"ended_at\\": $(date +%s)"
    echo "{$torchx_end${torchx_signalled:+, \\"stop_signal\\": \\"SIGTERM\\"}}" > "$torchx_at/end.json"
    umask "$torchx_mask"
    return "$1"
}
while :; do
    # printf must be a builtin: other users can see the arguments of a program
    if command -v python3 > /dev/null && [ "$(command -v printf)" = printf ]; then
        printf '%s\\0' "$@" | python3 -I -S "$torchx_folder/keeper.py" "$torchx_place" "$torchx_attempt"
    else
        torchx_run_plainly "$@"
    fi
    torchx_code=$?
    { [ "$torchx_code" = 0 ] || [ -n "$torchx_signalled" ]; } && exit "$torchx_code"
    if [ "$torchx_retries" -le 0 ]; then  # the job exits with the code of its first failure
        (umask 077; set -C; echo "$torchx_code" > "$torchx_folder/first") 2> /dev/null
        exit "$torchx_code"
    fi
    torchx_retries=$((torchx_retries - 1))
done"""
"""Appended to the arguments of each role; plain sh, so that it runs in small containers."""

STEP = """\
step() {  # runs a step to its end; no job control, under which a suspended step would count as ended
    local code
    trap 'stopped=yes; [ ! -e "$folder/stopping" ] || kill -TERM "$srun"' TERM
    (umask "$mask"; exec srun "$@") & srun=$!
    while wait "$srun"; code=$?; ((code > 128)) && kill -0 "$srun" 2> /dev/null; do :; done
    return "$code"
}"""
"""Runs srun for one role and forwards TERM to it."""

BEGIN_ROLE = """\
begin() {  # runs a role and writes its exit code
    local ended=0
    rm -f "$folder/.ended-$1"
    "role_$1" || ended=$?
    echo "$ended" > "$folder/.ended-$1"
    return "$ended"
}"""
"""Runs one role in the background."""


@cache
def agent_text() -> str:
    """Returns the source of the replica agent."""
    return (Path(__file__).with_name("replica_agent.py")).read_text(encoding="utf-8").rstrip("\n")
