# Functions for jobs with the option `job_dir`; read after gather.sh, and after batch.sh, whose function find_folder
# they replace, like note_elsewhere. The script sets:
#   job_dir     the folder of the option, which may be on a disk of each node
#   fallback    the folder of the job in the state home, for its files if not all nodes share job_dir
#   workspaces  the names of the copies of workspaces

node_logs=""  # the folder on the disk of each node for output: job_dir, if it is not shared
advice="; set -cfg job_dir=FOLDER shared with all nodes"

find_folder() {  # sets `first` to the folder that all nodes of the job share, or `problem`
    local own=$job_dir/jobs/${fallback##*/} not_own="" not_fallback="" silent="" in_own in_fallback node workspace
    while read -r in_own in_fallback node; do
        case "$in_own $in_fallback" in
            "yes "* | "no "*)
                [ "$in_own" = yes ] || not_own+=", $node"
                [ "$in_fallback" = yes ] || not_fallback+=", $node"
                ;;
            "silent "*) silent+=", $node" ;;
            *) notes+="$in_own $in_fallback $node"$'\n' ;;  # a message of srun
        esac
    done < <(check_nodes "$own" "$fallback" | sort -k 3)
    if [ -n "$silent" ]; then
        problem="cannot check whether $job_dir is shared: no answer from ${silent:2}"
    elif [ -z "$not_own" ] && { [ -n "$not_fallback" ] || ! has_run_in "$fallback"; }; then
        first=$own
    elif [ -z "$not_fallback" ]; then
        first=$fallback node_logs=$job_dir
        if [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] && [ -z "$checkpoints" ] && ! has_run_in "$fallback"; then
            notes+="torchx: note: checkpoints of earlier runs are in $own, which is not shared with ${not_own:2}"$'\n'
        fi
        for workspace in "${workspaces[@]}"; do
            [ -d "${fallback%/jobs/*}/workspaces/$workspace" ] || [ -z "$not_own" ] ||
                problem="$job_dir, with the workspace, is not shared with ${not_own:2}$advice"
        done
    else
        problem="$job_dir is not shared with ${not_own:2}, nor ${fallback%/jobs/*} with ${not_fallback:2}$advice"
    fi
    export TORCHX_NODE_LOGS=$node_logs TORCHX_JOB_DIR=${first%/jobs/*}
}

has_run_in() {  # has_run_in FOLDER: succeeds if an earlier run of this job has, or of one that shares its script
    [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] &&
        grep -qsxF "$job" "$1/id" "$1-$SLURM_JOB_ID/id" "$1-$SLURM_ARRAY_TASK_ID/id"
}

note_elsewhere() {  # note_elsewhere FILE NUMBER: writes a count to the fallback folder, too, which the next run may use
    local other=$fallback${folder#"$first"}
    [ "$first" != "$fallback" ] && [ -O "$fallback/.node/batch.sh" ] && [ ! -L "$other" ] || return 0
    mkdir -p "$other" && [ -O "$other" ] && echo "$2" > "$other/$1"
}

check_nodes() {  # check_nodes FOLDER FOLDER: prints for each node whether it shares them, as `yes no NODE`
    local mark="$SLURM_JOB_ID $RANDOM $(date +%s%N)" file=.node/check-$SLURM_JOB_ID answers folder node
    local check='
        for file in "$1" "$2"; do
            answer=no
            [ -O "$file" ] && [ "$(cat "$file")" = "$3" ] && answer=yes
            printf "%s " "$answer"
        done
        echo "$SLURMD_NODENAME"'
    for folder in "$1" "$2"; do
        if [ -O "$folder/.node/batch.sh" ] && [ ! -L "$folder" ]; then echo "$mark" > "$folder/$file"; fi
    done
    set -- "$1/$file" "$2/$file"
    list_nodes
    if [ ${#nodes[@]} -le 1 ]; then
        sh -c "$check" sh "$@" "$mark"
    else
        answers=$(step_on_all_nodes sh -c "$check" sh "$@" "$mark" 2>&1)
        echo "$answers"
        for node in "${nodes[@]}"; do
            grep -q " $node$" <<< "$answers" || echo "silent - $node"
        done
    fi
    rm -f "$@"
}
