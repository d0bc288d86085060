"""The jobs of the pictures."""

from __future__ import annotations

import torchx.specs as specs
from torchx.specs import macros


def train(epochs: int = 3, width: int = 64) -> specs.AppDef:
    """Trains on two replicas, which get their samples from a third.

    Args:
        epochs: how often to go through the samples; a trainer of a long run is lost once, and started again
        width: of the first layer; anything but 64 fails
    """

    def role(name: str, replicas: int) -> specs.Role:
        args = ["train.py", name, macros.replica_id, macros.app_id, str(epochs), str(width)]
        return specs.Role(
            name=name,
            image="",
            entrypoint="python",
            args=args,
            num_replicas=replicas,
            max_retries=3 if epochs > 50 else 0,
            retry_policy=specs.RetryPolicy.REPLICA,
        )

    return specs.AppDef(name="train", roles=[role("loader", 1), role("trainer", 2)])


def fit(workers: int = 6) -> specs.AppDef:
    """Fits a model with several workers, the last of which fails.

    Args:
        workers: their number
    """
    role = specs.Role(
        name="worker",
        image="",
        entrypoint="python",
        args=["fit.py", macros.replica_id],
        num_replicas=workers,
        resource=specs.Resource(cpu=1, gpu=0, memMB=200),
    )
    return specs.AppDef(name="fit", roles=[role])
