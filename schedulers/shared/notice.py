"""The notice of a time limit in containers and on nodes: a shell script that signals the programs."""

from __future__ import annotations

NOTICE_SCRIPT = """\
# sends a signal to the programs that handle it: $1 its name, $2 its number, $3 a process, $4 its seconds
# A process without a handler, such as a shell or the agent of torchrun, would end: its children are searched.
torchx_handles() {
    torchx_caught=
    while read -r torchx_key torchx_value; do
        case $torchx_key/$torchx_value/$1 in
            Name:/pause/1) return 1 ;; # the sandbox of a pod
            SigCgt:/*) torchx_caught=$torchx_value ;;
        esac
    done < "/proc/$1/status"
    [ "$((0x0${torchx_caught#????????} >> (torchx_number - 1) & 1))" = 1 ]
} 2> /dev/null
torchx_children() {
    for torchx_file in /proc/[0-9]*/status; do
        while read -r torchx_key torchx_value; do
            case $torchx_key in
                Pid:) torchx_pid=$torchx_value ;;
                PPid:) [ "$torchx_value" != "$1" ] || echo "$torchx_pid" ;;
            esac
        done < "$torchx_file"
    done
} 2> /dev/null
torchx_notify() {
    case "$torchx_sent $$ " in *" $1 "*) return ;; esac
    if torchx_handles "$1"; then
        kill -s "$torchx_name" "$1" && torchx_sent="$torchx_sent $1 "
        return
    fi
    set -- $(torchx_children "$1")
    [ $# -gt 0 ] || torchx_missing=yes
    for torchx_child do torchx_notify "$torchx_child"; done
}
torchx_name=$1 torchx_number=$2 torchx_left=$4 torchx_pause=1 torchx_sent= torchx_complete=0
while torchx_missing=
    torchx_notify "$3"
    # again for processes without a handler yet; twice complete, as a new child has the handlers of its shell
    [ -z "$torchx_missing" ] && torchx_complete=$((torchx_complete + 1)) || torchx_complete=0
    [ "$torchx_complete" -lt 2 ] && [ "$torchx_left" -gt 0 ]
do
    [ -z "$torchx_sent" ] || [ "$torchx_pause" -ge 16 ] || torchx_pause=$((torchx_pause * 2))
    [ "$torchx_pause" -le "$torchx_left" ] || torchx_pause=$torchx_left
    sleep "$torchx_pause" && kill -0 "$3" || break
    torchx_left=$((torchx_left - torchx_pause))
done 2> /dev/null
"""
"""Plain sh, for small images. The arguments: the name of a signal, its number, the process to begin with, and
the seconds for which a program may still set up its handler."""

POD_HOOK_SCRIPT = (
    """\
# before the end of a pod: $1 to $3 as below, 0 for all processes; $4 seconds to its deadline, $5 the notice
# At the deadline, the programs are notified and have time; at an earlier end, TERM follows immediately.
torchx_is_at_limit() {
    torchx_first=$1
    [ "$1" != 0 ] || torchx_first=1
    torchx_deadline=$2
    read -r torchx_stat < "/proc/$torchx_first/stat"
    read -r torchx_up torchx_rest < /proc/uptime
    set -- ${torchx_stat##*) }
    torchx_slack=$((torchx_deadline / 2 < 600 ? torchx_deadline / 2 : 600)) # the image may have been pulled
    [ "$((${torchx_up%.*} - ${20} / 100 + 2 + torchx_slack))" -ge "$torchx_deadline" ]
}
torchx_is_at_limit "$3" "$4" || exit 0
set -- "$1" "$2" "$3" "$5"
"""
    + NOTICE_SCRIPT
    + """\
sleep "$torchx_left"  # ends with the program
"""
)
"""Plain sh for the ``preStop`` hook of a pod. The kubelet sends TERM when it has ended."""
