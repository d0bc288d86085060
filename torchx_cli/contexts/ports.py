"""`torchx port` for a replica on another machine: two forwards, one behind the other."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence

from torchx.errors import StateError
from torchx_cli.contexts.connection import Connection
from torchx_cli.terminal.output import note, say


def forward(connection: Connection, args: Sequence[str]) -> int:
    """Forwards a local port until Ctrl-C.

    Raises:
        StateError: the port there cannot be forwarded.
    """
    words = [word for word in args if not word.startswith("-")]
    local = int(words[3]) if len(words) > 3 and words[3].isdecimal() else 0
    with socket.socket() as free:  # found here, as ssh does not report the one that it chooses
        free.bind(("127.0.0.1", local))
        local = free.getsockname()[1]
    header = {"op": "direct", "argv": list(args[: args.index(words[0]) + 3])}
    process, _ = connection.start(header)
    assert process.stdout is not None
    with process:
        try:
            match = re.fullmatch(rb"127\.0\.0\.1:(\d+)\n", process.stdout.readline(1 << 12))
            if match is None:
                raise StateError(connection.message() or "the port there cannot be forwarded")
            connection.forward(local, int(match[1]))
            say(f"127.0.0.1:{local}", flush=True)
            note(f"forwarding through {connection.context.name}; Ctrl-C ends it")
            return process.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            process.kill()
