"""The request of a `torchx run`, from flags, the configuration, or JSON on stdin."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TextIO

from torchx import json_shape, settings
from torchx.config import scheduler_options
from torchx.config.paths import component_settings, located_component
from torchx.errors import TorchxError, UsageError
from torchx.json_limits import without_none
from torchx.lazy import lazy_imports
from torchx.specs.run_options import runopt
from torchx.suggestions import did_you_mean
from torchx_cli.door import feature
from torchx_cli.environment import Environment
from torchx_cli.flags import split_list, tags_given
from torchx_cli.rule_flags import flag_options
from torchx_cli.sweep_flags import SweepFlags
from torchx_cli.terminal.error_output import format_in
from torchx_cli.terminal.output import emit, has_colour, note_all, say, supports_unicode, width_of

with lazy_imports:
    import json
    import shlex

    from torchx import json_limits, masking
    from torchx.discovery.call import arguments as call_arguments
    from torchx.discovery.call import build
    from torchx.discovery.find import finder
    from torchx.runner import once as runner_once
    from torchx.specs import app_metadata, notify
    from torchx_cli import hints
    from torchx_cli.terminal import component_help

if TYPE_CHECKING:
    from torchx.config import Config, Setting
    from torchx.config.options import Option
    from torchx.json_limits import Data, Object
    from torchx.runner.api import Runner
    from torchx.specs.app import AppDef
    from torchx.specs.notify import Notify
    from torchx.specs.run_options import CfgVal, runopts
    from torchx_cli.recording import Recording

_VARIABLE = re.compile(r"[A-Za-z_]\w*=(?!.*\.py:).*", re.DOTALL)
"""A variable as a shell takes it before a command."""

NO_TARGET = "none"
"""The target of `--notify` that disables the configured ones."""


@dataclass
class RunRequest:
    """A component and how to run it.

    Attributes:
        component: name of the component; empty if the configuration names it.
        argv: the command-line arguments of the component.
        component_args: its arguments by name, from JSON.
        scheduler: name of the scheduler; empty if the configuration names it.
        scheduler_args: run options, as given on the command line.
        options: run options by name, from JSON.
        workspace: folders copied with the application: a path, a URL or a YAML mapping; empty for none, also
            if the configuration has one.
        parent_run_id: the parent run.
        dryrun: show the request without submitting it, if not empty; ``full``: with all files.
        wait: wait until the application has ended.
        log: stream the logs.
        detach: return after submission.
        fold: print equal lines of several replicas once.
        show: the replicas whose logs are printed; empty for the configured ones.
        shown: these or the configured ones, and the flag or setting.
        environment: variables for all roles.
        description: a submitted application to run again, as printed by `describe -o json`.
        notify: the notifications to send.
        recording: the record of the source.
        tags: the tags of the application, by name.
        note: its note.
        named: the application on the command line, and its name that stays valid.
        name: the name of the application, instead of the one of its component.
        once: a name under which the application is submitted at most once.
        rules: run options from flags of their own: stalls, retries, time limit, queue.
        sweep: the flags of a sweep.
        context: the other machine that it runs on; empty for this one.
        features: the features of other packages by name, with the values of their flags.
        origins: the origins of configured values, by the run option or the code of the errors they cause.
    """

    component: str = ""
    argv: list[str] = field(default_factory=list)
    component_args: Object | None = None
    scheduler: str = ""
    scheduler_args: list[str] = field(default_factory=list)
    options: Object | None = None
    workspace: str | None = None
    parent_run_id: str = ""
    dryrun: str | bool = ""
    wait: bool = False
    log: bool = False
    detach: bool = False
    fold: bool = False
    show: str = ""
    shown: tuple[str, str] = ("", "")
    environment: Environment = field(default_factory=Environment)
    description: Object | None = None
    notify: Notify | None = None
    recording: Recording | None = None
    tags: dict[str, str] = field(default_factory=dict)
    note: str = ""
    named: tuple[str, str] = ("", "")
    name: str = ""
    once: str = ""
    rules: dict[str, CfgVal] = field(default_factory=dict)
    sweep: SweepFlags = field(default_factory=SweepFlags)
    context: str = ""
    features: dict[str, Object] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def with_origins(self) -> Iterator[None]:
        """Adds the origin of a configured value to the error that it causes."""
        try:
            yield
        except TorchxError as error:
            option = str(error.facts.get("option"))
            if origin := self.origins.get(option, self.origins.get(error.code)):
                error.message += f" ({origin})"
            raise

    def take(self, flags: Data, config: Config) -> None:
        """Takes the values of the flags of `run` and `rerun` that do not choose the application.

        Raises:
            UsageError: a notification, or `fold` of the configuration, is invalid.
        """
        for name in ("dryrun", "wait", "log", "detach", "fold", "show", "note", "name", "once"):
            setattr(self, name, flags[name] or getattr(self, name))
        self.environment = Environment(flags["env"], flags["env_file"], flags["secret"])
        complete_output(self, config)
        self.notify = notifications_of(flags["notify"], flags["notify_on"], config)

    def describe(self, app: AppDef) -> None:
        """Adds the tags, the note and the features to the metadata of an application."""
        app_metadata.set_tags(app, self.tags, self.note)
        if self.features:
            feature("features.flags").apply(self.features, app)

    def add_options(self, options: dict[str, Option], cfg: dict[str, CfgVal]) -> None:
        """Adds configured run options to those that are given, which take precedence."""
        rejected = []
        for key, option in options.items():
            if key not in cfg:
                cfg[key] = option.value
                self.origins[key] = f"from {option.origin}"
                rejected.append(f"`{key}` from {option.origin}")
        self.origins["engine_error"] = ", ".join(rejected)

    def with_name(self, app: AppDef) -> AppDef:
        """Returns an application with the names of `--name` and `--once`, instead of its own."""
        if self.name:
            app = replace(app, name=self.name)
        if self.once or settings.ONCE in app.metadata:
            return runner_once.marked(app, self.once)
        return app


def _check_variable(args: Sequence[str]) -> None:
    """Rejects `NAME=VALUE` in place of the component, as a shell takes variables.

    Raises:
        UsageError: it is there.
    """
    given = list(takewhile(_VARIABLE.fullmatch, args))
    if given:
        flags = [text for each in given for text in ("--env", each)]
        raise UsageError(
            f"expected a component, got `{given[0]}`",
            hint=f"a variable of the program: torchx run {shlex.join([*flags, *args[len(given) :]])}",
            code="missing_argument",
        )


def split_component(args: Sequence[str], config: Config, origins: dict[str, str]) -> tuple[str, list[str]]:
    """Returns the component and its arguments.

    If the first argument is missing or a flag, the configuration names the component.

    Args:
        args: the arguments.
        config: the configuration.
        origins: the origin of the component is added here, if the configuration names it.

    Raises:
        UsageError: no component is given.
    """
    if args and not args[0].startswith("-"):
        _check_variable(args)
        return args[0], list(args[1:])

    if args[:1] == ["--"]:
        raise UsageError(
            "expected a component, got `--`",
            code="missing_argument",
            hint=f"one `--` is enough: torchx run {shlex.join(args[1:2])}",
        )
    setting = config.get("cli:run", "component")
    if setting is None:
        raise UsageError(
            "no component given" if not args else f"expected a component, got `{args[0]}`",
            code="missing_argument",
            hint="e.g. torchx run utils.echo --msg hi   all components: torchx builtins",
        )
    origins["unknown_component"] = origins["invalid_component"] = f"from {setting.origin}"
    return located_component(setting), list(args)


STDIN_KEYS: Data = {
    "component_name": str,
    "scheduler": str,
    "scheduler_args": ({}, str),
    "dryrun": bool,
    "wait": bool,
    "log": bool,
    "workspace": str,
    "parent_run_id": str,
    "tee_logs": bool,
    "component_args": {},
    "component_args_str": (str, [(str, bool, float)]),
}
"""The keys of the JSON read by `--stdin`, with their shapes."""

STDIN_SHAPE = {**STDIN_KEYS, json_shape.REQUIRED: ("component_name",)}

STDIN_EXAMPLE = """e.g. {"component_name": "utils.echo", "component_args": {"msg": "hi"}}"""

DESCRIPTION_EXAMPLE = "e.g. torchx describe -o json @last | torchx run --stdin"


def read_stdin(stream: TextIO) -> RunRequest:
    """Reads the JSON of `torchx run --stdin`: a request, or the output of `describe -o json`.

    Raises:
        UsageError: the JSON is invalid, or a key is unknown, missing or of the wrong type.
    """
    data = _load(stream)
    if "app" in data:
        return RunRequest(description=data)
    unknown = [key for key in data if key not in STDIN_KEYS]
    if unknown:
        keys = f"keys: {', '.join(STDIN_KEYS)}; or app, scheduler and cfg, as in torchx describe -o json"
        names = ", ".join(f"`{key}`" for key in unknown)
        plural = "s"[: len(unknown) - 1]
        hint = did_you_mean(unknown[0], STDIN_KEYS, keys)
        raise UsageError(f"unknown key{plural} {names} (from --stdin)", hint=hint)
    given = without_none(data)
    try:
        json_shape.check(given, STDIN_SHAPE, "")
    except ValueError as error:
        raise UsageError(f"{error} (from --stdin)", hint=STDIN_EXAMPLE) from None
    return _from_stdin(given)


def _load(stream: TextIO) -> Object:
    try:
        text = stream.read(json_limits.LARGEST + 1)
        text.encode()  # in the locale C, other bytes are read as surrogates
    except UnicodeError:
        problem = "stdin is not UTF-8"
        raise UsageError(f"--stdin takes a JSON object: {problem}", hint=STDIN_EXAMPLE) from None
    if not text.strip():
        raise UsageError("--stdin takes a JSON object: stdin is empty", hint=STDIN_EXAMPLE)
    try:
        data = json_limits.load_json(text)
    except ValueError as error:  # not JSON, too large or nested too deeply
        raise UsageError(f"--stdin takes a JSON object: {error}", hint=STDIN_EXAMPLE) from None
    if not isinstance(data, dict):
        kind = json_shape.kind_of(data)
        raise UsageError(f"--stdin takes a JSON object, got {kind}", hint=STDIN_EXAMPLE)
    return data


def _from_stdin(data: Data) -> RunRequest:
    options = data.get("scheduler_args")
    return RunRequest(
        component=data["component_name"],
        argv=_split_arguments(data.get("component_args_str", [])),
        component_args=data.get("component_args"),
        scheduler=data.get("scheduler", ""),
        scheduler_args=[options] if isinstance(options, str) and options else [],
        options=options if isinstance(options, dict) else None,
        workspace=data.get("workspace"),
        parent_run_id=data.get("parent_run_id", ""),
        dryrun=data.get("dryrun", False),
        wait=data.get("wait", False),
        log=data.get("log", False),
    )


def _split_arguments(value: str | list[Any]) -> list[str]:
    """Returns the arguments of the component from a shell-quoted string or a list."""
    try:
        if isinstance(value, str):
            return shlex.split(value)
        return [str(item) for item in value]
    except ValueError as error:
        reason = str(error)[:1].lower() + str(error)[1:]
        raise UsageError(f"`component_args_str` cannot be split: {reason} (from --stdin)") from None


IN_STDIN = {
    "argv": "a component",
    "scheduler": "-s",
    "scheduler_args": "-cfg",
    "workspace": "--workspace",
    "parent_run_id": "--parent_run_id",
    "rules": "flags of run options, such as --time-limit",
    "sweep": "--each and --after",
}
"""Field -> what may not be combined with `--stdin`."""

WITH_STDIN = (
    "set it in the JSON; these flags work with --stdin: --dryrun, --detach, --wait, --log, --fold, --show, "
    "--env, --env-file, --secret, --notify, --tag, --note, --name, --once, -o"
)


def check_stdin_alone(request: RunRequest) -> None:
    """Checks that no other flags are combined with `--stdin`.

    Raises:
        UsageError: the component or another flag is given.
    """
    for name, flag in IN_STDIN.items():
        if getattr(request, name):
            message = f"--stdin cannot be combined with {flag}"
            raise UsageError(message, hint=WITH_STDIN, code="conflicting_flags")


def tags_of(texts: Sequence[str], config: Config) -> dict[str, str]:
    """Returns the tags on the command line, with those of `tags` in section [cli:run].

    Args:
        texts: the tags on the command line.
        config: in `tags`, commas or line ends separate them.

    Raises:
        UsageError: a tag is invalid.
    """
    setting = config.get("cli:run", "tags")
    configured = split_list(setting.value.replace("\n", ",")) if setting is not None else []
    origin = setting.origin if setting is not None else ""
    return {**tags_given(configured, str(origin)), **tags_given(texts)}


def notifications_of(targets: Sequence[str], kinds: str, config: Config) -> Notify | None:
    """Returns the requested notifications, or the configured ones; their targets are masked in all output.

    Args:
        targets: the targets on the command line.
        kinds: the kinds on the command line, a comma-separated list.
        config: `notify` in section [cli:run] has one target for each line, `notify_on` the kinds.

    Raises:
        UsageError: a target or a kind is invalid.
    """
    _hide(targets)
    setting = None
    if not targets:
        setting = config.get("cli:run", "notify")
        if setting is not None:
            targets = list(filter(None, map(str.strip, setting.value.splitlines())))
        _hide(targets)
        if kinds and not targets:
            raise UsageError(
                "--notify-on requires --notify", hint="or `notify` in [cli:run] of .torchxconfig"
            )
    elif all(target == NO_TARGET for target in targets):
        targets = ()
    if not targets:
        return None
    if kinds:
        named = None
    else:
        named = config.get("cli:run", "notify_on")
    on = split_list(kinds or (named.value if named is not None else "")) or notify.Notify.on
    try:
        return notify.Notify(targets, on)
    except UsageError as error:
        if error.facts.get("flag") == "--notify-on":
            place = named
        else:
            place = setting
        if place is not None:
            error.message += f" (from {place.origin})"
        raise


def _hide(targets: Iterable[str]) -> None:
    """Masks targets in all output, except those that are shown whole: they contain no secrets."""
    masking.add_values([target for target in targets if notify.shown(target) != target])


def complete_output(request: RunRequest, config: Config) -> None:
    """Completes a request: --fold and --show imply --log, and section [cli:run] may set `fold` and `show`.

    Raises:
        UsageError: `fold` is not a bool.
    """
    request.log = request.log or request.fold or bool(request.show)
    show, fold = config.get("cli:run", "show"), config.get("cli:run", "fold")
    request.shown = (request.show, "--show")
    if show is not None and not request.show:
        request.shown = (show.value, f"`show` (from {show.origin})")
    if fold is not None and not request.fold:
        try:
            request.fold = bool(runopt(None, bool, False, "").cast_to_type(fold.value))
        except ValueError as error:
            raise UsageError(f"`fold`: {error} (from {fold.origin})", code="invalid_value") from None


def run_options(request: RunRequest, scheduler: str, runner: Runner, config: Config) -> dict[str, CfgVal]:
    """Returns the run options: the given ones, with defaults from the configuration.

    Raises:
        UsageError: an option is unknown, of the wrong type or given twice.
    """
    opts = runner.scheduler_run_opts(scheduler)
    cfg: dict[str, CfgVal] = typed_options(request.scheduler_args, scheduler, opts)
    if request.options is not None:
        cfg.update(json_options(request.options, scheduler, opts))
    cfg |= flag_options(request.rules, scheduler, opts)
    request.add_options(scheduler_options(config, scheduler, opts), cfg)
    return cfg


def json_options(data: Object, scheduler: str, opts: runopts) -> dict[str, CfgVal]:
    """Returns the run options of JSON on stdin.

    Raises:
        UsageError: an option is unknown or of the wrong type.
    """
    with _origin("--stdin", scheduler):
        return dict(opts.cfg_from_json_repr(json.dumps(data), strict=True))


def typed_options(texts: Sequence[str], scheduler: str, opts: runopts) -> dict[str, CfgVal]:
    """Parses the values of `-cfg`, which may be repeated; lists and mappings accumulate.

    Raises:
        UsageError: an option is unknown, of the wrong type, or given twice although it takes one value.
    """
    cfg: dict[str, CfgVal] = {}
    for text in texts:
        with _origin("-cfg", scheduler):
            options = opts.cfg_from_str(text, strict=True)
        for key, value in options.items():
            before = cfg.get(key)
            if isinstance(before, list) and isinstance(value, list):
                cfg[key] = [*before, *value]
            elif isinstance(before, dict) and isinstance(value, dict):
                cfg[key] = {**before, **value}
            elif key in cfg:
                raise UsageError(f"run option `{key}` is given twice (from -cfg)")
            else:
                cfg[key] = value
    return cfg


@contextmanager
def _origin(origin: str, scheduler: str) -> Iterator[None]:
    """Adds the origin of run options, and how to list them, to errors about them."""
    try:
        yield
    except UsageError as error:
        more = f"all options: torchx runopts {scheduler}"
        first = (error.hint or "").split("   ")[0]
        unknown = error.code == "unknown_run_option"
        name = getattr(error, "cfg_key", "")
        if unknown and not first.startswith("did you mean"):
            first = hints.of_option(name) or ""
        hint = f"{first}   {more}".lstrip()
        if unknown and " " in name:  # a part of a value
            hint = "quote a value with `=` after `,` or `;`: -cfg 'NAME=\"VALUE\"'"
        if unknown:
            where = f"for {scheduler} (from {origin})"
        else:
            where = f"(from {origin})"
        error.message, error.hint = f"{error.message} {where}", hint
        raise


def make_app(request: RunRequest, config: Config, form: str = "text") -> AppDef | None:
    """Builds the application; if --help is given, prints the component's help and returns None.

    Output of the component is redirected to stderr.

    Raises:
        UsageError: the component or its arguments are invalid.
    """
    with redirect_stdout(sys.stderr):
        component = finder.find_component(request.component)
    section: dict[str, Setting] = component_settings(config, request.component)
    arguments = call_arguments.parse_arguments(
        component, request.argv, config=request.component_args, section=section
    )
    if arguments.wants_help:
        if form == "text":
            form = format_in(request.argv)
        given = call_arguments.configured(component, section)
        if form != "text":
            emit(component_help.as_data(component, given), form)
            return None
        text = component_help.render(component, width_of(sys.stdout) or 100, has_colour(sys.stdout), given)
        say(text if supports_unicode(sys.stdout) else text.replace("…", "..."))
        return None
    note_all(arguments.notes)
    with redirect_stdout(sys.stderr):
        return build.build_app(component, arguments)
