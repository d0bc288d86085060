"""The recorded command line of an application: its component, and the arguments of that."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from torchx import pairs, settings
from torchx.command_line import Flag, Hit, looks_like_flag
from torchx.errors import TorchxError
from torchx.lazy import lazy_imports

with lazy_imports:
    import os
    import shlex

    from torchx.sweeps import parameters, view
    from torchx_cli import app, recording
    from torchx_cli.completion import complete
    from torchx_cli.terminal import masking

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torchx.provenance.model import Provenance
    from torchx.runner.api import Runner
    from torchx.sweeps.records import Run


class RecordedCommand(NamedTuple):
    """The command line that submitted an application, with secrets masked.

    Attributes:
        component: the component; empty if the configuration named it.
        argv: the arguments of the component.
        start: the arguments up to `run`.
        flags: the flags of `run`.
        directory: the working directory of the submission; empty if it is not known.
        template: the arguments with the parameters of a sweep in braces.
        run: the run of the sweep, if the application is one.
    """

    component: str
    argv: list[str]
    start: list[str]
    flags: list[Hit]
    directory: str = ""
    template: Sequence[str] = ()
    run: Run | None = None

    def with_parameters(self, texts: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the arguments with other parameters of the run, and the changes of flags.

        Args:
            texts: the changes as `NAME=VALUE`; `{run}` in a value is the number of the run.
        """
        if self.run is None:
            return self.argv, list(texts)
        row, others = dict(self.run.parameters), []
        flags = parameters.filled(self.template, row)[1]
        for text in texts:
            name, equals, value = text.lstrip("-").partition("=")
            if equals and name in row and name not in flags:
                row[name] = value
            else:
                others.append(parameters.with_number(text, self.run.number))
        return parameters.arguments_of(self.template, row, self.run.number), others

    @property
    def located_component(self) -> str:
        """The component; one in a file by the path of the file from any folder."""
        path, colon, function = self.component.partition(":")
        if not self.directory or not colon or not path.endswith(".py"):
            return self.component
        located = os.path.join(self.directory, os.path.expanduser(path))  # noqa: PTH111, PTH118
        # as it was given, if that is the same file here
        if os.path.realpath(path) == os.path.realpath(located):
            return self.component
        return f"{located}:{function}"

    def metadata(self) -> dict[str, str]:
        """Returns the entries of metadata with this command line."""
        flags = [part for hit in self.flags for part in spelled(hit)]
        end = []
        if not self.component and self.argv:
            end = ["--"]
        words = [self.component] if self.component else []
        line = shlex.join(["torchx", *self.start, *flags, *end, *words, *self.argv])
        names = f"torchx run {recording.without_values(self.component, self.argv)}"
        return {settings.COMMAND_LINE: masking.mask_text(line), settings.COMMAND_NAMES: names}

    def on(self, scheduler: str, cfg: Sequence[str]) -> RecordedCommand:
        """Returns the command line for another scheduler, or with other run options.

        Args:
            scheduler: the scheduler; empty for the same.
            cfg: run options, as given on the command line; those of another scheduler are omitted.
        """
        kept = self.flags
        if scheduler:
            kept = [hit for hit in kept if hit.flag.name not in ("scheduler", "cfg")]
            kept.append(_flag("scheduler", "-s", scheduler))
        elif cfg:  # an option is given once
            changed = set[str]().union(*map(pairs.to_dict, cfg))
            before = [pairs.to_dict(hit.value or "") for hit in kept if hit.flag.name == "cfg"]
            left = [f"{key}={value}" for each in before for key, value in each.items() if key not in changed]
            kept = [hit for hit in kept if hit.flag.name != "cfg"]
            cfg = [*left, *cfg]
        return self._replace(flags=[*kept, *(_flag("cfg", "-cfg", text) for text in cfg)])


def _flag(name: str, spelling: str, value: str) -> Hit:
    return Hit(Flag(name, (spelling,)), spelling, value=value)


def spelled(hit: Hit) -> Iterator[str]:
    """Yields a flag and its value as arguments."""
    if hit.value is None or hit.negated:
        yield hit.spelling
    elif hit.flag.is_bool or looks_like_flag(hit.value) or hit.value == "--":
        yield f"{hit.spelling}={hit.value}"
    else:
        yield from (hit.spelling, hit.value)


def provenance_of(runner: Runner, handle: str) -> tuple[Provenance | None, str]:
    """Returns the provenance of an application, and the reason if its record cannot be read."""
    try:
        return runner.provenance(handle), ""
    except (TorchxError, OSError) as error:
        return None, str(error)


def recorded_command(metadata: Mapping[str, object], provenance: Provenance | None) -> RecordedCommand | None:
    """Returns the command line that submitted an application, or None if it is not on record.

    Args:
        metadata: the metadata of the application.
        provenance: its provenance, which has the command line if other users can read the metadata.
    """
    line, directory = metadata.get(settings.COMMAND_LINE), ""
    if provenance is not None:
        line, directory = line or provenance.command_line, provenance.directory
    run_id = metadata.get(settings.RUN)
    planned = None
    if run_id:
        planned = view.planned(str(run_id))
    if planned is not None:
        line = line or (planned[0].header.template.get("metadata") or {}).get(settings.COMMAND_LINE)
    command = None
    if isinstance(line, str) and line:
        command = parse(line, directory)
    if command is None or planned is None:
        return command
    flags = [hit for hit in command.flags if hit.flag.name not in SWEEPING]
    command = command._replace(template=command.argv, run=planned[1], flags=flags)
    return command._replace(argv=command.with_parameters(())[0])


SWEEPING = ("each", "zipped", "at_once")
"""Flags of `run` that make a sweep, by their parameters."""


def parse(line: str, directory: str = "") -> RecordedCommand | None:
    """Parses a recorded command line; returns None if it does not name a component and its arguments.

    Args:
        line: the command line, quoted for a shell.
        directory: its working directory.

    >>> command = parse("torchx run -s slurm utils.sh --image=i -- ls -l")
    >>> command.component, command.argv, command.on("local_cwd", []).metadata()["torchx/command"]
    ('utils.sh', ['--image=i', '--', 'ls', '-l'], 'torchx run -s local_cwd utils.sh --image=i -- ls -l')
    """
    try:
        args = shlex.split(line)[1:]
    except ValueError:
        return None
    program, run_command = _commands()
    name, *rest = complete.Line(program, args).rest or [""]
    if name != "run":
        return None
    command = complete.Line(run_command, rest)
    if any(hit.flag.name == "stdin" for hit in command.hits):
        return None
    after = command.rest
    has_name = bool(after) and not after[0].startswith("-")
    start = args[: len(args) - len(rest)]
    return RecordedCommand(after[0] if has_name else "", after[has_name:], start, command.hits, directory)


@cache
def _commands() -> tuple[Any, Any]:
    """Returns the program and its command `run`."""
    return app.build(), app.load("run")
