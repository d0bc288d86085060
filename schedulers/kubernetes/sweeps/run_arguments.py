"""The arguments and variables of a run, for describing it: they are in the Secrets of its Job."""

from __future__ import annotations

from dataclasses import replace

from torchx.schedulers.kubernetes.api.client import Cluster, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.names import split_run
from torchx.schedulers.kubernetes.objects import Facts
from torchx.schedulers.kubernetes.sweeps import launcher
from torchx.schedulers.kubernetes.sweeps.manifests import MOST_SECRETS, cancelled_secret
from torchx.specs.app import AppDef


def completed(cluster: Cluster, facts: Facts, app: AppDef) -> AppDef:
    """Returns an application with the fields of a run; without the right to read Secrets, unchanged.

    Args:
        cluster: the cluster.
        facts: the run.
        app: its application, without the fields in which the runs differ.
    """
    if facts.run is None or not app.roles:
        return app
    role = app.roles[0]
    base = cancelled_secret(split_run(facts.name)[0])
    for number in range(MOST_SECRETS):
        try:
            secret = cluster.find(path_of("v1", "secrets", facts.namespace, f"{base}-{number}"))
        except ClusterError:
            return app
        if secret is None:
            return app
        fields = launcher.fields_in(secret.get("data") or {}, role.entrypoint, facts.run)
        if fields is not None:
            env = {**role.env, **fields.env}
            return replace(app, roles=[replace(role, args=[*fields.args], env=env)])
    return app
