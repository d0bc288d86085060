"""Images with workspaces for a cluster: built by the local engine and pushed to a registry."""

from __future__ import annotations

from collections.abc import Callable

from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images.workspace import ImagePlan, provide_image
from torchx.schedulers.kubernetes.request import KubernetesJob, with_images
from torchx.specs.app import AppDef


def provide_images(
    request: KubernetesJob, app: AppDef, report: Callable[[str], None]
) -> tuple[KubernetesJob, list[str]]:
    """Builds and pushes the images for the workspaces of an application.

    Args:
        request: the request; unchanged.
        app: the application of the request.
        report: called with a line of progress.

    Returns:
        The request with images by digest, and notes, one line each.

    Raises:
        StateError: no engine is reachable, or an image cannot be built or pushed.
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
            image, image_notes = provide_image(engine, plan, report)
            notes += image_notes
            # nodes know an image that was not pushed by its name at most, never by its id
            images[name] = image if plan.push else name
    return with_images(request, images), notes
