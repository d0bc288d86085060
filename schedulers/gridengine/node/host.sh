# Runs replicas of a role on one host, and signals them; for bash. The script of the job starts it, on other hosts through
# qrsh: host.sh FOLDER UMASK DIRECTORY HOST FIRST COUNT NUMBER TOGETHER COMMAND...
# Its input has lines `signal TERM` and `signal URG`.
#
# Grid Engine signals the process group that it has started: USR1 and USR2 before it suspends or ends the job, then STOP or
# KILL. Programs must not get the first two. So they run in a session of their own, below a second shell, which follows the
# fate of a keeper in the group: its end is the end of the input, and its state is polled.

if [ "$1" != inside ]; then
    trap '' USR1 USR2
    exec 6< <(exec cat <&0); keeper=$!
    setsid bash "$0" inside "$keeper" "$@" <&6 & inside=$!
    wait "$inside"; code=$?
    kill -s KILL "$keeper" 2> /dev/null
    exit "$code"
fi

keeper=$2 folder=$3 mask=$4 directory=$5 host=$6 from=$7 left=$8 number=$9 at=$7 together=${10} code=0 paused= pids=()
shift 10
export TORCHX_HOST=$host
[ ! -r "$folder/.node/environment.sh" ] || . "$folder/.node/environment.sh"
. "$folder/.variables-$number" || exit 73
umask 077
pipes=$(mktemp -d) && mkfifo "$pipes/events" && exec 5<> "$pipes/events" || exit 74
rm -r "$pipes"
{ cat; echo "signal KILL"; } <&0 >&5 2> /dev/null & reader=$!
disown "$reader"
cd "$directory" 2> /dev/null || cd /

signal_tree() {  # signal_tree SIGNAL PROCESS: signals a process and those below it
    local child children
    children=$(cat "/proc/$2/task"/*/children)
    kill -s "$1" "$2"
    for child in $children; do signal_tree "$1" "$child"; done
} 2> /dev/null

signal_replicas() {  # signal_replicas SIGNAL
    local pid child
    for pid in "${pids[@]}"; do
        for child in $(cat "/proc/$pid/task"/*/children 2> /dev/null); do signal_tree "$1" "$child"; done
    done
}

follow_keeper() {  # suspends and resumes the replicas as Grid Engine does with the keeper
    local state=""
    read -r _ _ state _ 2> /dev/null < "/proc/$keeper/stat"
    if [ "$state" = T ] && [ -z "$paused" ]; then
        paused=yes
        signal_replicas STOP
    elif [ "$state" != T ] && [ -n "$paused" ]; then
        paused=
        signal_replicas CONT
    fi
}

for ((; at < from + left; at++)); do
    (umask "$mask"; TORCHX_TASK=$at "$@" 5>&- < /dev/null; echo "ended $?" >&5) &
    pids+=("$!")
done
while ((left > 0)); do
    if ! read -r -t 1 event value <&5; then
        follow_keeper
        continue
    fi
    case $event in
        signal) signal_replicas "$value" ;;
        ended)
            left=$((left - 1))
            ((code)) || code=$value
            ((value == 0)) || [ "$together" != yes ] || signal_replicas TERM
            ;;
    esac
done
signal_tree KILL "$reader"
: > "$folder/.host-$number-$from"
exit "$code"
