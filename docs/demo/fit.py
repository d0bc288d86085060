"""A worker of the pictured report: it computes in bursts, keeps more and more samples, and may fail."""

from __future__ import annotations

import sys
import time

SECONDS = 42.0


def main() -> None:
    """Works until the time is over; worker 5 keeps twice as many samples and fails."""
    worker = int(sys.argv[1])
    kept: list[bytes] = []
    begin = time.monotonic()
    step = 0
    while (elapsed := time.monotonic() - begin) < SECONDS:
        step += 1
        kept.append(bytes(range(256)) * (4096 if worker == 5 else 2048))
        burst = 0.05 + 0.15 * (1 + worker % 3) * (int(elapsed) // 10 % 2)
        until = time.monotonic() + burst
        while time.monotonic() < until:
            sum(kept[-1])
        print(f"step {step:3d}  {len(kept)} samples kept  loss {2.0 / step:.4f}", flush=True)
        if worker == 5 and elapsed > SECONDS - 8:
            raise MemoryError(f"cannot keep more than {len(kept)} samples")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
