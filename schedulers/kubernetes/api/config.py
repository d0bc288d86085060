"""The configuration of the cluster: a kubeconfig and its context, or the service account of this pod."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchx.errors import AbsentError, StateError, UsageError
from torchx.lazy import lazy_imports
from torchx.machine.files import expanded, read_file
from torchx.schedulers.kubernetes.api.objects import value_at
from torchx.suggestions import did_you_mean

with lazy_imports:
    from torchx import yaml_limits
    from torchx.schedulers.kubernetes.api import exec_plugins

if TYPE_CHECKING:
    from torchx.schedulers.kubernetes.api.exec_plugins import Plugin

INSTALL = "pip install 'kubernetes>=28.1'"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder of a pod's service account token and namespace."""


class NoPackageError(AbsentError):
    """The package ``kubernetes`` is not installed."""

    code = "missing_package"


def kubeconfigs(kubeconfig: str | None = None) -> list[Path]:
    """Returns the existing kubeconfig files: those given, those of KUBECONFIG, or ``~/.kube/config``."""
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG", "")
    paths = [expanded(part) for part in kubeconfig.split(os.pathsep) if part]
    default = Path(os.path.expanduser("~/.kube/config"))  # noqa: PTH111  # there may be no home
    return [path for path in paths or [default] if path.is_file()]


def in_cluster() -> bool:
    """Returns True in a pod with a service account."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST")) and (ACCOUNT / "token").is_file()


def require_config(kubeconfig: str | None = None) -> None:
    """Checks that a cluster is configured, without loading the package ``kubernetes``.

    Args:
        kubeconfig: the requested kubeconfig.

    Raises:
        StateError: the kubeconfig does not exist.
        AbsentError: no cluster is configured.
    """
    if kubeconfigs(kubeconfig) or (in_cluster() and not kubeconfig):
        return
    origin = "KUBECONFIG"
    if kubeconfig:
        origin = "run option `kubeconfig`"
    kubeconfig = kubeconfig or os.environ.get("KUBECONFIG", "")
    if kubeconfig:
        raise StateError(
            f"no kubeconfig at {kubeconfig} (from {origin})",
            hint="set KUBECONFIG to the file that your cluster gave you; without a cluster: -s local_cwd",
        )
    raise AbsentError(
        "no Kubernetes cluster is set up here: there is no ~/.kube/config",
        hint="put your cluster's kubeconfig there, or set KUBECONFIG; without a cluster: -s local_cwd",
    )


def load(context: str | None, kubeconfig: str | None = None) -> tuple[Any, str, str]:
    """Loads the configuration with the package ``kubernetes``.

    Args:
        context: the context of the kubeconfig; default: the current one.
        kubeconfig: its path; default: KUBECONFIG, or ``~/.kube/config``.

    Returns:
        The package's configuration, its namespace (default: ``default``), and a description.

    Raises:
        NoPackageError: the package is not installed.
        StateError: no cluster is configured, or the configuration cannot be read.
        UsageError: the context does not exist.
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
        plugin = exec_plugins.plugin_of(read, str(current["name"]))
        with exec_plugins.logged_errors() as errors:
            config.load_kube_config(joined, context=current["name"], client_configuration=configuration)
        if plugin is not None and errors and not (configuration.api_key or configuration.cert_file):
            raise plugin.failed(errors[0])
    except (UsageError, exec_plugins.PluginError):
        raise
    except Exception as error:  # a kubeconfig can break its reader in any way
        where = os.pathsep.join(map(str, files)) or "the account of this pod"
        raise StateError(
            f"{where} cannot be used: {_one_line(error)}", hint="show it: kubectl config view"
        ) from None
    namespace = value_at(current, "context", "namespace") or "default"
    return configuration, namespace, f"context {current['name']} of {joined}"


def _load(path: Path) -> object:
    """Reads a kubeconfig with size limits, which the package's reader lacks."""
    source = f"the kubeconfig {path} cannot be read"
    try:
        data = read_file(path, yaml_limits.LARGEST, own=False, follow=True)
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from None
    return yaml_limits.load_yaml(data.decode("utf-8"), source=source)


def _namespace_of_pod() -> str:
    try:
        return (ACCOUNT / "namespace").read_text(encoding="utf-8").strip() or "default"
    except OSError:
        return "default"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
