"""Format the ranks of an application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from torchx.specs.status import is_terminal
from torchx_cli.terminal.display import table
from torchx_cli.terminal.output import Row

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.runner.ranks import RankStatus
    from torchx.specs.status import AppState


def without_ranks(state: AppState, which: str = "a rank") -> str:
    """Returns a sentence about a log without the prefix of any rank, or of the searched one."""
    yet = ""
    if not is_terminal(state):
        yet = " yet"
    return f"no line has the prefix of {which}{yet}; dist.torchrun adds prefixes (--tee 3)"


def rank_lines(ranks: Sequence[RankStatus], state: AppState, stream: TextIO) -> list[str]:
    """Returns a table of ranks; a sentence if there are none."""
    if not ranks:
        return [f"ranks: {without_ranks(state)}"]
    rows: list[Row] = [
        [
            f"{each.rank}",
            f"{each.role}/{each.replica}",
            (_result(each), "FAILED" if each.failure else ""),
            each.last_line,
        ]
        for each in ranks
    ]
    return table(rows, ("RANK", "REPLICA", "FAILURE", "LAST LINE"), stream)


def _result(each: RankStatus) -> str:
    if each.failure is None:
        return ""
    return each.failure.signal or f"exit {each.failure.exit_code}"


def rank_data(each: RankStatus) -> Object:
    """Returns a rank as plain data."""
    failure = each.failure
    return {
        "rank": each.rank,
        "role": each.role,
        "replica": each.replica,
        "local_rank": failure.local_rank if failure else None,
        "host": (failure.host or None) if failure else None,
        "exit_code": failure.exit_code if failure else None,
        "signal": failure.signal if failure else None,
        "last_line": each.last_line,
    }
