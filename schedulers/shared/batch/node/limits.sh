# Functions for jobs with a time limit, a notice or requeues; read after batch.sh, whose functions they replace.
# The script sets:
#   limit      the time limit in seconds, or 0
#   notice     the seconds before it at which the programs get a signal, or 0
#   requeues   the requeues after the time limit
#   preempted  yes: requeue after a preemption, if the batch system does not do it
# `ending` is not empty while the job is being requeued, and afterwards.

begin_run() {  # sets the variables of the run
    local now
    rm -f "$folder"/{.noticed,.interrupted,.expired,.terminated}
    [ "$attempt" -gt 1 ] || rm -f "$folder/.requeued"
    requeued=$(number_in .requeued)
    now=$(date +%s) ends_at=$(end_of_run)
    ((ends_at > now)) || ends_at=$((now + limit))
    ((limit)) && export TORCHX_ENDS_AT=$ends_at
    ((notice == 0)) || export TORCHX_NOTICE=$notice:$signal
    watch_limit
}

send_notice() {  # forwards the notice: the agents of the replicas handle URG, which other programs ignore
    touch "$folder/.noticed"
    echo "== notice"
    signal_all URG
    notified=yes
}

is_at_limit() {
    ((limit && $(date +%s) >= ends_at - 10))
}

end_early() {  # requeues the job when the batch system ends it, which kills the script, too, if a program outlives TERM
    local code=143
    if is_at_limit || is_completing; then end_run; fi
}

end_run() {  # requeues the job if the time limit or a preemption has ended the run; or else sets the exit code
    local cause=
    [ -z "$ending" ] && [ ! -e "$folder/cancelled" ] || return 0
    ending=yes  # first: another signal may come meanwhile
    # the replicas may have got TERM before this script
    if [ -z "$stopped" ] && [ -e "$folder/.terminated" ] && is_at_limit; then stopped=yes; fi
    if [ -n "$stopped" ] || [ -e "$folder/.interrupted" ]; then
        cause=$(find_cause)
        if [ "$cause" != preemption ] && { [ -e "$folder/.interrupted" ] || is_at_limit; }; then cause=limit; fi
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
