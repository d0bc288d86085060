"""Images with workspaces for a cluster: built by the local engine and pushed to a registry."""

from __future__ import annotations

from collections.abc import Callable

from torchx.schedulers.docker.images import workspace as docker_images
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
    images, notes = docker_images.provide_images(request.workspaces.builds, report)
    return with_images(request, images), notes


def build_planned_images(info: AppDryRunInfo[KubernetesJob]) -> None:
    """Builds and pushes the images that a dry-run has planned for workspaces."""
    docker_images.build_planned(info.request.workspaces.builds, info)
