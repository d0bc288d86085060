"""Helpers of the tests of workspaces in containers: jobs that have one, and the images that come of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from containers import Jobs, ended, scheduler, text

from torchx.schedulers.docker.dockerfile import CONTENT_LABEL
from torchx.schedulers.docker.engine.client import Engine, EngineError
from torchx.schedulers.docker.request import DockerJob
from torchx.specs.app import AppDef, AppDryRunInfo, Role
from torchx.specs.run_options import CfgVal


@dataclass
class Runs:
    """Runs applications with a workspace, and removes their images at the end of the test.

    Attributes:
        jobs: the applications.
        answer: the notes on the last submission.
        digests: of all images that may have been built.
    """

    jobs: Jobs
    answer: list[str] = field(default_factory=list)
    digests: set[str] = field(default_factory=set)

    def dryrun(self, folder: Path | str, *roles: Role, **cfg: CfgVal) -> AppDryRunInfo[DockerJob]:
        """Makes the request."""
        info = scheduler().submit_dryrun(
            AppDef("job", list(roles)), {"grace_period": 5.0, **cfg}, str(folder)
        )
        self.digests |= {plan.digest for plan in info.request.builds}
        return info

    def run(self, folder: Path | str, *roles: Role, **cfg: CfgVal) -> str:
        """Runs roles to their end and returns what they print."""
        return self.submit(self.dryrun(folder, *roles, **cfg))

    def submit(self, info: AppDryRunInfo[DockerJob]) -> str:
        """Submits a request, and returns what its replicas print until they end."""
        self.answer = []
        info.on_progress = self.answer.append
        app_id = scheduler().schedule(info)
        self.jobs.ids.append(app_id)
        ended(app_id)
        return text(app_id)

    def images(self) -> dict[str, dict[str, Any]]:
        """The images that were made for this test, by id."""
        found: dict[str, dict[str, Any]] = {}
        for digest in self.digests:
            asked = {"filters": {"label": [f"{CONTENT_LABEL}={digest}"]}}
            found |= {image["Id"]: image for image in Engine().call("GET", "/images/json", asked)}
        return found

    def remove_images(self) -> None:
        """Removes them, newest first: one may lie below another."""
        for image in sorted(self.images().values(), key=lambda one: -int(one["Created"])):
            for how in ({"force": 1}, {}):
                try:
                    Engine().call("DELETE", f"/images/{image['Id']}", how)
                    break
                except EngineError:
                    continue


def tag(image: str, name: str) -> None:
    """Gives an image a name."""
    repository, _, last = name.rpartition(":")
    Engine().call("POST", f"/images/{image}/tag", {"repo": repository, "tag": last})


def dockerfile(folder: Path, *steps: str) -> None:
    (folder / "Dockerfile.torchx").write_text("\n".join(["ARG IMAGE", "FROM $IMAGE", *steps]) + "\n")


def steps_left(mark: str) -> list[str]:
    """The images without a name, and the containers, that a build with ``LABEL mark=…`` has left."""
    label = [f"mark={mark}"]
    images = Engine().call("GET", "/images/json", {"filters": {"dangling": ["true"], "label": label}})
    containers = Engine().call("GET", "/containers/json", {"all": 1, "filters": {"label": label}})
    return [one["Id"] for one in images + containers]
