"""Images with a workspace for a cluster: built on this machine's engine, pushed where the nodes pull."""

from __future__ import annotations

from collections.abc import Callable

from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images.workspace import ImagePlan, provide_image
from torchx.schedulers.kubernetes.request import KubernetesJob, with_images
from torchx.specs.app import AppDef


def provide_images(
    request: KubernetesJob, app: AppDef, tell: Callable[[str], None]
) -> tuple[KubernetesJob, list[str]]:
    """Builds and pushes what the workspaces of an application need.

    Args:
        request: left as it is.
        app: the application that the request was made from.
        tell: called with a line about what takes long.

    Returns:
        The request with the images by their digests, and notes, a line each.

    Raises:
        StateError: no engine answers, or an image cannot be built or pushed.
    """
    plans = {
        plan.name: plan
        for role in app.roles
        if isinstance(plan := getattr(role.workspace, "plan", None), ImagePlan)
    }
    notes: list[str] = []
    images: dict[str, str] = {}
    if plans:
        engine = Engine()
        for name, plan in plans.items():
            image, image_notes = provide_image(engine, plan, tell)
            notes += image_notes
            # an id means nothing to the nodes: what was not pushed they know by its name at most
            images[name] = image if plan.push else name
    return with_images(request, images), notes
