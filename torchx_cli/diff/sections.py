"""The sections of the comparison of two applications."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from torchx import settings
from torchx.errors import TorchxError
from torchx.json_limits import without_empty
from torchx.lazy import lazy_imports
from torchx.printable import memory_size
from torchx.scheduling.responses import status_of
from torchx.specs.app import AppDef, Role
from torchx.specs.app_metadata import note_of, tags_of
from torchx.specs.handles import parse_app_handle
from torchx.specs.serialize import app_to_dict
from torchx.specs.status import code_of
from torchx_cli.applications import find
from torchx_cli.diff.values import GIVEN, Section, Values, compared, named, of_roles
from torchx_cli.recorded import RecordedCommand, provenance_of, recorded_command
from torchx_cli.terminal.masking import remember
from torchx_cli.terminal.plain import to_plain
from torchx_cli.terminal.times import duration, span

with lazy_imports:
    from torchx.runner import prepare
    from torchx.tracker import configured
    from torchx_cli.terminal import ending, measurement_text, units

if TYPE_CHECKING:
    from torchx.config import Config
    from torchx.json_limits import Data, Object
    from torchx.provenance.model import File, Provenance, Python, Source
    from torchx.runner.api import Runner
    from torchx.scheduling.base import DescribeAppResponse

UNIQUE = frozenset({settings.TORCHX_JOB_ID, settings.TORCHX_INTERNAL_SESSION_ID, settings.TORCHX_SWEEP_RUN})
"""Variables that differ between any two applications, or any two runs of a sweep."""

NOT_RECORDED = "not on record"

T = TypeVar("T")


@dataclass
class Side:
    """One of two applications.

    Attributes:
        handle: its handle.
        described: its full description.
        command: its command line, if that is on record.
        provenance: its source, if that is on record.
        damage: why its source cannot be read; empty if it can.
        defaults: the defaults of the run options of its scheduler.
    """

    handle: str
    described: DescribeAppResponse
    command: RecordedCommand | None
    provenance: Provenance | None = None
    damage: str = ""
    defaults: Data = field(default_factory=dict)

    @classmethod
    def of(cls, runner: Runner, text: str) -> Side:
        """Returns the application of a handle or a short name.

        Raises:
            TorchxError: it does not exist, or its engine cannot be queried.
        """
        handle, described = find(runner, text, full=True)
        remember(described.roles)
        provenance, damage = provenance_of(runner, handle)
        command = recorded_command(described.metadata, provenance)
        side = cls(handle, described, command, provenance, damage)
        opts = runner.scheduler_run_opts(side.scheduler)
        side.defaults = {key: to_plain(opt.default) for key, opt in opts}
        return side

    @property
    def scheduler(self) -> str:
        """The name of its scheduler."""
        return parse_app_handle(self.handle).scheduler_backend

    @property
    def source(self) -> Source | None:
        """Its source, if that is on record."""
        if self.provenance is not None:
            return self.provenance.source
        return None

    @property
    def with_machine(self) -> Provenance | None:
        """Its provenance, if that has the machine of the submission."""
        if self.provenance is not None and self.provenance.machine is not None:
            return self.provenance
        return None


Sides = tuple[Side, Side]


def compare(sides: Sides, runner: Runner, config: Config) -> list[Section]:
    """Returns all sections of the comparison of two applications.

    Args:
        sides: the applications.
        runner: used to read the measurements.
        config: the configuration, which names the trackers.
    """
    return [*compare_submissions(sides), _results(sides, runner, config)]


def compare_submissions(sides: Sides) -> list[Section]:
    """Returns the sections of the comparison of two applications except for their results."""
    return [
        _recorded("arguments", [side.command for side in sides], _given),
        compared("program", _of_roles(sides, _program)),
        compared("run options", _options(sides)),
        compared("environment", _of_roles(sides, _environment)),
        compared("resources", _of_roles(sides, _resources)),
        compared("image", _of_roles(sides, _image)),
        _source(sides),
        _packages(sides),
        _recorded("machine", [side.with_machine for side in sides], _machine, _why_missing(sides)),
        compared("tags", (_tags(sides[0]), _tags(sides[1]))),
    ]


def _of_roles(sides: Sides, values_of: Callable[[Role], Data]) -> Values:
    return of_roles(sides[0].described.roles, sides[1].described.roles, values_of)


def _recorded(
    name: str, facts: Sequence[T | None], values_of: Callable[[T], Data], why: str = NOT_RECORDED
) -> Section:
    """Compares facts about two applications that may not be on record.

    Args:
        name: the name of the section.
        facts: the facts about each; None if they are not on record.
        values_of: returns their values by name.
        why: the reason if they are not on record.
    """
    a, b = facts
    if a is None and b is None:
        return Section(name, missing=why)
    if a is None or b is None:
        return Section(name, missing=f"{why} for {'the first' if a is None else 'the second'}")
    return compared(name, (values_of(a), values_of(b)))


def _given(command: RecordedCommand) -> dict[str, str]:
    values = {key: "true" if value == GIVEN else value for key, value in named(command.argv).items()}
    return {"component": command.component or "(configured)", **values}


def _program(role: Role) -> Object:
    return {"program": role.entrypoint, **named(role.args, separator=False)}


def _options(sides: Sides) -> Values:
    """Returns the run options; of two schedulers, those that are not the defaults."""
    a, b = sides
    same = a.scheduler == b.scheduler
    return _set_options(a, defaults=same), _set_options(b, defaults=same)


def _set_options(side: Side, *, defaults: bool) -> Object:
    cfg: Object = to_plain(side.described.cfg)
    shown = {k: v for k, v in cfg.items() if v is not None and (defaults or side.defaults.get(k) != v)}
    return {"scheduler": side.scheduler, **shown}


def _environment(role: Role) -> Object:
    return {name: str(value) for name, value in role.env.items() if name not in UNIQUE}


def _resources(role: Role) -> Object:
    data: Object = app_to_dict(AppDef("", [role]), strict=False)["roles"][0]
    values = {"replicas": data["num_replicas"]}
    values |= {name: data[name] for name in ("min_replicas", "max_retries", "port_map", "mounts")}
    values |= {name: value for name, value in data["resource"].items() if value != -1}
    if role.max_retries:
        values["retry_policy"] = data["retry_policy"]
    return {name: value for name, value in values.items() if value not in (None, {}, [])}


def _image(role: Role) -> Object:
    projects = {}
    if role.workspace is not None:
        projects = role.workspace.projects
    texts = [f"{source}:{target}" if target else source for source, target in projects.items()]
    return {"image": role.image or None, "workspace": ", ".join(texts) or None}


def _source(sides: Sides) -> Section:
    sources = [side.source for side in sides]
    complete = all(source.complete for source in sources if source is not None)
    section = _recorded("source", sources, partial(_repository, files=complete), _why_missing(sides))
    if not (complete or section.missing):
        why = "of both are not on record"
        if _is_recording(sides):
            why = "are still being recorded"
        section.notes.append(f"the changed files {why}")
    return section


def _why_missing(sides: Sides) -> str:
    damage = sides[0].damage or sides[1].damage
    return damage or ("still being recorded" if _is_recording(sides) else NOT_RECORDED)


def _is_recording(sides: Sides) -> bool:
    return any(side.provenance is not None and side.provenance.recording for side in sides)


def _repository(source: Source, *, files: bool) -> Object:
    """Returns the facts about a repository, with its changed files if these are known."""
    return {
        "commit": source.commit[:12] or "none yet",
        "branch": source.branch or None,
        "remote": source.remote or None,
        "repository": source.folder or None,
        **({f"submodule {each.path}": each.commit[:12] for each in source.submodules} if files else {}),
        **({f"file {file.path}": _file_state(file) for file in source.files} if files else {}),
    }


def _file_state(file: File) -> str:
    content = file.digest[:12] or file.omitted
    if content:
        return f"{file.change} ({content})"
    return file.change


def _packages(sides: Sides) -> Section:
    pythons = [side.provenance.python if side.provenance is not None else None for side in sides]
    section = _recorded("packages", pythons, _versions, _why_missing(sides))
    if len({python.origin for python in pythons if python is not None}) > 1:
        section.notes.append("one list is from the program's Python, the other from torchx's")
    return section


def _versions(python: Python) -> dict[str, str]:
    versions = {"python": python.version, "interpreter": python.executable, **python.packages}
    for name, each in python.editable.items():
        commit = ""
        if each.commit:
            commit = f" at {each.commit[:12]}"
        changed = " with changes" if each.dirty else ""
        versions[name] = f"{versions.get(name, '')} from {each.path}{commit}{changed}".strip()
    return versions


def _machine(provenance: Provenance) -> dict[str, str]:
    facts = {"torchx": provenance.torchx_version, "folder": provenance.directory}
    if provenance.machine is not None:
        facts = {**provenance.machine._asdict(), "gpus": ", ".join(provenance.machine.gpus), **facts}
    return without_empty(facts)


def _tags(side: Side) -> dict[str, str]:
    note = note_of(side.described.metadata)
    return {**tags_of(side.described.metadata), **({"note": note} if note else {})}


def _results(sides: Sides, runner: Runner, config: Config) -> Section:
    a, b = sides
    section = compared("results", (_end(a), _end(b)))
    values = [_measurements(a, runner), _measurements(b, runner)]
    try:
        values = [{**values[0], **_tracked(a, config)}, {**values[1], **_tracked(b, config)}]
    except (TorchxError, OSError, ValueError) as error:
        section.notes.append(f"the tracker cannot be read: {error}")
    section.differences += compared("", (values[0], values[1]), measured=True).differences
    return section


def _end(side: Side) -> Object:
    status = status_of(side.described)
    first = status.first_failure
    attempts = [len(replica.attempts) for role in status.roles for replica in role.replicas]
    return {
        "state": status.state.name,
        "exit code": code_of(status.state, status.cause, first),
        "attempts": max(attempts, default=None),
        "first failure": None if first is None else ending.description(first, status),
        "reason": status.msg or None,
    }


def _measurements(side: Side, runner: Runner) -> Object:
    described = side.described
    lasted = span(described.started_at, described.ended_at, over=True)
    values: Object = {"duration": None if lasted is None else duration(lasted)}
    usage = measurement_text.usage_of(runner, side.handle)
    total = usage.total if usage is not None else None
    if total is not None:
        amounts = {
            "peak memory": units.written(total.memory, memory_size),
            "mean CPU": units.written(total.cpu, units.cores),
            "mean GPU": units.written(total.gpu, units.percent),
            "peak GPU memory": units.written(total.gpu_memory, memory_size),
        }
        values |= without_empty(amounts)
    return values


def _tracked(side: Side, config: Config) -> Object:
    """Returns the metadata of the run in the configured trackers."""
    names, factories = prepare.configured_trackers(config)
    if not names:
        return {}
    return {
        f"tracked {key}": to_plain(value)
        for tracker in configured.build_trackers(names, factories)
        for key, value in tracker.metadata(side.handle).items()
    }


def summary(side: Side) -> Object:
    """Returns an application as plain data, for the head of a comparison."""
    described = side.described
    return {
        "handle": side.handle,
        "app_id": described.app_id,
        "name": described.name,
        "scheduler": side.scheduler,
        "state": described.state.name,
        "submitted_at": described.submitted_at.isoformat() if described.submitted_at is not None else None,
    }
