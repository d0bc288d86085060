# Runs the attempts of one replica, each with its output and exit status in a folder of its own.
# Read by role-N.sh, which sets the variables torchx_* and the arguments: NAME=VALUE... -- PROGRAM ARGUMENT...
# Plain sh, so that it runs in small containers.
#   torchx_first     the file for the exit code of the first failure, and the number of the role, torchx_number
#   torchx_grace     the seconds from TERM to KILL, if the job ends the replica
#   torchx_host      the name of its host
#   torchx_kills     yes: the batch system does not kill a replica that outlives TERM
# For a service, role-N.sh sets:
#   torchx_ready     the file that exists while the replica is ready
#   torchx_probe     not empty if it has a probe
#   torchx_alone     not empty if the other replicas continue when it fails
#   torchx_optional  yes: the job continues without the service; alone: or without this replica

torchx_place=$torchx_folder/$torchx_role/$torchx_replica
torchx_attempt=$TORCHX_JOB_ATTEMPT torchx_signalled= torchx_used=0
if [ "$torchx_retries" -gt 0 ] && [ "$torchx_attempt" -gt 1 ]; then  # counted for the whole job
    read -r torchx_used 2> /dev/null < "$torchx_place/.retried" || torchx_used=0
fi
unset TORCHX_FOLDER TORCHX_JOB_ATTEMPT TORCHX_RETRIES TORCHX_APP_ID TORCHX_NODE_LOGS TORCHX_JOB_DIR
torchx_noticed= torchx_pid=
trap 'torchx_signalled=yes; torchx_end_plain' TERM
trap 'torchx_noticed=yes' URG

torchx_is_ending() {  # after the notice of the time limit, the end of a program is neither a failure nor retried
    [ -n "$torchx_noticed" ] || [ -e "$torchx_folder/.noticed" ] ||
        { [ -n "$TORCHX_NOTICE" ] && [ -n "$TORCHX_ENDS_AT" ] &&
            [ "$(date +%s)" -ge "$((TORCHX_ENDS_AT - ${TORCHX_NOTICE%%[.:]*}))" ]; }
}

torchx_is_needed() {  # the replica of a service has ended by itself
    [ -n "$torchx_ready" ] && [ ! -e "$torchx_folder/.released" ] && ! torchx_is_ending || return 1
    sleep 1  # the program may have got the signal before this shell
    if [ -e "$torchx_folder/stopping" ] || [ -e "$torchx_folder/cancelled" ]; then torchx_signalled=yes; fi
    [ -z "$torchx_signalled" ]
}

torchx_end_plain() {  # kills a program that runs without the agent after the grace period, if the job ends it
    [ -z "$torchx_pid" ] || { [ -z "$torchx_kills" ] && [ ! -e "$torchx_folder/stopping" ]; } ||
        { trap '' TERM; sleep "$torchx_grace"; torchx_kill "$torchx_pid"; } > /dev/null 2>&1 &
}

torchx_run_plainly() {  # on a node without Python: no timestamps
    torchx_mask=$(umask)
    umask 077
    while mkdir -p "$torchx_place" && ! mkdir "$torchx_place/attempt-$torchx_attempt" 2> /dev/null; do
        torchx_attempt=$((torchx_attempt + 1))
    done
    torchx_at=$torchx_place/attempt-$torchx_attempt torchx_message= torchx_since=
    if [ -n "$torchx_probe" ]; then
        torchx_message=', "msg": "the probe of a service needs Python 3.8 on its node", "cause": ""'
    elif [ -n "$torchx_ready" ]; then
        torchx_since=$(date +%s)
        echo "$torchx_since" > "$torchx_ready"
    fi
    (
        [ -z "$torchx_message" ] || exit 1
        umask "$torchx_mask"
        export TORCHX_ATTEMPT="$torchx_attempt"
        while [ "$1" != -- ]; do  # not passed as arguments, which other users can see
            command export "$1" 2> /dev/null
            shift
        done
        shift
        exec "$@"
    ) > "$torchx_at/stdout.log" 2> "$torchx_at/stderr.log" < /dev/null & torchx_pid=$!
    if [ -e "$torchx_folder/stopping" ]; then kill -TERM "$torchx_pid" $$; fi  # it has missed the signal
    while wait "$torchx_pid"; set -- $?; [ "$1" -gt 128 ] && kill -0 "$torchx_pid" 2> /dev/null; do :; done
    if [ "$1" -gt 128 ]; then  # a signal may have interrupted `wait` while the program ended: 127 if it did not
        torchx_code=0
        wait "$torchx_pid" 2> /dev/null || torchx_code=$?
        [ "$torchx_code" = 127 ] || set -- "$torchx_code"
    fi
    torchx_pid=
    torchx_end="\"exit_code\": $1, \"host\": \"$torchx_host\", \"ended_at\": $(date +%s)$torchx_message"
    torchx_end="$torchx_end${torchx_since:+, \"ready_at\": $torchx_since}"
    if torchx_is_needed; then
        torchx_end="$torchx_end, \"needed\": true"
        [ "$1" != 0 ] || set -- 1
    fi
    echo "{$torchx_end${torchx_signalled:+, \"stop_signal\": \"SIGTERM\"}}" > "$torchx_at/end.json"
    umask "$torchx_mask"
    return "$1"
}

