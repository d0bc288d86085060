"""This project's own entries in metadata: their keys, tags and the note, and the services among the roles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from torchx import settings
from torchx.errors import UsageError
from torchx.lazy import lazy_imports
from torchx.printable import has_controls
from torchx.settings import AFTER, FEATURE, NOTE, RUN, SERVICE, TAG

with lazy_imports:
    import fnmatch

    from torchx import masking

if TYPE_CHECKING:
    from torchx.specs.app import AppDef, Role

__all__ = [
    "CONTEXT",
    "NA",
    "ROLES_PREFIX",
    "SCHEDULER",
    "TORCHX_CONTEXT_NAME",
    "VERSION",
    "after",
    "note_of",
    "service",
    "set_tags",
    "tags_of",
]

CONTEXT = "torchx/context"
"""The launcher of the application, e.g. ``cli_run``."""

VERSION = "torchx/version"
"""The version of this project that launched it."""

SCHEDULER = "torchx/scheduler"
"""The scheduler it was launched on."""

ROLES_PREFIX = "torchx/roles."
"""The prefix of the keys of one role."""

NA = "<<NA>>"
"""The value of a key without a known value."""

TORCHX_CONTEXT_NAME = settings.TORCHX_CONTEXT_NAME
"""Name of the environment variable with the launcher's name."""

MOST_TAGS = 50
"""Maximum number of tags of an application."""

LONGEST_VALUE = 256
"""Maximum characters of the value of a tag."""

LONGEST_NOTE = 2_000
"""Maximum characters of a note."""

_NOT_IN_VALUES = r"[,\n\t]"
_NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_./-]{0,61}[A-Za-z0-9_])?"


def set_tags(app: AppDef, tags: Mapping[str, str], note: str = "") -> None:
    """Adds tags to an application, and sets its note; keeps other tags, and the note if none is given.

    Tags are not for secrets: values of names that look secret are masked in the application itself.

    Args:
        app: the application.
        tags: values by name; the value of a tag that is only a name is empty.
        note: a text about the run.

    Raises:
        UsageError: a name, a value or the note is invalid, or there are too many tags.

    >>> from torchx.specs import AppDef
    >>> app = AppDef("train", metadata={"team": "vision"})
    >>> set_tags(app, {"sweep": "lr", "baseline": ""}, note="first try")
    >>> tags_of(app.metadata), note_of(app.metadata)
    ({'sweep': 'lr', 'baseline': ''}, 'first try')
    """
    check_tags(tags)
    if len(note) > LONGEST_NOTE or not _is_text(note):
        raise UsageError(f"a note has at most {LONGEST_NOTE:,} characters, and no control characters")
    entries = {f"{TAG}{name}": value for name, value in masking.mask(dict(tags)).items()}
    if note:
        entries[NOTE] = masking.mask_text(note)
    metadata = {**app.metadata, **entries}
    if len(tags_of(metadata)) > MOST_TAGS:
        raise UsageError(f"an application has at most {MOST_TAGS} tags")
    app.metadata = metadata


def check_tags(tags: Mapping[str, str]) -> None:
    """Checks the names and values of tags.

    Raises:
        UsageError: one is invalid.
    """
    for name, value in tags.items():
        if not re.fullmatch(_NAME, name):
            raise UsageError(
                f"`{name}` is not a valid name of a tag",
                hint="at most 63 letters, digits and _ . / -, e.g. --tag sweep=lr",
            )
        if not _is_value(value):
            hint = None
            if "," in value:
                hint = "one tag at a time: --tag a=1 --tag b=2"
            most = f"at most {LONGEST_VALUE} characters, without comma and line end"
            raise UsageError(f"the value of tag `{name}` is invalid: {most}", hint=hint)


def _is_value(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= LONGEST_VALUE
        and _is_text(value)
        and not re.search(_NOT_IN_VALUES, value)
    )


def _is_text(text: str) -> bool:
    return not has_controls(text)


def tags_of(metadata: object) -> dict[str, str]:
    """Returns the tags in the metadata of an application, which may be of any origin; omits invalid ones."""
    entries = metadata.items() if isinstance(metadata, Mapping) else ()
    return valid_tags({str(key)[len(TAG) :]: value for key, value in entries if str(key).startswith(TAG)})


