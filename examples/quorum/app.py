"""Replicas that join and leave while they train, by torchft: its lighthouse is a service.

pip install torchft
torchx run -s local_cwd examples/quorum/app.py:train

Each trainer is killed once, and started again by the policy REPLICA. The others continue without it, and give
it their state when it is back.
"""

from __future__ import annotations

import torchx.specs as specs

LIGHTHOUSE = (
    'exec torchft_lighthouse --min_replicas "$0" --join_timeout_ms 2000 --bind "[::]:$TORCHX_PORT_LIGHTHOUSE"'
)


def train(
    replicas: int = 3,
    steps: int = 600,
    every: float = 20.0,
    folder: str = "examples/quorum",
    image: str = "",
) -> specs.AppDef:
    """Trains in replicas of which each is killed once.

    Args:
        replicas: number of trainers
        steps: number of training steps
        every: seconds between two kills
        folder: folder with trainer.py, below the working directory
        image: image with torchft, for schedulers that use images
    """
    lighthouse = specs.Role(
        name="lighthouse",
        image=image,
        entrypoint="sh",
        args=["-c", LIGHTHOUSE.replace("$", "$$"), str(max(replicas - 1, 1))],
        port_map={"lighthouse": 29510},
    )
    trainer = specs.Role(
        name="trainer",
        image=image,
        entrypoint="python",
        args=[f"{folder}/trainer.py", "--steps", str(steps), "--every", str(every)],
        num_replicas=replicas,
        max_retries=3,
        retry_policy=specs.RetryPolicy.REPLICA,
    )
    specs.service(lighthouse, ready="tcp:lighthouse", within="2m")
    specs.after(trainer, ["lighthouse"])
    return specs.AppDef(name="quorum", roles=[lighthouse, trainer])
