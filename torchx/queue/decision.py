"""The decision about the waiting jobs of this machine, by the leases that are free now."""

from __future__ import annotations

import time
from collections.abc import Collection

from torchx.leases.holders import holders, names_in_use
from torchx.queue import quotas
from torchx.queue.order import Verdict, Waiter, decide


def decide_now(waiters: Collection[Waiter], blocked: Collection[str] = ()) -> list[Verdict]:
    """Decides which jobs start, by the leases that are free now.

    Args:
        waiters: the waiting jobs of all users.
        blocked: further leases that cannot be taken.
    """
    wanted = {name for waiter in waiters for want in waiter.wanted for name in want.names}
    names = names_in_use()
    in_use = wanted & names
    limits = quotas.load()
    if limits:  # also those that no waiting job could use count
        held = holders(names)
    else:
        held = {}
        if any(w.limit is not None for w in waiters):
            held = holders(in_use)
    until = {name: holder.ends for name, holder in held.items() if holder.ends is not None}
    uids = {waiter.uid for waiter in waiters}
    return decide(
        waiters,
        wanted - in_use - set(blocked),
        until,
        time.time(),
        {uid: quotas.of_user(limits, uid) for uid in uids},
        quotas.usage(held) if limits else None,
    )
