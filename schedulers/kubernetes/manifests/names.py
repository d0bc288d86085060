"""Names on Kubernetes: of the application, its objects and pods, and the labels by which they are found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence

from torchx.errors import UsageError
from torchx.schedulers.ids import random_id
from torchx.specs.app import AppDef, Role

PREFIX = "torchx.pytorch.org/"
APP_ID = f"{PREFIX}app-id"
"""Label of every object and pod: the application's id, without the namespace."""
APP_NAME = f"{PREFIX}app-name"
"""Label: the application's name, as far as a label can hold it."""
ROLE_NAME = f"{PREFIX}role-name"
"""Label of jobs and pods: the role's name, as far as a label can hold it."""
ROLE_INDEX = f"{PREFIX}role-index"
"""Label of jobs and pods: which role of the application it is, from 0."""
REPLICA_ID = f"{PREFIX}replica-id"
"""Label of pods that have a template of their own: the replica's id; of others only the index tells it."""
VERSION = f"{PREFIX}version"
"""Label: the version of this project that made it."""
APP = f"{PREFIX}app"
"""Annotation of the first job: the application and its run options, see ``kubernetes/record.py``."""
ENDED = f"{PREFIX}ended"
"""Annotation of pods: when torchx had them end; their deadline is then no limit of the user's."""
DISRUPTED = f"{PREFIX}disrupted-"
"""Annotations of jobs, one for each pod that was taken away while torchx looked on: when, and why."""

JOB_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""Annotation and label that an Indexed Job gives its pods: the replica's id."""
CONTAINER = "main"
"""The name of the container that runs the role; others come by overlays."""

LONGEST = 63
"""Characters of the name of a host, and of a label's value."""
_RANDOM = 14
_ROLE = 15
_JOBSET = len("-0") + len("-xxxxx")
_DNS_LABEL = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def slug(text: str) -> str:
    """Returns what of a text can stand in the name of a host; empty when nothing can.

    >>> slug("Très_Long Name!"), slug("\u8bad\u7ec3")
    ('tres-long-name', '')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def unique_name(app: AppDef) -> str:
    """Returns an id for an application: its name, cut to what the names of its pods leave, and a random end.

    >>> import re
    >>> re.sub("-[^-]*$", "-…", unique_name(AppDef("3D train", [Role("trainer", "img")])))
    'app-3d-train-…'
    """
    roles = max((min(len(part), _ROLE) for part in role_parts(app.roles)), default=0)
    digits = max((len(str(role.num_replicas)) for role in app.roles), default=1)
    room = LONGEST - (1 + _RANDOM) - (1 + roles) - (1 + digits) - _JOBSET
    name = slug(app.name) or "app"
    if not name[0].isalpha():
        name = f"app-{name}"
    return f"{name[:room].rstrip('-')}-{random_id()}"


def role_parts(roles: Sequence[Role]) -> list[str]:
    """Returns what stands for each role in names of objects: its name where that can, else its number."""
    return [slug(role.name) or f"role-{number}" for number, role in enumerate(roles)]


def role_names(app_id: str, roles: Sequence[Role], spare: int = 0) -> list[str]:
    """Returns what stands for each role behind the id, cut so that the names of its pods are names of hosts.

    Args:
        app_id: the application's id, without the namespace.
        roles: its roles.
        spare: further characters that the names of the pods need.

    Raises:
        UsageError: two roles would have the same name, or the id is too long.

    >>> role_names("a-b1", [Role("Trainer", "i"), Role("\u8bad", "i")])
    ['trainer', 'role-1']
    """
    names: dict[str, str] = {}
    for role, part in zip(roles, role_parts(roles), strict=True):
        room = LONGEST - len(app_id) - 1 - len(f"-{role.num_replicas - 1}") - spare
        if room < 1:
            raise UsageError(
                f"the id `{app_id}` is too long: no name of a host can hold it with role `{role.name}`"
            )
        part = part[:room].rstrip("-")
        if part in names:
            raise UsageError(
                f"the roles `{names[part]}` and `{role.name}` would both be called `{part}` on Kubernetes, "
                "where names have small letters, digits and dashes, 63 characters in all",
                hint="give them names that differ in these",
            )
        names[part] = role.name
    return list(names)


def require_name(app_id: str) -> None:
    """Refuses an id that cannot name objects.

    Raises:
        UsageError: it cannot.
    """
    if len(app_id) > LONGEST or not _DNS_LABEL.fullmatch(app_id):
        raise UsageError(
            f"`{app_id}` is no name on Kubernetes: small letters, digits and dashes, a letter first, "
            f"{LONGEST} characters at most"
        )


def label_value(text: str) -> str:
    """Returns what of a text can be the value of a label; empty when nothing can.

    >>> label_value("my app/1"), label_value("0.1.0+dev")
    ('my_app_1', '0.1.0_dev')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^A-Za-z0-9_.-]", "_", plain)[:LONGEST].strip("_.-")


def check_labels(labels: Mapping[str, str], option: str) -> None:
    """Refuses labels, or the keys of annotations, that no cluster takes.

    Args:
        labels: key and value.
        option: the run option they come from; the values of annotations may be any text.

    Raises:
        UsageError: one is not valid, or is one of this project's own.
    """
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        good = re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", name)
        if slash and not re.fullmatch(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", prefix):
            good = None
        if good is None:
            raise UsageError(
                f"run option `{option}` has the key `{key}`, which is none on Kubernetes",
                hint="e.g. team or example.com/team",
            )
        if key.startswith(PREFIX):
            raise UsageError(f"run option `{option}` sets `{key}`, which is for the scheduler alone to set")
        if option != "annotations" and not re.fullmatch(
            r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?", value
        ):
            raise UsageError(
                f"run option `{option}` gives `{key}` the value `{value}`, which no label can have",
                hint="letters, digits, dashes, underscores and dots, 63 characters at most",
            )
