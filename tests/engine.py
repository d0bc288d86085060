"""What the tests of containers need: a Docker engine that answers, and a small image with Python."""

from __future__ import annotations

IMAGE = "torchx-test:latest"
"""Made by .ci/image: a shell, the usual small programs, and Python."""

HOW = "start one and make the image for the tests with: .ci/docker && .ci/image"


def what_is_missing() -> str:
    """Returns what the tests of containers lack, with the way to get it; empty when all is there."""
    from torchx.errors import TorchxError
    from torchx.schedulers.docker.engine.client import Engine, EngineError

    try:
        Engine().call("GET", f"/images/{IMAGE}/json")
    except EngineError:
        return f"the Docker engine has no image {IMAGE}: .ci/image makes it"
    except TorchxError as error:
        return f"{error.message}; {HOW}"
    return ""
