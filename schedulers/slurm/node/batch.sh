# Functions for the batch script of a torchx job, which reads this file; for bash.
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
    job=$SLURM_JOB_ID
    # the number of one task is that of the array
    [ -z "$SLURM_ARRAY_TASK_ID" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    find_folder
    set -- "$first" "$first-$SLURM_JOB_ID"  # the second is for a second job of this script
    [ -z "$SLURM_ARRAY_TASK_ID" ] || set -- "$first-$SLURM_ARRAY_TASK_ID"
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
    echo "$SLURM_JOB_ID $1 $(date +%s) $roles" > "$folder/.over"
    mv "$folder/.over" "$folder/over"
}

requeue_job() {  # requeues the job; Slurm then ends this run by TERM, which must not end scontrol before its answer
    timeout --signal=KILL 60 sh -c 'trap "" TERM; exec scontrol requeue "$1"' sh "$job"
}

open_job() {  # prepares the job: its folder, the number of its attempt, the variables of all replicas
    local nodes
    open_folder
    attempt=$((${SLURM_RESTART_COUNT:-0} + 1))
    echo "$attempt" > "$folder/attempt"; echo "== attempt $attempt"
    stopped= notified= ending=
    trap 'stopped=yes; end_early' TERM  # cancelled, out of time, or preempted
    export TORCHX_FOLDER=$folder TORCHX_APP_ID=$job TORCHX_SLURM_ATTEMPT=$attempt
    export PYTHONUNBUFFERED=1 SLURM_UNBUFFEREDIO=1
    [ "$attempt" -gt 1 ] || rm -f "$folder"/.retried*
    retried=$(number_in .retried)
    unset TORCHX_ENDS_AT TORCHX_NOTICE
    TORCHX_RUN=$attempt
    [ "$requeue" != yes ] || TORCHX_RUN=$((attempt - retried))
    export TORCHX_RUN TORCHX_CHECKPOINT_DIR=${checkpoints:-$folder/.checkpoints}
    echo "$TORCHX_RUN" > "$folder/.run"
    mkdir -p "$TORCHX_CHECKPOINT_DIR"
    begin_run
    nodes=${SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}
    TORCHX_RANK0_HOST=$(scontrol show hostnames "$nodes" | head -n 1)
    export TORCHX_RANK0_HOST=${TORCHX_RANK0_HOST:-$SLURMD_NODENAME}
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
    local port=$(($2 + SLURM_JOB_ID % 1000))
    ((port <= 65535)) || port=$((port - 64512))  # continue from 1024
    while [[ $ports = *" $port "* ]] || (exec 3<> "/dev/tcp/127.0.0.1/$port") 2> /dev/null; do
        port=$((port < 65535 ? port + 1 : 1024))
    done
    ports+="$port "
    export "$1=$port"
}

find_hosts() {  # find_hosts VARIABLE=REPLICAS...: exports the hosts of the replicas of each role, separated by commas
    local role left number=0 nodes tasks hosts list at part count times n
    for role; do
        nodes=SLURM_JOB_NODELIST_HET_GROUP_$number tasks=SLURM_TASKS_PER_NODE_HET_GROUP_$number
        nodes=${!nodes:-$SLURM_JOB_NODELIST} tasks=${!tasks:-${SLURM_TASKS_PER_NODE:-1}}
        mapfile -t hosts < <(scontrol show hostnames "$nodes")
        list="" at=0 left=${role#*=}  # with ntasks-per-node, the last node may have tasks to spare
        for part in ${tasks//,/ }; do  # TASKS or TASKS(xNODES)
            count=${part%"("*} times=1
            [[ $part != *x* ]] || times=${part#*x} times=${times%")"}
            for ((; times > 0; times--, at++)); do
                for ((n = 0; n < count && left > 0; n++, left--)); do list+="${hosts[at]},"; done
            done
        done
        export "${role%=*}=${list%,}"
        number=$((number + 1))
    done
}

step() {  # step OPTION... ROLE: runs srun to its end; no job control, under which a suspended step would count as ended
    local code role=${!#} size
    size=$(wc -c < "$folder/batch.log")
    : > "$folder/.begun-$role"
    trap 'stopped=yes' TERM  # never a signal to srun: from Slurm 25.11 on, its end by TERM cancels the whole job
    (umask "$mask"; exec srun "$@") & srun=$!
    while wait "$srun"; code=$?; ((code > 128)) && kill -0 "$srun" 2> /dev/null; do :; done
    # srun exits with 0 if a node fails while it starts the replicas
    if ((code == 0)) && tail -c "+$((size + 1))" "$folder/batch.log" | grep -qE 'srun: .*(abort|error)' &&
        ! all_have_ended "$role" "$*"; then
        echo "torchx: error: srun exited with 0, but not all replicas of $role have ended"
        code=1
    fi
    return "$code"
}

all_have_ended() {  # all_have_ended ROLE OPTIONS: succeeds once each replica of the step has recorded its end
    local count=${2#*--ntasks=} ended try
    for try in 1 2 3 4 5; do
        ended=$(find "$folder/$1" -mindepth 3 -maxdepth 3 -name end.json -newer "$folder/.begun-$1" 2> /dev/null |
            sed 's|/attempt-[^/]*/end.json$||' | sort -u | wc -l)
        ((ended < ${count%% *})) || return 0
        [ "$try" = 5 ] || sleep 1  # a shared file system may show them late
    done
    return 1
}

ran_out_of_memory() {  # succeeds if Slurm has reported it in this attempt; the replica may have ended without a trace
    awk '/^== attempt /{found = 0} tolower($0) ~ /oom[-_]kill|exceeded (job )?memory limit/{found = 1} END{exit !found}' \
        "$folder/batch.log"
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
        timeout 20 scancel --signal=TERM "$job"
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
        export TORCHX_SLURM_ATTEMPT=$((TORCHX_SLURM_ATTEMPT + 1))
        echo "$TORCHX_SLURM_ATTEMPT" > "$folder/attempt"; echo "== attempt $TORCHX_SLURM_ATTEMPT"
        code=0
    done
    end_run
    if [ -n "$stopped$ending" ]; then
        touch "$folder/stopped"  # wakes waiting commands
        exit "$((code ? code : 143))"
    fi
    if ((code)) && tail -n 4 "$folder/batch.log" | grep -qE 'has expired|already complet'; then
        exit "$code"  # Slurm has ended the job: keep its state
    fi
    ((code == 0)) || gather_logs
    if ((code)) && [ "$requeue" = yes ] && [ -z "$stopped" ] && [ ! -e "$folder/.expired" ] && may_restart; then
        note_count .retried "$((retried + 1))"
        trap '' TERM
        requeue_job && exit "$code"
    fi
    write_end "$code"
    exit "$code"
}
