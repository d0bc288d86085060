"""The trainer: fits a line to the answers of the inference server."""

from __future__ import annotations

import argparse
import os
import random
from urllib.request import urlopen


def main() -> None:
    """Trains, and prints the loss of each tenth of the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="number of training steps")
    steps = parser.parse_args().steps
    host, port = os.environ["TORCHX_HOSTS_TEACHER"].split(",")[0], os.environ["TORCHX_PORT_MODEL"]
    numbers = random.Random(0)
    slope = offset = 0.0
    for step in range(1, steps + 1):
        x = numbers.uniform(-1, 1)
        with urlopen(f"http://{host}:{port}/predict?x={x}") as answer:
            error = slope * x + offset - float(answer.read())
        slope -= 0.2 * error * x
        offset -= 0.2 * error
        if step % max(steps // 10, 1) == 0:
            print(f"step {step} loss {error * error:.6f}", flush=True)
    print(f"learned {slope:.2f} x {offset:+.2f}", flush=True)


if __name__ == "__main__":
    main()
