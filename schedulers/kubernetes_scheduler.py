"""Public module of the Kubernetes scheduler."""

from __future__ import annotations

from torchx.schedulers.kubernetes.request import KubernetesJob as KubernetesJob
from torchx.schedulers.kubernetes.scheduler import KubernetesScheduler as KubernetesScheduler
from torchx.schedulers.kubernetes.scheduler import create_scheduler as create_scheduler
