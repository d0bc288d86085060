"""Images with workspaces for a cluster: built by the local engine and pushed to a registry."""

from __future__ import annotations

from collections.abc import Callable

from torchx.schedulers.docker.engine.client import Engine
from torchx.schedulers.docker.images.workspace import build_planned, provide_image
from torchx.schedulers.kubernetes.request import KubernetesJob, with_images
from torchx.specs.app import AppDryRunInfo


def provide_images(request: KubernetesJob, report: Callable[[str], None]) -> tuple[KubernetesJob, list[str]]:
    """Builds and pushes the planned images of a request.

    Args:
        request: the request; unchanged.
        report: called with a line of progress.

    Returns:
        The request with images by digest, and notes, one line each.

    Raises:
        StateError: no engine is reachable, or an image cannot be built or pushed.
    """
    notes: list[str] = []
    images: dict[str, str] = {}
    engine = Engine()
    for plan in request.workspaces.builds:
        image, image_notes = provide_image(engine, plan, report)
        notes += image_notes
        # nodes know an image that was not pushed by its name at most, never by its id
        images[plan.name] = image if plan.push else plan.name
    return with_images(request, images), notes


def build_planned_images(info: AppDryRunInfo[KubernetesJob]) -> None:
    """Builds and pushes the images that a dry-run has planned for workspaces."""
    build_planned(Engine(), info.request.workspaces.builds, info)
