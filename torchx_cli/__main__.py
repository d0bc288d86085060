"""`python -m torchx_cli` is `torchx`."""

import sys

from torchx_cli.main import main

if __name__ == "__main__":
    sys.exit(main())
