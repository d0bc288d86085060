"""`torchx completion`: print a shell completion script."""

from __future__ import annotations

import sys
from typing import Annotated

from torchx.errors import UsageError
from torchx.suggestions import did_you_mean
from torchx_cli.completion.shells import PLACES, SCRIPTS
from torchx_cli.flags import argument
from torchx_cli.terminal.output import is_terminal, note, say


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
