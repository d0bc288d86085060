# Functions for jobs whose output may be on the disks of nodes until it is gathered; read after batch.sh, whose
# function gather_logs they replace. folders.sh sets `node_logs`, the folder on the disk of each node.

list_nodes() {  # sets `nodes`, and `lists` to the list of each part of the job, as Slurm writes it
    local number list
    nodes=() lists=()
    for ((number = 0; number < roles; number++)); do
        list=SLURM_JOB_NODELIST_HET_GROUP_$number
        [ -z "${!list}" ] || lists+=("${!list}")
    done
    [ ${#lists[@]} -gt 0 ] || lists=("$SLURM_JOB_NODELIST")
    mapfile -t nodes < <(for list in "${lists[@]}"; do scontrol show hostnames "$list"; done | sort -u)
}

step_on_all_nodes() {  # step_on_all_nodes COMMAND...: runs a command once on each node, of each part of the job
    local number count group=()
    list_nodes
    for number in "${!lists[@]}"; do
        [ ${#lists[@]} -eq 1 ] || group=("--het-group=$number")
        count=$(scontrol show hostnames "${lists[number]}" | wc -l)
        srun "${group[@]}" --nodes="$count" --ntasks="$count" --ntasks-per-node=1 --cpus-per-task=1 --mpi=none \
            --kill-on-bad-exit=0 "$@" < /dev/null &
    done
    wait
}

gather_logs() {  # copies the output that killed replicas have left on the disks of their nodes
    [ -z "$node_logs" ] || step_on_all_nodes sh -c '! command -v python3 > /dev/null || exec python3 -I -S "$@"' \
        sh "$folder/.node/gather.py" "$folder" "$node_logs"
}
