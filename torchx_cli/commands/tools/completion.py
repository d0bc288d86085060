"""`torchx completion`: print a shell completion script."""

from __future__ import annotations

import sys
from typing import Annotated

from torchx.errors import UsageError
from torchx.suggestions import did_you_mean
from torchx_cli.flags import argument
from torchx_cli.terminal.output import is_terminal, note, say

BASH = r"""# torchx: completion for bash 4.4 and later
_torchx() {
    local program=${COMP_WORDS[0]/#\~/$HOME}
    mapfile -t COMPREPLY < <("$program" __complete bash "${COMP_LINE:0:COMP_POINT}" 2> /dev/null)
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[/=:,] ]]; then
        compopt -o nospace 2> /dev/null
    fi
}
complete -o nosort -F _torchx torchx
"""

ZSH = r"""#compdef torchx
# torchx: completion for zsh
_torchx() {
    local -a open closed open_shown closed_shown
    local line value shown
    local -a typed=("${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}")
    for line in "${(@f)$(${(Q)words[1]} __complete zsh "${typed[@]}" 2> /dev/null)}"; do
        value=${line%%$'\t'*}
        [[ -n $value ]] || continue
        shown=$value
        [[ $line == *$'\t'?* ]] && shown="$value  -- ${line#*$'\t'}"
        if [[ $value == *[/=:,] ]]; then
            open+=("$value") open_shown+=("$shown")
        else
            closed+=("$value") closed_shown+=("$shown")
        fi
    done
    (( $#closed )) && compadd -V torchx -l -d closed_shown -a closed
    (( $#open )) && compadd -V torchx -l -S '' -d open_shown -a open
}
if [[ $funcstack[1] == _torchx ]]; then
    _torchx "$@"
else
    compdef _torchx torchx
fi
"""

FISH = r"""# torchx: completion for fish
function __torchx_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    $words[1] __complete fish $words[2..-1] "$current" 2> /dev/null
end
complete -c torchx -f -k -a '(__torchx_complete)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
"""Shell -> its completion script."""

PLACES = {
    "bash": "${XDG_DATA_HOME:-~/.local/share}/bash-completion/completions/torchx",
    "zsh": "a folder in $fpath, as _torchx",
    "fish": "~/.config/fish/completions/torchx.fish",
}
"""Shell -> its default location of completion scripts."""


def completion_(
    shell: Annotated[str, argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print a shell completion script for commands, flags, handles and components.

    Install it in the shell's completion folder, e.g. torchx completion fish >
    ~/.config/fish/completions/torchx.fish, or load it in the shell's startup file:
    eval "$(torchx completion bash)".
    """
    if shell not in SCRIPTS:
        raise UsageError(
            f"no completion for `{shell}`", hint=did_you_mean(shell, SCRIPTS, f"shells: {', '.join(SCRIPTS)}")
        )
    say(SCRIPTS[shell], end="")
    if is_terminal(sys.stdout):
        note(f"to install it, write it to {PLACES[shell]}")
