"""Simulated runs of ranks that report steps, with noise."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from torchx.stragglers.rule import Comparison
from torchx.stragglers.slots import KEPT

STEPS = 20


@dataclass(frozen=True)
class Run:
    """A run of eight ranks.

    Attributes:
        waits: whether the ranks wait for each other at each step.
        noise: the sigma of the log-normal duration of a step.
        slow: the rank that is slower than others.
        share: the share by which it is slower.
        begin: the first step at which it is slower.
        end: the step from which on it is not slower any more.
        again: the step from which on it is slower again.
        pause: the probability of a pause of rank 0 at a step, and its duration in steps.
        checkpoint: the steps after which all ranks pause for a while; 0 for never.
        after: the ranks report a step after they have waited.
        apart: the most seconds between the starts of two ranks.
        skew: the largest error of the clock of a rank.
    """

    waits: bool = True
    noise: float = 0.05
    slow: int = -1
    share: float = 0.2
    begin: int = 0
    end: int = 10**9
    again: int = 10**9
    pause: tuple[float, float] = (0.0, 0.0)
    checkpoint: int = 0
    after: bool = False
    apart: float = 0.2
    skew: float = 0.0

    def reports(self, seed: int, steps: int, ranks: int = 8) -> list[tuple[int, int]]:
        """Returns the reported stragglers, each with the step of the median rank."""
        logs = self.logs(seed, steps, ranks)
        comparison, found = Comparison(STEPS, 2 * self.skew), []
        seen, now = [0] * ranks, 0.0
        while any(at < steps for at in seen):
            now += 2.0
            rows = {}
            for rank, log in enumerate(logs):
                while seen[rank] < steps and log[seen[rank]][0] <= now:
                    seen[rank] += 1
                if seen[rank]:
                    rows[rank, 0] = log[max(0, seen[rank] - KEPT) : seen[rank]]
            found += [(key[0], comparison.median) for key in comparison.update(rows)]
        return found

    def logs(self, seed: int, steps: int, ranks: int) -> list[list[tuple[float, int]]]:
        """Returns the time and the number of each step, by rank."""
        dice = random.Random(seed)
        at = [dice.random() * self.apart for _ in range(ranks)]
        clocks = [dice.uniform(-self.skew, self.skew) for _ in range(ranks)]
        logs: list[list[tuple[float, int]]] = [[] for _ in range(ranks)]
        for step in range(steps):
            is_slow = self.begin <= step < self.end or step >= self.again
            for rank in range(ranks):
                duration = 0.5 * dice.lognormvariate(0, self.noise)
                if rank == self.slow and is_slow:
                    duration *= 1 + self.share
                if rank == 0 and dice.random() < self.pause[0]:
                    duration += 0.5 * self.pause[1]
                at[rank] += duration
                if not self.after:
                    logs[rank].append((at[rank] + clocks[rank], step))
            if self.waits:
                at = [max(at) + 0.001 * dice.random() for _ in at]
            if self.checkpoint and step % self.checkpoint == 0:
                at = [each + 10.0 for each in at]
            if self.after:
                for rank in range(ranks):
                    logs[rank].append((at[rank] + clocks[rank], step))
        return logs


HEALTHY = {
    "waits": Run(),
    "alone": Run(waits=False),
    "checkpoints": Run(checkpoint=100),
    "checkpoints, alone": Run(waits=False, checkpoint=100),
    "pauses of a rank": Run(pause=(0.01, 20.0)),
    "pauses of a rank, alone": Run(waits=False, pause=(0.005, 30.0)),
    "reported after the wait": Run(after=True),
    "started apart": Run(waits=False, apart=20.0),
    "other clocks": Run(skew=0.3),
    "equal steps, started apart": Run(waits=False, apart=0.4, noise=0.001),
}
"""Runs without a straggler."""


def noisy(run: Run) -> list[Run]:
    """Returns a run with noise of several strengths."""
    return [replace(run, noise=noise) for noise in (0.01, 0.1, 0.3, 0.5)]
