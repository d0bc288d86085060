"""Names of applications, objects and pods on Kubernetes, and labels that select them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from torchx.errors import RunOptionError, UsageError
from torchx.schedulers.ids import random_id
from torchx.specs.app import AppDef, Role

PREFIX = "torchx.pytorch.org/"
APP_ID = f"{PREFIX}app-id"
"""Label of every object and pod: the application's id, without the namespace."""
APP_NAME = f"{PREFIX}app-name"
"""Label: the application's name, reduced to valid characters."""
ROLE_NAME = f"{PREFIX}role-name"
"""Label of jobs and pods: the role's name, reduced to valid characters."""
ROLE_INDEX = f"{PREFIX}role-index"
"""Label of jobs and pods: the role number, from 0."""
REPLICA_ID = f"{PREFIX}replica-id"
"""Label of pods with their own template: the replica's id; other pods have only an index."""
ATTEMPT = f"{PREFIX}attempt"
"""Label of jobs and pods of a gang: the number of the attempt, from 1; each attempt of a role is a job."""
VERSION = f"{PREFIX}version"
"""Label: the version of torchx that created the object."""
APP = f"{PREFIX}app"
"""Annotation of the first job: the application and its run options, see ``kubernetes/record.py``."""
USER = f"{PREFIX}user"
"""Annotation: the name of the submitter."""
RESTARTED = f"{PREFIX}restarted"
"""Annotation of a job: the restart that replaces it by the job of the next attempt, as JSON."""
OUTCOME = f"{PREFIX}outcome"
"""Annotation of a submitted object: the first failure and the end of its application, as JSON."""
DEADLINE = f"{PREFIX}deadline"
"""Annotation of a job: its own deadline in seconds, before torchx ended it by another one."""
RETRIES = f"{PREFIX}retries"
"""Annotation of a job after a restart: the used retries by their scope, and the reason, as JSON."""
ENDED = f"{PREFIX}ended"
"""Annotation of pods: the time when torchx ended them by a deadline."""
NOTICE = f"{PREFIX}notice"
"""Annotation of pods with a notice of their time limit: its seconds."""
LATE = f"{PREFIX}late"
"""Annotation of pods of services: why torchx ended one that was not ready in time."""
READY = f"{PREFIX}ready"
"""Annotation of pods of services: the time when torchx found the line that makes one ready."""
AWAITS = f"{PREFIX}awaits"
"""Annotation of a job: the roles that it starts after; it is suspended until then."""
DISRUPTED = f"{PREFIX}disrupted-"
"""Prefix of annotations of jobs: time and reason of each disruption of a pod that torchx observed."""

RUNS = f"{PREFIX}runs"
"""Annotation of a Job with the runs of a sweep: its key, see ``ManyRuns.key``."""
CANCELLED_RUNS_AT = f"{PREFIX}cancelled-runs-at"
"""Annotation of a Job with the runs of a sweep: the time of the last cancellation of single runs."""
DELETED_RUNS = f"{PREFIX}deleted-runs"
"""Annotation of a Job with the runs of a sweep: the indexes of deleted runs, as ``0-2,5``."""
RUN_IDS = f"{PREFIX}run-ids"
"""Annotation of a Job with the runs of a sweep: the id of each run in its sweep, packed."""
CANCELLED_RUNS = f"{PREFIX}cancelled-runs"
"""Annotation of a Job with the runs of a sweep: the indexes of cancelled runs, as ``0-2,5``."""
CANCELLED = f"{PREFIX}cancelled"
"""Annotation of submitted objects: time of cancellation."""
STOPPED = f"{PREFIX}stopped"
"""Annotation: time when it was stopped because another role failed."""
RELEASED = f"{PREFIX}released"
"""Annotation: time when a service was ended because all ordinary roles had succeeded."""
HELD = f"{PREFIX}held"
"""Annotation: the submission is incomplete; the job is suspended until all objects exist."""

CLOSED = 1
"""Seconds of the deadline by which torchx ends a Job that has started."""
CANCELLED_CODE = 213
"""The exit code of a run of a sweep that was cancelled before it started."""

JOB_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label of pods set by an Indexed Job: the replica's id."""
LIMIT = "TORCHX_TIME_LIMIT"
"""The variable with the seconds of a run; set for an application with a time limit."""
CONTAINER = "main"
"""The name of the role's container; overlays may add others."""

MAX_LENGTH = 63
"""Maximum length of host names and label values."""
_RANDOM = 14
_ROLE = 15
_JOBSET = len("-0") + len("-xxxxx")
_DNS_LABEL = r"[a-z]([a-z0-9-]*[a-z0-9])?"


