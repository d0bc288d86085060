# Functions for the batch script of a torchx job, which reads this file; for bash. Those of the batch system follow at its end:
#   identify_job    sets `job`, the id of the job; `job_id`, its number; `task`, the index in an array, or nothing
#   count_restarts  prints the earlier runs of the job
#   prepare_run     sets variables for all replicas
#   first_host      prints the host of the first replica
#   hosts_of        prints the host of each replica: hosts_of NUMBER REPLICAS
#   step            runs the replicas of a role to their end
#   signal_all      signal_all TERM|URG: signals all replicas
#   pass_on_end     ends the replicas, unless the batch system signals them itself
#   requeue_job     requeues the job
#   leave           leave CODE: ends the script
#   ran_out_of_memory, was_ended   what the batch system has reported
#   watch_limit     arranges that send_notice is called before the time limit
#   end_of_run      prints the time at which the batch system ends the run, 0 if unknown
#   is_completing   succeeds if the batch system is ending the job
#   find_cause      prints why it has ended the run: preemption, limit, or nothing
# The script sets:
#   first      the folder of the job, or of the first job of this script
#   roles      the number of roles; the script has a function for each: role_0, role_1, ...
#   fail_fast  yes: when a role fails, the others are ended
#   grace      the seconds from TERM to KILL for roles that the script ends
#   retries    the retries of the whole job after a failure of each role, by its number
#   memory     never: no retry when a step has run out of memory
#   checkpoints  the folder for checkpoints; empty for one in the folder of the job
#   requeue    yes: retry by a requeue of the job; no: retry immediately, on the same nodes

open_folder() {  # chooses the folder of this job, and directs all further output to its log
    mask=$(umask)
    umask 077
    identify_job
    find_folder
    set -- "$first" "$first-$job_id"  # the second is for a second job of this script
    [ -z "$task" ] || set -- "$first-$task"
    for folder in "$@"; do
        mkdir -p "$folder" || exit 73  # shared with all nodes
        if [ ! -O "$folder" ] || [ -L "$folder" ]; then exit 73; fi  # owned by another user
        (set -C; echo "$job" > "$folder/id") 2> /dev/null
        if [ ! -s "$folder/id" ]; then rm -f "$folder/id"; exit 74; fi  # the disk is full
        [ "$(cat "$folder/id")" != "$job" ] || break
    done
    [ "$(cat "$folder/id")" = "$job" ] || exit 73  # a task runs in one job
    exec >> "$folder/batch.log" 2>&1
    printf '%s' "$notes"
    if [ "$folder" != "$first" ]; then  # the first job may be deleted while this one runs
        cp -R "$first"/.node "$folder/" || exit 73
        [ -e "$folder/role-0.sh" ] || cp "$first"/role-*.sh "$folder/" || exit 73
    fi
    rm -f "$folder"/{.never,over,outcome.json,stopping,stopped,first}
    if [ -n "$problem" ]; then
        echo "torchx: error: $problem"
        write_end 73
        exit 73
    fi
}

problem= notes=  # why the job cannot run, one line; further lines for the log
find_folder() { :; }  # for jobs with `job_dir`, folders.sh replaces this function

write_end() {  # write_end CODE: reports the end of the script
    echo "$job_id $1 $(date +%s) $roles" > "$folder/.over"
    mv "$folder/.over" "$folder/over"
}

open_job() {  # prepares the job: its folder, the number of its attempt, the variables of all replicas
    open_folder
    attempt=$(($(count_restarts) + 1))
    echo "$attempt" > "$folder/attempt"; echo "== attempt $attempt"
    stopped= notified= ending=
    trap 'stopped=yes; end_early; pass_on_end' TERM  # cancelled, out of time, or preempted
    export TORCHX_FOLDER=$folder TORCHX_APP_ID=$job TORCHX_JOB_ATTEMPT=$attempt
    export PYTHONUNBUFFERED=1
    prepare_run
    [ "$attempt" -gt 1 ] || rm -f "$folder"/.retried*
    retried=$(number_in .retried)
    unset TORCHX_ENDS_AT TORCHX_NOTICE
    TORCHX_RUN=$attempt
    [ "$requeue" != yes ] || TORCHX_RUN=$((attempt - retried))
    export TORCHX_RUN TORCHX_CHECKPOINT_DIR=${checkpoints:-$folder/.checkpoints}
    echo "$TORCHX_RUN" > "$folder/.run"
    mkdir -p "$TORCHX_CHECKPOINT_DIR"
    begin_run
    TORCHX_RANK0_HOST=$(first_host)
    export TORCHX_RANK0_HOST
    if [ -e "$folder/.node/stragglers.py" ] && command -v python3 > /dev/null; then  # no child: `wait` is for roles
        (python3 -I -S "$folder/.node/stragglers.py" "$folder" "$$" > /dev/null < /dev/null &)
    fi
}

number_in() {  # number_in FILE: prints a count in the folder of the job, 0 without the file
    cat "$folder/$1" 2> /dev/null || echo 0
}

note_count() {  # note_count FILE NUMBER: writes a count of the job
    echo "$2" > "$folder/$1"
    note_elsewhere "$@"
}

note_elsewhere() { :; }  # for jobs with `job_dir`, folders.sh replaces this function
begin_run() { :; }  # for jobs with a time limit or requeues, limits.sh replaces these three functions
end_early() { :; }
end_run() { :; }

