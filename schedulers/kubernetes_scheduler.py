"""Public module of the Kubernetes scheduler."""

from __future__ import annotations

from torchx.compat.options import structured
from torchx.schedulers.kubernetes.options import run_options
from torchx.schedulers.kubernetes.request import KubernetesJob as KubernetesJob
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler as KubernetesScheduler
from torchx.schedulers.kubernetes.scheduler import create_scheduler as create_scheduler


class Opts(structured(run_options())):  # type: ignore[misc]
    """The run options."""


KubernetesOpts = Opts
