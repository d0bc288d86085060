"""The program `torchx`, for programs that call it or add commands of their own."""

from torchx.compat.cli import get_default_sub_cmds as get_default_sub_cmds
from torchx.compat.cli import get_sub_cmds as get_sub_cmds
from torchx.compat.cli import main as main
from torchx.compat.cli import run_main as run_main

if __name__ == "__main__":
    main()