ports=" "
find_port() {  # find_port VARIABLE FROM: exports a free port; the search depends on the job id, as jobs share nodes
    local port=$(($2 + job_id % 1000))
    ((port <= 65535)) || port=$((port - 64512))  # continue from 1024
    while [[ $ports = *" $port "* ]] || (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
        port=$((port < 65535 ? port + 1 : 1024))
    done
    ports+="$port "
    export "$1=$port"
}

find_hosts() {  # find_hosts VARIABLE=REPLICAS...: exports the hosts of the replicas of each role, separated by commas
    local role number=0
    for role; do
        export "${role%=*}=$(hosts_of "$number" "${role#*=}" | paste -sd ,)"
        number=$((number + 1))
    done
}

may_retry() {  # fails if a replica has failed because of a cause that is not retried
    [ ! -e "$folder/.never" ] && { [ "${memory-}" != never ] || ! ran_out_of_memory; }
}

may_restart() {  # fails if the role that has failed first has no retries of the whole job left
    local number
    may_retry && read -r _ number 2> /dev/null < "$folder/first" && ((retried < retries[number]))
}

again() {  # again NUMBER TIMES COMMAND...: repeats a failed role immediately, on the same nodes; counts for the whole job
    local code used number=$1 times=$2
    shift 2
    until "$@"; do
        code=$? used=$(number_in ".retried-$number")
        [ -z "$stopped" ] && [ ! -e "$folder/stopping" ] && may_retry && ((used < times)) || return "$code"
        note_count ".retried-$number" "$((used + 1))"
        rm -f "$folder/.first-$number"
    done
}

note_failure() {  # note_failure NUMBER CODE: writes the first failure of the job, unless a replica has done so
    local code=$2
    [ ! -s "$folder/.first-$1" ] || read -r code _ < "$folder/.first-$1"
    (set -C; echo "$code $1" > "$folder/first") 2> /dev/null
}

begin() {  # begin NUMBER: runs a role and writes its exit code
    local ended=0
    rm -f "$folder/.ended-$1"
    "role_$1" || ended=$?
    ((ended == 0)) || note_failure "$1" "$ended"
    echo "$ended" > "$folder/.ended-$1"
    return "$ended"
}

gather_logs() { :; }  # for jobs with output on the disks of nodes, gather.sh replaces this function
prepare_roles() { :; }  # for jobs with services, services.sh replaces `begin` and these three functions
is_done() { false; }
release_roles() { :; }

end_other_roles() {  # the agents kill their programs after the grace period
    local n
    touch "$folder/stopping"
    while [ -n "$(jobs -rp)" ]; do  # again if a controller has not answered
        signal_all TERM
        for ((n = 0; n < (grace + 5) * 10; n++)); do [ -n "$(jobs -rp)" ] || break; sleep 0.1; done
    done
    wait
}

run_roles() {  # runs all roles at once; returns the exit code of the first failure
    local code=0 left=0 result number begun=()
    rm -f "$folder"/{first,stopping} "$folder"/.first-*
    prepare_roles
    for ((number = 0; number < roles; number++)); do
        begin "$number" & left=$((left + 1)) begun+=("$!")
    done
    while ((left > 0)); do
        wait -n; result=$?
        [ -n "$stopped" ] && break
        if [ -n "$notified" ] && ((result > 128)); then  # the notice has interrupted `wait`
            notified=
            (($(jobs -rp | wc -l) < left)) || continue
        fi
        left=$((left - 1))
        ((code)) || code=$result
        if ((result && left)) && [ "$fail_fast" = yes ]; then
            end_other_roles
            break
        fi
        if ((left)) && is_done; then end_other_roles; break; fi
    done
    [ -z "$stopped" ] || { release_roles; wait; }
    wait "${begun[@]}" 2> /dev/null  # or the first `wait -n` of a retry could return the end of a role of this try
    for ((number = 0; number < roles && code == 0; number++)); do
        read -r code < "$folder/.ended-$number" || code=1  # not ended: a failure
    done
    if ((code)) && [ -s "$folder/first" ]; then read -r code _ < "$folder/first"; fi
    return "$code"
}

run_job() {  # runs all roles, with the retries of the whole job, and ends the script
    local code=0
    until run_roles; do
        code=$?
        { [ "$requeue" != yes ] && [ -z "$stopped" ] && may_restart; } || break
        retried=$((retried + 1))
        note_count .retried "$retried"
        export TORCHX_JOB_ATTEMPT=$((TORCHX_JOB_ATTEMPT + 1))
        echo "$TORCHX_JOB_ATTEMPT" > "$folder/attempt"; echo "== attempt $TORCHX_JOB_ATTEMPT"
        code=0
    done
    end_run
    if [ -n "$stopped$ending" ]; then
        touch "$folder/stopped"  # wakes waiting commands
        leave "$((code ? code : 143))"
    fi
    if ((code)) && was_ended; then leave "$code"; fi  # by the batch system: keep its state
    ((code == 0)) || gather_logs
    if ((code)) && [ "$requeue" = yes ] && [ -z "$stopped" ] && [ ! -e "$folder/.expired" ] && may_restart; then
        note_count .retried "$((retried + 1))"
        trap '' TERM
        requeue_job && leave "$code"
    fi
    write_end "$code"
    leave "$code"
}