def slug(text: str) -> str:
    """Returns a text reduced to the characters of a host name; may be empty.

    >>> slug("Très_Long Name!"), slug("\u8bad\u7ec3")
    ('tres-long-name', '')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def unique_name(app: AppDef) -> str:
    """Returns a unique id for an application: its name, shortened to fit into names of pods, and a suffix.

    >>> import re
    >>> re.sub("-[^-]*$", "-…", unique_name(AppDef("3D train", [Role("trainer", "img")])))
    'app-3d-train-…'
    """
    roles = max((min(len(part), _ROLE) for part in role_parts(app.roles)), default=0)
    digits = max((len(str(role.num_replicas)) for role in app.roles), default=1)
    room = MAX_LENGTH - (1 + _RANDOM) - (1 + roles) - (1 + digits) - _JOBSET
    name = slug(app.name) or "app"
    if not name[0].isalpha():
        name = f"app-{name}"
    return f"{name[:room].rstrip('-')}-{random_id()}"


def role_parts(roles: Sequence[Role]) -> list[str]:
    """Returns the part for each role in names of objects: its reduced name, else its number."""
    return [slug(role.name) or f"role-{number}" for number, role in enumerate(roles)]


def role_names(app_id: str, roles: Sequence[Role], spare: int = 0) -> list[str]:
    """Returns the part for each role in names, shortened so that names of pods are valid host names.

    Args:
        app_id: the application's id, without the namespace.
        roles: its roles.
        spare: additional characters in the names of pods.

    Raises:
        UsageError: two roles would have the same name, or the id is too long.

    >>> role_names("a-b1", [Role("Trainer", "i"), Role("\u8bad", "i")])
    ['trainer', 'role-1']
    """
    names: dict[str, str] = {}
    for role, part in zip(roles, role_parts(roles), strict=True):
        room = MAX_LENGTH - len(app_id) - 1 - len(f"-{role.num_replicas - 1}") - spare
        if room < 1:
            raise UsageError(f"the id `{app_id}` is too long for a host name with role `{role.name}`")
        part = part[:room].rstrip("-")
        if part in names:
            raise UsageError(
                f"the roles `{names[part]}` and `{role.name}` would both be named `{part}` on Kubernetes, "
                "where names have lowercase letters, digits and dashes, up to 63 characters",
                hint="rename one of them",
            )
        names[part] = role.name
    return list(names)


def require_name(app_id: str) -> None:
    """Validates an id as a name of objects.

    Raises:
        UsageError: it is not a valid name.
    """
    if len(app_id) > MAX_LENGTH or not re.fullmatch(_DNS_LABEL, app_id):
        raise UsageError(
            f"`{app_id}` is not a valid Kubernetes name: lowercase letters, digits and dashes, "
            f"a letter first, up to {MAX_LENGTH} characters"
        )


def split_run(name: str) -> tuple[str, int | None]:
    """Splits the id of a run of a sweep into that of its Job and its index, which is None for other ids.

    >>> split_run("train-x7k2.12"), split_run("train-x7k2"), split_run("a.012")
    (('train-x7k2', 12), ('train-x7k2', None), ('a.012', None))
    """
    base, dot, index = name.rpartition(".")
    is_run = dot and index.isascii() and index.isdigit() and len(index) < 7 and index == str(int(index))
    if is_run:
        return (base, int(index))
    return (name, None)


def label_value(text: str) -> str:
    """Returns a text reduced to the characters of a label value; may be empty.

    >>> label_value("my app/1"), label_value("0.1.0+dev")
    ('my_app_1', '0.1.0_dev')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_.-]", "_", plain)[:MAX_LENGTH].strip("_.-")


def check_labels(labels: Mapping[str, str], option: str) -> None:
    """Validates labels, or the keys of annotations.

    Args:
        labels: key and value.
        option: the run option; for annotations, values may be any text.

    Raises:
        UsageError: one is invalid or reserved.
    """
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        good = re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", name)
        if slash and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", prefix):
            good = None
        if good is None:
            raise RunOptionError(
                option,
                f"has the key `{key}`, which is not valid on Kubernetes",
                hint="e.g. team or example.com/team",
            )
        if key.startswith(PREFIX):
            raise RunOptionError(option, f"sets `{key}`, which is reserved for the scheduler")
        if option != "annotations" and not re.fullmatch(
            r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value
        ):
            raise RunOptionError(
                option,
                f"gives `{key}` the value `{value}`, which is not a valid label value",
                hint="letters, digits, dashes, underscores and dots, up to 63 characters",
            )
