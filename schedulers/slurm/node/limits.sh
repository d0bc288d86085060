# Functions for jobs with a time limit, a notice or requeues; read after batch.sh, whose functions they replace.
# The script sets:
#   limit      the time limit in seconds, or 0
#   notice     the seconds before it at which Slurm sends USR1 to the script, or 0; by SIGNAL to the programs
#   requeues   the requeues after the time limit
#   preempted  yes: requeue after a preemption, if Slurm does not do it

begin_run() {  # sets the variables of the run
    local now
    rm -f "$folder"/{.noticed,.interrupted,.expired}
    [ "$attempt" -gt 1 ] || rm -f "$folder/.requeued"
    requeued=$(number_in .requeued)
    now=$(date +%s) ends_at=${SLURM_JOB_END_TIME:-0}
    ((ends_at > now)) || ends_at=$((now + limit))
    ((limit)) && export TORCHX_ENDS_AT=$ends_at
    if ((notice)); then
        export TORCHX_NOTICE=$notice:$signal
        trap send_notice USR1
    fi
}

send_notice() {  # forwards the notice: the agents of the replicas handle URG, which other programs ignore
    touch "$folder/.noticed"
    echo "== notice"
    timeout 20 scancel --signal=URG "$job"
    notified=yes
}

end_run() {  # requeues the job if the time limit or a preemption has ended the run; or else sets the exit code
    local cause=
    [ ! -e "$folder/cancelled" ] || return 0
    if [ -n "$stopped" ] || [ -e "$folder/.interrupted" ]; then
        if scontrol show job "$job" | grep -q 'PreemptTime=[0-9]'; then
            cause=preemption
        elif [ -e "$folder/.interrupted" ] || ((limit && $(date +%s) >= ends_at - 10)); then
            cause=limit
        fi
    fi
    [ ! -s "$folder/.interrupted" ] || ((code)) || read -r code < "$folder/.interrupted"
    if [ "$cause" = limit ] && ((requeued < requeues)); then
        note_count .requeued "$((requeued + 1))"
    elif [ "$cause" != preemption ] || [ "$preempted" != yes ]; then
        [ "$cause" != limit ] || touch "$folder/.expired"
        return 0
    fi
    timeout 60 scontrol requeue "$job" && exit "$((code ? code : 143))"
}
