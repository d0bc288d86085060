# Functions for jobs with services or an order of starts; read after batch.sh, whose functions they replace.
# The script sets, by the numbers of roles:
#   services   the replicas of each service
#   failure    of a service: ignored; ignored-last: ignored once the job has no retries left
#   after      the roles before a role: services until they are ready, others until they have succeeded
# A service has the folder .ready-NUMBER, with a file for each replica that is ready, and `failed` if one has failed.

prepare_roles() {  # forgets earlier tries
    local number
    rm -rf "$folder"/.ready-* "$folder"/.ended-* "$folder/.released"
    for number in "${!services[@]}"; do mkdir "$folder/.ready-$number"; done
}

service_step() {  # service_step NUMBER OPTION...: runs the step of a service, which is not ready yet
    rm -f "$folder/.ready-$1"/*
    shift
    step "$@"
}

may_start() {  # may_start NUMBER: returns 0 if a role may start, 1 if it has to wait, 2 if it never can
    local before ended ready result=0
    [ -z "$stopped" ] && [ ! -e "$folder/stopping" ] && [ ! -e "$folder/.released" ] || return 2
    for before in ${after[$1]-}; do
        if [ -n "${services[before]-}" ]; then
            [ ! -e "$folder/.ready-$before/failed" ] || return 2
            ready=("$folder/.ready-$before"/[0-9]*)
            [ -e "${ready[0]}" ] && ((${#ready[@]} >= services[before])) || result=1
        elif read -r ended 2> /dev/null < "$folder/.ended-$before"; then
            [ "$ended" = 0 ] && [ ! -e "$folder/.interrupted" ] || return 2
        else
            result=1
        fi
    done
    return "$result"
}

is_ignored() {  # is_ignored NUMBER: succeeds if the job continues without a failed service
    case ${failure[$1]-} in
        ignored) true ;;
        ignored-last) ((retried >= retries[$1])) || ! may_retry ;;
        *) false ;;
    esac
}

begin() {  # begin NUMBER: runs a role after the roles before it, and writes its exit code
    local ended=0 may replica
    trap 'stopped=yes' TERM
    while may_start "$1"; may=$?; ((may == 1)); do sleep 0.3; done
    if ((may)); then
        echo 1 > "$folder/.ended-$1"  # it has not succeeded, but the failure is another one
        return 0
    fi
    "role_$1" || ended=$?
    if [ -n "${services[$1]-}" ] && ((ended)); then
        if is_ignored "$1"; then  # roles after it do not wait for it
            ended=0
            for ((replica = 0; replica < services[$1]; replica++)); do : > "$folder/.ready-$1/$replica"; done
        elif [ ! -e "$folder/.ready-$1/failed" ] && [ -e "$folder/.released" ]; then
            ended=0  # it was not needed any more
        elif [ -e "$folder/.ready-$1/failed" ] || [ ! -e "$folder/stopping" ]; then
            : > "$folder/.ready-$1/failed"
        fi
    fi
    ((ended == 0)) || note_failure "$1" "$ended"
    echo "$ended" > "$folder/.ended-$1"
    return "$ended"
}

is_done() {  # succeeds when all ordinary roles have ended
    local number
    for ((number = 0; number < roles; number++)); do
        [ -n "${services[number]-}" ] || [ -s "$folder/.ended-$number" ] || return 1
    done
    release_roles
}

release_roles() {  # from now on, services are not needed, and no role starts
    : > "$folder/.released"
}
