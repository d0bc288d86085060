"""An inference server, and a trainer that starts when the server is ready and uses its answers.

torchx run -s local_cwd examples/inference/app.py:distill
cd examples/inference
torchx run -s local_docker --workspace . app.py:distill --folder . --image IMAGE
"""

from __future__ import annotations

import torchx.specs as specs


def distill(
    steps: int = 200, folder: str = "examples/inference", image: str = "", port: int = 8766
) -> specs.AppDef:
    """Trains a model on the answers of an inference server.

    Args:
        steps: number of training steps
        folder: folder with server.py and trainer.py, below the working directory
        image: image with Python, for schedulers that use images
        port: port of the server; local schedulers assign a free one
    """
    # The server runs until the trainer has succeeded; then it is ended. The port is that of port_map, by its
    # name: on local schedulers it is a free port, in TORCHX_PORT_MODEL. The host is in TORCHX_HOSTS_TEACHER.
    teacher = specs.Role(
        name="teacher",
        image=image,
        entrypoint="python",
        args=[f"{folder}/server.py"],
        port_map={"model": port},
    )
    student = specs.Role(
        name="student",
        image=image,
        entrypoint="python",
        args=[f"{folder}/trainer.py", "--steps", str(steps)],
    )
    specs.service(teacher, ready="http:model/health", within="2m")
    specs.after(student, ["teacher"])
    return specs.AppDef(name="distill", roles=[teacher, student])