def valid_tags(tags: object) -> dict[str, str]:
    """Returns the valid ones of tags, which may be of any origin."""
    entries = tags.items() if isinstance(tags, Mapping) else ()
    return {
        name: value
        for name, value in entries
        if isinstance(name, str) and re.fullmatch(_NAME, name) and _is_value(value)
    }


def note_of(metadata: object) -> str:
    """Returns the note in the metadata of an application; empty without one."""
    note = None
    if isinstance(metadata, Mapping):
        note = metadata.get(NOTE)
    if isinstance(note, str):
        return note[:LONGEST_NOTE]
    return ""


def own_entries(metadata: object) -> dict[str, str]:
    """Returns the tags, the id as a run, the features and the note, for answers without other metadata."""
    entries = {f"{TAG}{name}": value for name, value in tags_of(metadata).items()}
    if isinstance(metadata, Mapping):
        for key, value in metadata.items():
            if isinstance(value, str) and (key == RUN or str(key).startswith(FEATURE)):
                entries[key] = value
    if note := note_of(metadata):
        entries[NOTE] = note
    return entries


def has_features(metadata: Mapping[str, str]) -> bool:
    """Returns True if an application was submitted with features of other packages."""
    return any(key.startswith(FEATURE) for key in metadata)


def has_tags(tags: Mapping[str, str], wanted: Iterable[tuple[str, str | None]]) -> bool:
    """Returns True if an application has all wanted tags.

    Args:
        tags: its tags.
        wanted: names, each with a pattern of the value, or None for any value.

    >>> has_tags({"sweep": "lr", "baseline": ""}, [("sweep", "l*"), ("baseline", None)])
    True
    """
    return all(
        name in tags and (pattern is None or fnmatch.fnmatchcase(tags[name], pattern))
        for name, pattern in wanted
    )


def service(
    role: Role, ready: str = "", within: str = "10m", after: Sequence[str] = (), critical: bool = True
) -> Role:
    """Makes a role a service: it runs until all ordinary roles have succeeded, and is then ended.

    A replica of a service that ends by itself while it is needed has failed, also with exit code 0.

    Args:
        role: the role; its metadata are changed.
        ready: the probe of each replica; without one, a replica is ready when it has started.
            ``http:PORT/path``: a request is answered with a status from 200 to 399.
            ``tcp:PORT``: a connection is accepted. PORT is a number or a name of ``Role.port_map``.
            ``log:REGEX``: a line of the output matches.
            ``cmd:PROGRAM ARGUMENTS``: the program, run without a shell in the environment of the
            replica, ends with exit code 0.
        within: the time from the start of a replica in which it must be ready, such as ``90s`` or ``10m``.
        after: names of roles that must be ready (services) or have succeeded (others) before this one
            starts.
        critical: a failure of the service is a failure of the application.

    Returns:
        The role.

    >>> from torchx.specs import Role
    >>> server = service(Role("server", image=""), ready="http:8000/health")
    >>> server.metadata["torchx/service"]["ready"]
    'http:8000/health'
    """
    role.metadata[SERVICE] = {"ready": ready, "within": within, "critical": critical}
    if after:
        role.metadata[AFTER] = list(after)
    return role


def after(role: Role, roles: Sequence[str]) -> Role:
    """Starts a role when others are ready: services by their probe, ordinary roles when they have succeeded.

    Without it, a role that is not a service starts when all services with ``ready`` are ready.

    Args:
        role: the role; its metadata are changed.
        roles: names of the other roles; an empty list starts the role immediately.

    Returns:
        The role.

    Raises:
        UsageError: the roles are no list.

    >>> from torchx.specs import Role
    >>> after(Role("trainer", image=""), ["server"]).metadata
    {'torchx/after': ['server']}
    """
    if isinstance(roles, str) or not isinstance(roles, Iterable):
        raise UsageError(f"role `{role.name}` starts after {roles!r}, expected a list of role names")
    role.metadata[AFTER] = list(roles)
    return role
