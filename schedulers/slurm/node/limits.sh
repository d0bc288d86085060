# Functions for jobs with a time limit, a notice or requeues; read after batch.sh, whose functions they replace.
# The script sets:
#   limit      the time limit in seconds, or 0
#   notice     the seconds before it at which Slurm sends USR1 to the script, or 0; by SIGNAL to the programs
#   requeues   the requeues after the time limit
#   preempted  yes: requeue after a preemption, if Slurm does not do it
# `ending` is not empty while the job is being requeued, and afterwards.

begin_run() {  # sets the variables of the run
    local now
    rm -f "$folder"/{.noticed,.interrupted,.expired,.terminated}
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

is_at_limit() {
    ((limit && $(date +%s) >= ends_at - 10))
}

end_early() {  # requeues the job when Slurm ends it, which kills the script, too, if a program outlives TERM
    local code=143
    if is_at_limit || timeout 20 scontrol show job "$job" | grep -q 'JobState=COMPLETING'; then end_run; fi
}

end_run() {  # requeues the job if the time limit or a preemption has ended the run; or else sets the exit code
    local cause= facts
    [ -z "$ending" ] && [ ! -e "$folder/cancelled" ] || return 0
    ending=yes  # first: another signal may come meanwhile
    # the replicas may have got TERM before this script
    if [ -z "$stopped" ] && [ -e "$folder/.terminated" ] && is_at_limit; then stopped=yes; fi
    if [ -n "$stopped" ] || [ -e "$folder/.interrupted" ]; then
        facts=$(timeout 20 scontrol show job "$job")
        if [[ $facts = *PreemptTime=[0-9]* ]]; then
            cause=preemption
        elif [ -e "$folder/.interrupted" ] || is_at_limit || [[ $facts = *Reason=TimeLimit* ]]; then
            cause=limit
        fi
    fi
    [ ! -s "$folder/.interrupted" ] || ((code)) || read -r code < "$folder/.interrupted"
    if [ "$cause" = limit ] && ((requeued < requeues)); then
        note_count .requeued "$((requeued + 1))"
    elif [ "$cause" != preemption ] || [ "$preempted" != yes ]; then
        [ "$cause" != limit ] || touch "$folder/.expired"
        ending=
        return 0
    fi
    requeue_job || ending=
}
