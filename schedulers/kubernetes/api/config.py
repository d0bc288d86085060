"""Where the cluster is: a kubeconfig and its context, or the account of the pod that this runs in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torchx.errors import AbsentError, StateError, UsageError
from torchx.machine.files import read_file
from torchx.schedulers.kubernetes.api.exec_plugins import Plugin, PluginError, complaints, plugin_of
from torchx.suggestions import did_you_mean
from torchx.yaml_limits import LARGEST, load_yaml

INSTALL = "pip install 'torchx-cli[kubernetes]'"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token and the namespace of its account."""


class NoPackageError(AbsentError):
    """The package that speaks to clusters is not installed."""


def kubeconfigs(told: str | None = None) -> list[Path]:
    """Returns the kubeconfig files that count, those of KUBECONFIG or the usual one, as far as they exist."""
    told = told or os.environ.get("KUBECONFIG", "")
    paths = [Path(part).expanduser() for part in told.split(os.pathsep) if part]
    return [path for path in paths or [Path("~/.kube/config").expanduser()] if path.is_file()]


def in_cluster() -> bool:
    """Tells whether this runs in a pod that has an account."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (ACCOUNT / "token").is_file()


def require_config(told: str | None = None) -> None:
    """Looks whether anything says where a cluster is, which costs less than loading what speaks to one.

    Args:
        told: the kubeconfig that was asked for.

    Raises:
        StateError: KUBECONFIG names no file that exists.
        AbsentError: nothing says where a cluster is.
    """
    if kubeconfigs(told) or (in_cluster() and not told):
        return
    origin = "run option `kubeconfig`" if told else "KUBECONFIG"
    told = told or os.environ.get("KUBECONFIG", "")
    if told:
        raise StateError(
            f"there is no kubeconfig at {told} (from {origin})",
            hint="set KUBECONFIG to the file that your cluster gave you; without a cluster: -s local_cwd",
        )
    raise AbsentError(
        "no Kubernetes cluster is set up here: there is no ~/.kube/config",
        hint="put your cluster's kubeconfig there, or set KUBECONFIG; without a cluster: -s local_cwd",
    )


def load(context: str | None, kubeconfig: str | None = None) -> tuple[Any, str, str]:
    """Reads the configuration as the package ``kubernetes`` does it.

    Args:
        context: the context of the kubeconfig; the current one unless told.
        kubeconfig: its path; what KUBECONFIG says or the usual one unless told.

    Returns:
        The package's configuration, the namespace that it chooses (or ``default``), and what it is, in words.

    Raises:
        NoPackageError: the package is not installed.
        StateError: nothing says where a cluster is, or what says so cannot be read.
        UsageError: there is no such context.
    """
    require_config(kubeconfig)
    try:
        from kubernetes import client, config
    except ImportError:
        raise NoPackageError("-s kubernetes needs the package `kubernetes`", hint=INSTALL) from None
    configuration = client.Configuration()
    files = kubeconfigs(kubeconfig)
    plugin: Plugin | None = None
    try:
        if not files:
            config.load_incluster_config(client_configuration=configuration)
            return configuration, _namespace_of_pod(), "the cluster that this pod is in"
        read = [(path, _load(path)) for path in files]
        joined = os.pathsep.join(map(str, files))
        contexts, current = config.list_kube_config_contexts(joined)
        if context:
            names = [str(each["name"]) for each in contexts]
            if context not in names:
                raise UsageError(
                    f"the kubeconfig {joined} has no context `{context}`",
                    hint=did_you_mean(context, names, "its contexts: " + ", ".join(names)),
                )
            current = contexts[names.index(context)]
        plugin = plugin_of(read, str(current["name"]))
        with complaints() as told:
            config.load_kube_config(joined, context=current["name"], client_configuration=configuration)
        if plugin is not None and told and not (configuration.api_key or configuration.cert_file):
            raise plugin.failed(told[0])
    except (UsageError, PluginError):
        raise
    except Exception as error:  # what is in such a file can break its reader in any way
        where = os.pathsep.join(map(str, files)) or "the account of this pod"
        raise StateError(
            f"{where} cannot be used: {_one_line(error)}", hint="see what is in it: kubectl config view"
        ) from None
    namespace = (current.get("context") or {}).get("namespace") or "default"
    return configuration, namespace, f"context {current['name']} of {joined}"


def _load(path: Path) -> object:
    """Reads a kubeconfig within limits; the package's own reader has none."""
    source = f"the kubeconfig {path} cannot be read"
    try:
        data = read_file(path, LARGEST, own=False, follow=True)
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from None
    return load_yaml(data.decode("utf-8"), source=source)


def _namespace_of_pod() -> str:
    try:
        return (ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
