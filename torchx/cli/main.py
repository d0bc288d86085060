"""The program `torchx`, for programs that call it."""

from torchx.compat.cli import main as main

if __name__ == "__main__":
    main()