torchx_kill() {  # torchx_kill PROCESS: kills a process and those below it
    kill -STOP "$1" || return
    for torchx_child in $(cat "/proc/$1/task"/*/children); do torchx_kill "$torchx_child"; done
    kill -KILL "$1"
}

torchx_record_kill() {  # the agent was killed: ends its program, and records the end
    torchx_last=0
    for torchx_at in "$torchx_place"/attempt-*; do
        torchx_at=${torchx_at##*-}
        [ "$torchx_at" -le "$torchx_last" ] || torchx_last=$torchx_at
    done 2> /dev/null
    torchx_at=$torchx_place/attempt-$torchx_last
    [ -d "$torchx_at" ] && [ ! -e "$torchx_at/end.json" ] || return
    torchx_pid=$(sed -n 's/.*"pid": \([0-9]*\).*/\1/p' "$torchx_at/start.json")
    [ -z "$torchx_pid" ] || torchx_kill "$torchx_pid"
    torchx_pid=  # of a program that runs without the agent, again
    torchx_end="\"signal\": \"SIGKILL\", \"ended_at\": $(date +%s)${torchx_ready:+, \"needed\": true}"
    if [ -e "$torchx_folder/stopping" ] || [ -e "$torchx_folder/cancelled" ]; then torchx_signalled=yes; fi
    [ -z "$torchx_signalled" ] || torchx_end='"signal": "SIGKILL", "stop_signal": "SIGTERM"'
    (umask 077; echo "{$torchx_end}" > "$torchx_at/end.json")
} 2> /dev/null

while :; do
    # printf must be a builtin: other users can see the arguments of a program
    if command -v python3 > /dev/null && [ "$(command -v printf)" = printf ]; then
        printf '%s\0' "$@" |
            python3 -I -S "$torchx_folder/.node/agent.py" "$torchx_place" "$torchx_attempt" \
                "$torchx_logs" "$torchx_ready" "$torchx_grace" "$torchx_host" "$torchx_kills"
    else
        torchx_run_plainly "$@"
    fi
    torchx_code=$?
    [ "$torchx_code" != 137 ] || torchx_record_kill
    [ -z "$torchx_ready" ] || rm -f "$torchx_ready"
    if [ -n "$torchx_signalled" ] && [ -n "$TORCHX_ENDS_AT" ] && [ ! -e "$torchx_folder/stopping" ]; then
        (umask 077; : > "$torchx_folder/.terminated")
    fi
    { [ "$torchx_code" = 0 ] || [ -n "$torchx_signalled" ]; } && exit "$torchx_code"
    if [ -n "$torchx_ready" ] && [ -e "$torchx_folder/.released" ]; then exit 0; fi
    if torchx_is_ending; then  # exit 0, so that the others are not ended, which save their state
        [ -n "$torchx_ready" ] ||
            (umask 077; set -C; echo "$torchx_code" > "$torchx_folder/.interrupted") 2> /dev/null
        exit 0
    fi
    if [ -e "$torchx_folder/.node/retries.py" ] && command -v python3 > /dev/null &&
        python3 -I -S "$torchx_folder/.node/retries.py" "$torchx_place" "$torchx_folder/.node" "$torchx_once"
    then
        torchx_retries=0
        (umask 077; : > "$torchx_folder/.never")  # no retry of the role and of the job, too
    fi
    if [ "$torchx_used" -ge "$torchx_retries" ]; then  # the job exits with the code of its first failure
        case $torchx_optional in
            alone) (umask 077; : > "$torchx_ready"); exit 0 ;;  # roles after the service do not wait for it
            '')
                (umask 077; set -C; echo "$torchx_code $torchx_number" > "$torchx_first") 2> /dev/null
                [ -z "$torchx_alone" ] || (umask 077; : > "${torchx_ready%/*}/failed")
                ;;
        esac
        exit "$torchx_code"
    fi
    torchx_used=$((torchx_used + 1))
    (umask 077; echo "$torchx_used" > "$torchx_place/.retried")
done
