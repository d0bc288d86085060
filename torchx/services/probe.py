"""The probe of a service and its time limit, as users write them; Slurm's nodes run a copy of this file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from torchx.json_limits import Object
from torchx.scheduling.stalls import parse_duration

HTTP, TCP, LOG, CMD, STARTED = "http", "tcp", "log", "cmd", ""
"""The kinds of probes; STARTED for none."""

FORMS = "http:PORT/path, tcp:PORT, log:REGEX or cmd:PROGRAM"

DEFAULT_LIMIT = 600.0
"""Seconds in which a replica must be ready, by default."""


class Probe(NamedTuple):
    """The probe of a service.

    Attributes:
        kind: HTTP, TCP, LOG, CMD or STARTED.
        port: the number or the name of the port; empty for the last three.
        text: the path of a request, the pattern, or the command line.
    """

    kind: str
    port: str = ""
    text: str = ""

    @classmethod
    def of(cls, ready: str) -> Probe:
        """Parses a probe.

        Raises:
            ValueError: it is invalid.

        >>> Probe.of("http:8000/health"), Probe.of("tcp:web")
        (Probe(kind='http', port='8000', text='/health'), Probe(kind='tcp', port='web', text=''))
        """
        kind, _, text = ready.partition(":")
        if not ready:
            return cls(STARTED)
        if kind in (HTTP, TCP):
            return cls(kind, *_port_and_path(kind, text))
        if kind == LOG and text:
            try:
                re.compile(text)
            except re.error as error:
                raise ValueError(f"`{text}` is not a valid pattern: {error}") from None
            return cls(kind, text=text)
        if kind == CMD and shlex.split(text):
            return cls(kind, text=text)
        raise ValueError(f"expected {FORMS}")


def _port_and_path(kind: str, text: str) -> tuple[str, str]:
    port, slash, path = text, "", ""
    if kind == HTTP:
        port, _, path = text.partition("/")
        slash = "/"
    is_number = port.isascii() and port.isdigit()
    if not re.fullmatch(r"[\w-]+", port, re.ASCII) or (is_number and not 0 < int(port) < 65536):
        raise ValueError(f"`{port}` is not a port number or a name of port_map")
    if not re.fullmatch(r"[!-~]*", path):
        raise ValueError(f"`{path}` is not a valid path")
    return port, slash + path


class ServiceRule(NamedTuple):
    """The rule of one service.

    Attributes:
        ready: the probe, as the user wrote it.
        probe: the probe.
        limit: seconds from the start of a replica in which it must be ready.
        within: the limit, as the user wrote it.
        critical: a failure of the service is a failure of the application.
    """

    ready: str = ""
    probe: Probe = Probe(STARTED)
    limit: float = DEFAULT_LIMIT
    within: str = "10m"
    critical: bool = True

    @classmethod
    def of(cls, data: object) -> ServiceRule:
        """Parses the metadata of a service.

        Raises:
            ValueError: they are invalid.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"expected the metadata of a service, got {data!r}")
        ready, within = data.get("ready", ""), data.get("within", "10m")
        if not isinstance(ready, str) or not isinstance(within, str):
            raise ValueError("`ready` and `within` must be strings")
        try:
            probe = Probe.of(ready)
        except ValueError as error:
            raise ValueError(f"has the probe `{ready}`: {error}") from None
        limit = parse_duration(within)
        if not limit:
            raise ValueError(f"has within=`{within}`, expected a duration such as 90s or 10m")
        return cls(ready, probe, limit, within, data.get("critical", True) is not False)

    def plain(self) -> Object:
        """Returns the rule as metadata."""
        return {"ready": self.ready, "within": self.within, "critical": self.critical}


def rule_of(data: object) -> ServiceRule:
    """Returns the rule in a record; the default rule if the record is damaged."""
    try:
        return ServiceRule.of(data)
    except ValueError:
        return ServiceRule()
