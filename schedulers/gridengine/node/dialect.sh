
# --- Grid Engine ---
# The script sets:
#   slots     the slots of each replica
#   replicas  the replicas of each role, by its number

run_inner() {  # runs the script in a shell that ignores USR1 and USR2
    local inner code result  # Grid Engine sends them to the whole process group before it suspends or ends a job
    trap '' USR1 USR2
    TORCHX_INNER=yes bash "$0" & inner=$!
    trap 'kill -s TERM "$inner"' USR2
    while wait "$inner"; code=$?; kill -s 0 "$inner" 2> /dev/null; do :; done
    wait "$inner" 2> /dev/null; result=$?
    ((result == 127)) || code=$result
    exit "$code"
}

identify_job() {
    job=$JOB_ID job_id=$JOB_ID task=
    [ "${SGE_TASK_ID:-undefined}" = undefined ] || task=$SGE_TASK_ID job=${JOB_ID}_$SGE_TASK_ID
}

count_restarts() {  # Grid Engine does not count them
    local count
    count=$(number_in .starts)
    echo "$((count + 1))" > "$folder/.starts"
    echo "$count"
}

find_folder() {  # sets `places`, the host of each replica, or `problem`
    local host count number total=0 given=""
    places=()
    while read -r host count _; do
        given+=", $count on $host"
        for ((number = 0; number < count / slots; number++)); do places+=("$host"); done
    done < <(cat "${PE_HOSTFILE:-/dev/null}" 2> /dev/null)
    [ ${#places[@]} -gt 0 ] || [ -n "$given" ] || places=("$HOSTNAME")
    for number in "${replicas[@]}"; do total=$((total + number)); done
    ((${#places[@]} >= total)) || problem="$total replicas of $slots slots do not fit on the hosts of the job: ${given:2}"
}

prepare_run() {
    commands=$(mktemp -d) || exit 74  # a named pipe for each host, on the disk of this one
    again= timers=()
}

first_host() { echo "${places[0]}"; }

hosts_of() {
    local number from=0
    for ((number = 0; number < $1; number++)); do from=$((from + replicas[number])); done
    printf '%s\n' "${places[@]:from:$2}"
}

step() {  # step NUMBER TOGETHER COMMAND...; TOGETHER: yes if a failure ends the other replicas of the role
    local number=$1 hosts at=0 count left=0 result code=0
    mapfile -t hosts < <(hosts_of "$number" "${replicas[number]}")
    declare -p PYTHONUNBUFFERED "${!TORCHX_@}" > "$folder/.variables-$number"
    while ((at < ${#hosts[@]})); do
        for ((count = 1; at + count < ${#hosts[@]}; count++)); do
            [ "${hosts[at + count]}" = "${hosts[at]}" ] || break
        done
        run_on_host "${hosts[at]}" "$at" "$count" "$@" &
        at=$((at + count)) left=$((left + 1))
    done
    for (( ; left > 0; left--)); do
        wait -n; result=$?
        if ((result && code == 0)); then
            code=$result
            [ "$2" != yes ] || send "$number" TERM
        fi
    done
    rm -f "$commands/$number".*
    return "$code"
}

run_on_host() {  # run_on_host HOST FIRST COUNT NUMBER TOGETHER COMMAND...: runs consecutive replicas of a role
    local host=$1 pipe=$commands/$4.$2 ended=$folder/.host-$4-$2 line code try
    rm -f "$pipe" "$ended"
    mkfifo "$pipe" && exec 5<> "$pipe" || return 74
    set -- bash "$folder/.node/host.sh" "$folder" "$mask" "$PWD" "$@"
    if [ "$host" = "${places[0]}" ]; then
        "$@" <&5
        return
    fi
    printf -v line '%q ' "$@"  # qrsh passes it to a shell
    qrsh -inherit "$host" "$line" <&5; code=$?
    ((code)) && return "$code"
    for try in 1 2 3 4 5; do  # a shared file system may show it late
        [ ! -e "$ended" ] || return 0
        sleep 1
    done
    echo "torchx: error: qrsh exited with 0, but not all replicas on $host have ended"
    return 1
}

send() {  # send NUMBER|* SIGNAL: signals the replicas of a role, or all
    local pipe
    for pipe in "$commands"/$1.*; do
        [ ! -p "$pipe" ] || echo "signal $2" 1<> "$pipe"
    done
}

signal_all() { send '*' "$1"; }

pass_on_end() {
    [ ! -e "$folder/killed" ] || leave 137  # Grid Engine kills what is left
    signal_all TERM
}

requeue_job() { again=yes; }

leave() {
    ((${#timers[@]} == 0)) || kill "${timers[@]}" 2> /dev/null
    rm -rf "$commands"
    if [ -n "$again" ]; then
        rm -f "$folder/stopped"
        exit 99  # queues the job again
    fi
    case $1 in 99 | 100) exit 1 ;; esac  # an error state of the job
    exit "$1"
}

ran_out_of_memory() { false; }
was_ended() { false; }
end_of_run() { echo 0; }
is_completing() { false; }
find_cause() { :; }

watch_limit() {
    trap send_notice URG
    ((notice == 0)) || begin_timer "$((limit - notice))" URG
    ((limit == 0)) || begin_timer "$limit" TERM
}

begin_timer() {  # begin_timer SECONDS SIGNAL: signals this shell later
    (sleep "$1"; kill -s "$2" "$$") > /dev/null 2>&1 &
    timers+=("$!")
    disown "$!"
}

[ -n "$TORCHX_INNER" ] || run_inner
unset TORCHX_INNER
