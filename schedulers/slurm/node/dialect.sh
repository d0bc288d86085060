
# --- Slurm ---

identify_job() {
    job=$SLURM_JOB_ID job_id=$SLURM_JOB_ID task=$SLURM_ARRAY_TASK_ID
    # the number of one task is that of the array
    [ -z "$task" ] || job=${SLURM_ARRAY_JOB_ID}_$task
}

count_restarts() { echo "${SLURM_RESTART_COUNT:-0}"; }
prepare_run() { export SLURM_UNBUFFEREDIO=1; }
pass_on_end() { :; }  # Slurm signals the replicas
leave() { exit "$1"; }

first_host() {
    local host
    host=$(scontrol show hostnames "${SLURM_JOB_NODELIST_HET_GROUP_0:-$SLURM_JOB_NODELIST}" | head -n 1)
    echo "${host:-$SLURMD_NODENAME}"
}

hosts_of() {
    local nodes tasks hosts at=0 part count times n left=$2  # with ntasks-per-node, the last node may have tasks to spare
    nodes=SLURM_JOB_NODELIST_HET_GROUP_$1 tasks=SLURM_TASKS_PER_NODE_HET_GROUP_$1
    nodes=${!nodes:-$SLURM_JOB_NODELIST} tasks=${!tasks:-${SLURM_TASKS_PER_NODE:-1}}
    mapfile -t hosts < <(scontrol show hostnames "$nodes")
    for part in ${tasks//,/ }; do  # TASKS or TASKS(xNODES)
        count=${part%"("*} times=1
        [[ $part != *x* ]] || times=${part#*x} times=${times%")"}
        for ((; times > 0; times--, at++)); do
            for ((n = 0; n < count && left > 0; n++, left--)); do echo "${hosts[at]}"; done
        done
    done
}

signal_all() { timeout 20 scancel --signal="$1" "$job"; }

requeue_job() {  # requeues the job; Slurm then ends this run by TERM, which must not end scontrol before its answer
    timeout --signal=KILL 60 sh -c 'trap "" TERM; exec scontrol requeue "$1"' sh "$job"
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

was_ended() { tail -n 4 "$folder/batch.log" | grep -qE 'has expired|already complet'; }
watch_limit() { ((notice == 0)) || trap send_notice USR1; }
end_of_run() { echo "${SLURM_JOB_END_TIME:-0}"; }
is_completing() { timeout 20 scontrol show job "$job" | grep -q 'JobState=COMPLETING'; }

find_cause() {
    local facts
    facts=$(timeout 20 scontrol show job "$job")
    case $facts in
        *PreemptTime=[0-9]*) echo preemption ;;
        *Reason=TimeLimit*) echo limit ;;
    esac
}
