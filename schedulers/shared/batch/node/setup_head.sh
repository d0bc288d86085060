# Runs the setup of the job (run option `setup`) in the shell that becomes the program; for bash.
torchx_program=("$@")
set --
torchx_failed() {  # torchx_failed CODE COMMAND: reports the failure and ends the replica
    local message="setup failed with exit code $1: $2"
    echo "torchx: $message" >&2
    message=${message//\\/\\\\} message=${message//\"/\\\"} message=${message//[[:cntrl:]]/ }
    (umask 077; echo "{\"message\": {\"message\": \"$message\"}}" > "$TORCHELASTIC_ERROR_FILE")
    builtin exit "$1"
}
exit() {  # of the setup, or of a file that it reads: or else the replica would end, with 0 too, without its program
    local code=$?
    [ "$#" = 0 ] || code=$1
    [ "$BASH_SUBSHELL" = 0 ] || builtin exit "$code"
    [ "$code" != 0 ] || torchx_failed 1 "exit 0, before the program"
    torchx_failed "$code" "exit $code"
}
if ! command -v module > /dev/null; then  # sites define it for login shells only
    for torchx_file in "$MODULESHOME/init/bash" "$LMOD_PKG/init/bash" /etc/profile.d/{modules,lmod}.sh; do
        if [ -r "$torchx_file" ]; then . "$torchx_file"; break; fi
    done
fi
# Only commands of the setup itself count, not those of functions and files that it calls. The trap DEBUG also runs
# before the first command of the trap ERR, so that the failed command is the one before.
torchx_last="" torchx_before=""
trap '[ "${#BASH_SOURCE[@]}" -gt 1 ] || { torchx_before=$torchx_last; torchx_last=$BASH_COMMAND; }' DEBUG
trap 'torchx_code=$? torchx_at=$torchx_before
[ "${#BASH_SOURCE[@]}" -gt 1 ] || torchx_failed "$torchx_code" "$torchx_at"' ERR
