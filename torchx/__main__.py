"""Entry point of `python -m torchx`."""

from torchx_cli.__main__ import program

if __name__ == "__main__":
    program()
