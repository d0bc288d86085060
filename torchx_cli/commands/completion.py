"""`torchx completion`: prints what makes a shell complete the words of torchx."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from torchx.errors import UsageError
from torchx.suggestions import did_you_mean
from torchx_cli.completion.shells import PLACES, SCRIPTS
from torchx_cli.terminal.output import is_terminal, note, say


def completion_(
    shell: Annotated[str, typer.Argument(metavar="SHELL", show_default=False, help="bash, zsh or fish.")],
) -> None:
    """Print what makes a shell complete the words of torchx: commands, flags, handles, components.

    Put it where the shell looks for it, as in: torchx completion fish >
    ~/.config/fish/completions/torchx.fish; or have it read at each start: eval "$(torchx completion
    bash)".
    """
    if shell not in SCRIPTS:
        raise UsageError(
            f"no completion for `{shell}`", hint=did_you_mean(shell, SCRIPTS, f"shells: {', '.join(SCRIPTS)}")
        )
    say(SCRIPTS[shell], end="")
    if is_terminal(sys.stdout):
        note(f"for good, write this to {PLACES[shell]}")
