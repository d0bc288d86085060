"""The request for the runs of a sweep: one Indexed Job, and Secrets with the arguments of the runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from torchx import settings
from torchx.errors import UsageError
from torchx.masking import SecretValue
from torchx.schedulers.ids import FIRST, REST
from torchx.schedulers.kubernetes.api.client import Cluster, path_of
from torchx.schedulers.kubernetes.api.errors import ClusterError
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.facts import Facts
from torchx.schedulers.kubernetes.manifests import job as jobs
from torchx.schedulers.kubernetes.manifests.attempt_number import RETRIES, field_of
from torchx.schedulers.kubernetes.manifests.escaping import INDEX, INDEX_VARIABLE, MacroFiller
from torchx.schedulers.kubernetes.manifests.overlays import apply_overlays
from torchx.schedulers.kubernetes.manifests.pod import FIELD_PATH, AppContext, checked_text, pod_template
from torchx.schedulers.kubernetes.manifests.secrets import secret_manifests, secret_name
from torchx.schedulers.kubernetes.manifests.workspace import (
    FOLDER,
    WorkspacePlans,
    config_map,
    config_map_names,
)
from torchx.schedulers.kubernetes.names import (
    APP,
    CANCELLED_CODE,
    RUN_IDS,
    RUNS,
    role_names,
    split_run,
    unique_name,
)
from torchx.schedulers.kubernetes.options import JOB
from torchx.schedulers.kubernetes.record import packed_ids, write_record
from torchx.schedulers.kubernetes.request import KubernetesJob
from torchx.schedulers.kubernetes.sweeps import launcher
from torchx.scheduling.base import replica_variables
from torchx.specs.app import AppDef, Role
from torchx.specs.run_options import RunOptions

LARGEST_SECRET = 1_200_000
"""Maximum characters of a Secret, in base64; its files may have 1 MiB on a cluster."""
MOST_SECRETS = 8
"""Maximum number of Secrets: each pod holds all of them in memory."""
VOLUME = "runs"
OWN_VARIABLES = frozenset(
    (
        INDEX_VARIABLE,
        RETRIES,
        settings.TORCHX_ATTEMPT,
        settings.TORCHX_IMAGE,
        settings.TORCHX_RANK0_HOST,
        *replica_variables("", "", 0),
    )
)
"""Variables of the scheduler, which are set for every run."""


def unique_for(app: AppDef, count: int, key: str) -> str:
    """Returns the id of the Job with the runs: the name of their application, and a suffix made from the key.

    Args:
        app: the application of the first run.
        count: the number of runs.
        key: names the object, see ``ManyRuns.key``.
    """
    many = replace(app, roles=[replace(app.roles[0], num_replicas=count)])
    name = unique_name(many).rpartition("-")[0]
    number, first = divmod(int.from_bytes(hashlib.sha256(key.encode()).digest()[:7], "big"), len(FIRST))
    suffix = FIRST[first]
    for _ in range(10):
        number, digit = divmod(number, len(REST))
        suffix += REST[digit]
    return f"{name}-{suffix}"


def variables_of(roles: Sequence[Role]) -> set[str]:
    """Returns the names of the variables that are not the same in all runs."""
    names = {name for role in roles for name in role.env}
    first = roles[0].env
    return {
        name
        for name in names
        if name not in first or any(role.env.get(name) != first[name] for role in roles)
    }


def to_request(
    apps: Sequence[AppDef],
    name: str,
    key: str,
    cfg: RunOptions,
    at_once: int,
    plans: WorkspacePlans,
) -> KubernetesJob:
    """Returns the objects of the runs of a sweep, without side effects.

    Args:
        apps: the application of each run; their roles differ in arguments and environment only.
        name: the id of the Job, see :func:`unique_for`.
        key: names the object, see ``ManyRuns.key``.
        cfg: run options, with their defaults.
        at_once: the maximum number of runs at the same time; 0 for no limit.
        plans: the plans for the workspace of the first run, which all runs share.

    Raises:
        UsageError: the runs are not possible on a cluster, or their arguments are too large.
    """
    given = apps[0]
    differing = variables_of([app.roles[0] for app in apps])
    role = given.roles[0]
    common = {key: value for key, value in role.env.items() if key not in differing}
    app = replace(given, roles=[replace(role, args=[], env=common)])
    packed = config_map_names(name, plans.archives)
    (part,) = role_names(name, [replace(role, num_replicas=len(apps))])
    context = AppContext(app, name, cfg, f"{name}-{part}-{INDEX}", workspaces=packed, many=True)
    secrets = [*_run_secrets(context, apps, differing, FOLDER if packed else "")]
    main = _job(context, f"{name}-{part}", len(apps), at_once, secrets)
    apply_overlays(context, [main])
    notes = main["metadata"].setdefault("annotations", {})
    notes[RUNS] = key
    ids = packed_ids([str(app.metadata.get(settings.RUN) or "") for app in apps])
    notes.update({RUN_IDS: ids} if ids else {})
    whole = replace(given, roles=[replace(given.roles[0], num_replicas=len(apps))])
    record = write_record(whole, cfg)
    if record is not None:
        notes[APP] = record
    maps = [config_map(context.metadata(packed[0], context.labels), each) for each in plans.archives.values()]
    env = secret_manifests(app, context.metadata(secret_name(name), context.labels))
    return KubernetesJob(name, context.namespace, JOB, [*maps, *env, *secrets, main], plans)


def _job(context: AppContext, name: str, count: int, at_once: int, secrets: list[Object]) -> Object:
    """Returns the Job, without overlays."""
    role = context.app.roles[0]
    template = pod_template(context, 0, retries_at=field_of(role))
    (container,) = template["spec"]["containers"]
    container["args"] = [*launcher.arguments(role.entrypoint), *container["args"]]
    container["volumeMounts"].append({"name": VOLUME, "mountPath": launcher.FOLDER, "readOnly": True})
    sources = [{"secret": {"name": each["metadata"]["name"]}} for each in secrets]
    template["spec"]["volumes"].append({"name": VOLUME, "projected": {"sources": sources}})
    spec = jobs.job_spec(context, 0)
    spec.pop("maxFailedIndexes", None)  # a failed run does not end the others
    codes = {"containerName": "main", "operator": "In", "values": [CANCELLED_CODE]}
    spec["podFailurePolicy"]["rules"].insert(0, {"action": "FailIndex", "onExitCodes": codes})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": context.metadata(name, context.role_labels(0)),
        "spec": {
            **spec,
            "completions": count,
            "parallelism": parallelism(count, at_once),
            "backoffLimit": jobs.MANY,
            **jobs.lifetime(context),
            "template": template,
        },
    }


def parallelism(count: int, at_once: int) -> int:
    """Returns the number of runs at the same time.

    >>> parallelism(10, 0), parallelism(10, 4), parallelism(10, 40)
    (10, 4, 10)
    """
    return min(at_once or count, count)


def cancelled_secret(name: str) -> str:
    """Returns the name of the Secret that lists the cancelled runs of a Job.

    Args:
        name: the id of the Job.
    """
    return f"{name}-runs"


def _run_secrets(
    context: AppContext, apps: Sequence[AppDef], differing: set[str], img_root: str
) -> Iterator[Object]:
    """Yields the Secrets with the lines of the runs, and that with the list of cancelled runs."""

    def secret(name: str, data: dict[str, str], immutable: bool) -> Object:
        metadata = context.metadata(name, context.labels)
        kind = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque"}
        return {**kind, **({"immutable": True} if immutable else {}), "data": data}

    base = cancelled_secret(context.app_id)
    yield secret(base, {launcher.CANCELLED: launcher.encoded("")}, False)
    runs = (_fields(context, number, app.roles[0], differing, img_root) for number, app in enumerate(apps))
    held: dict[str, str] = {}
    size = made = 0
    for file, text in launcher.files(apps[0].roles[0].entrypoint, runs):
        text = launcher.encoded(text)
        length = len(text)
        if held and size + length > LARGEST_SECRET:
            yield secret(f"{base}-{made}", held, True)
            held, size, made = {}, 0, made + 1
        if length > LARGEST_SECRET or made == MOST_SECRETS:
            raise UsageError("the arguments of the runs are too large for the Secrets of a Job")
        held[file] = SecretValue(text)
        size += length
    yield secret(f"{base}-{made}", held, True)


def _fields(
    context: AppContext, number: int, role: Role, differing: set[str], img_root: str
) -> launcher.RunFields:
    """Returns the own fields of a run, with their macros substituted."""
    filler = MacroFiller(f"{context.namespace}:{context.app_id}.{number}", 0, img_root)
    env: dict[str, str] = {}
    for name in sorted(differing & role.env.keys()):
        value = checked_text(role, role.env[name], f"variable {name}")
        if isinstance(value, SecretValue):
            env[name] = str(value)
        else:
            env[name] = filler.value_of(value)
    return launcher.RunFields([filler.value_of(checked_text(role, arg)) for arg in role.args], env)


def rejected_variable(roles: Sequence[Role]) -> str:
    """Returns a variable that differs in the runs and that a pod cannot set from a file; empty if none."""
    for name in sorted(variables_of(roles)):
        reserved = name in OWN_VARIABLES or not launcher.NAME.fullmatch(name)
        if reserved or any(role.env.get(name, "").startswith(FIELD_PATH) for role in roles):
            return name
    return ""


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
