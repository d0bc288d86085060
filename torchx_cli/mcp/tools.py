"""The tools of the server: each is a command with some of its flags, as declared by the command itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from torchx.errors import UsageError
from torchx.json_limits import Data, Object
from torchx.json_shape import Shape, check
from torchx.printable import table
from torchx.suggestions import did_you_mean
from torchx_cli.app import load
from torchx_cli.terminal.output import value_text

ALLOWED = ("run", "cancel", "delete")
"""The groups of tools that change something, each of which has to be allowed."""


class Tool(NamedTuple):
    """A command as a tool.

    Attributes:
        command: the command.
        description: its purpose, for the agent.
        flags: the names of the flags and arguments that it takes; required ones end with `!`.
        fixed: the flags that are always given.
        defaults: flags that are given unless the agent gives them.
        group: the group that has to be allowed; empty if it changes nothing.
        kind: the form of its output: ``json``, ``lines`` (a JSON object per line) or ``text``.
    """

    command: str
    description: str
    flags: str
    fixed: tuple[str, ...] = ("-o", "json")
    defaults: Mapping[str, str] = {}
    group: str = ""
    kind: str = "json"


_SUBMITTED = "Returns its handle without waiting: call `wait` next."
_RECORD = "name once tag note notify notify_on"
_SUBMISSION = f"""
scheduler scheduler_args env env_file secret workspace each zip at_once after retry_on no_retry_on
stall on_stall straggler preflight time_limit warn_before requeue checkpoint_dir {_RECORD}
"""

TOOLS: dict[str, Tool] = {
    "why": Tool(
        "why",
        "Explain why an application failed, waits or runs: cause and evidence, last lines, memory used "
        "against requested, changes since the last success, what to try next. Use it first after a failure.",
        "handle!",
    ),
    "list": Tool(
        "list",
        "List applications, newest first. `columns` limits the answer to these keys and the handle.",
        "scheduler state name since lines tag columns",
        defaults={"lines": "200"},
    ),
    "status": Tool(
        "status",
        "Show state, replicas, attempts and measurements; with `ranks`, the last line of each rank.",
        "handle! roles ranks",
    ),
    "top": Tool(
        "top",
        "Show the running applications: state, CPU, memory, GPU, output and last line of each replica.",
        "handles scheduler",
    ),
    "queue": Tool("queue", "Show the GPUs of this machine, their users, and the jobs that wait.", ""),
    "describe": Tool(
        "describe",
        "Show an application as submitted: command line, roles with arguments and resources, run options.",
        "handle!",
    ),
    "log": Tool(
        "log",
        "Read the output of an application, a role or replicas (HANDLE/ROLE/0,2-4). `regex` "
        "keeps matching lines; `lines` reads only the last ones.",
        "handle! lines since until regex streams",
        kind="lines",
        fixed=("-o", "json", "--mask"),
    ),
    "events": Tool(
        "events",
        "Show the events of an application: started, failed, retried, stalled, ended.",
        "handle! lines since",
        kind="lines",
    ),
    "wait": Tool(
        "wait",
        "Wait until applications end or meet a condition (`for`); do not poll. After "
        "`timeout` seconds it returns the present state: call it again to continue.",
        "handles! for any timeout",
        defaults={"timeout": "600"},
    ),
    "diff": Tool(
        "diff",
        "Compare two applications: arguments, options, environment, source, results.",
        "first! second!",
    ),
    "results": Tool(
        "results",
        "Compare the runs of a sweep: parameters, state, measurements and metrics.",
        "handle! metric sort best lines",
    ),
    "stacks": Tool(
        "stacks",
        "Find a hang: show the Python stacks of all processes, identical ones grouped.",
        "handle! rank",
    ),
    "report": Tool(
        "report",
        "Read the data of a report: tracked metrics and measurements over time, first failure, source.",
        "handle!",
        ("--json",),
    ),
    "report_page": Tool(
        "report",
        "Write the report as an HTML page for people, and return its path, relative to the server's folder.",
        "handle! output",
        (),
        group="run",
        kind="text",
    ),
    "components": Tool("builtins", "List the components that you can run.", ""),
    "component": Tool(
        "run",
        "Show the arguments of a component: flags, types, defaults, meaning.",
        "arguments!",
        ("--json", "--help"),
    ),
    "run_options": Tool("runopts", "Show a scheduler's run options (`scheduler_args` of run).", "scheduler!"),
    "doctor": Tool("doctor", "Check the configured engines and suggest fixes.", "scheduler"),
    "dryrun": Tool(
        "run",
        "Show the request that `run` would submit, and submit nothing; same arguments as `run`.",
        f"arguments! {_SUBMISSION}",
        ("--dryrun", "-o", "json"),
    ),
    "run": Tool(
        "run",
        "Submit an application: a component, then its flags, as in ['utils.echo', '--msg', 'hi']. "
        f"{_SUBMITTED} With `once`, a repeated call submits nothing. With `each`, it is a sweep: call "
        "`results` for its runs.",
        f"arguments! {_SUBMISSION}",
        ("--detach", "--json"),
        group="run",
    ),
    "rerun": Tool(
        "rerun",
        f'Submit an application again, as it was submitted, or with `set`: {{"lr": 0.1}}. {_SUBMITTED}',
        f"handle! set failed scheduler scheduler_args env secret {_RECORD}",
        ("--detach", "--json"),
        group="run",
    ),
    "change_queue": Tool(
        "queue",
        "Change waiting applications: `first` moves them ahead of your others, `hold` keeps them from "
        "starting, `release` ends that. `queue` shows their places.",
        "action! handles!",
        group="run",
    ),
    "cancel": Tool(
        "cancel", "Cancel applications, and wait until they have ended.", "handles!", group="cancel"
    ),
    "delete": Tool("delete", "Delete ended applications with their logs.", "handles!", group="delete"),
}
"""The tools by name."""

_NAMES = {"cfg": "scheduler_args", "target": "handle"}
"""Arguments of tools that are not named after their flag, as in the JSON of `run --stdin`."""

_OTHER_NAMES = table(
    """
lines: n limit tail last head max
regex: grep filter pattern search
scheduler_args: cfg run_options options
scheduler: s engine backend
arguments: args argv command component_args
handle: app app_id id job
handles: app app_id id job
env: environment envs
for: condition until
once: idempotency_key
"""
)
"""Arguments of tools, and the names that other tools have for them."""

_KINDS = {
    "N": "integer",
    "FLAG=VALUE": "object",
    "NAME[=VALUE]": "pairs",
    "K=V,...": "pairs",
    "A,B": "texts",
    "N,...": "texts",
}
"""Kinds of arguments, by the form of the value of their flag."""

_HELP = {
    "arguments": """The component, then its flags and arguments: ["utils.echo", "--msg", "hi"].""",
    "env": """Environment variables: {"A": "1"} or ["A=1"]; ["A"] copies A from the server's environment.""",
    "scheduler_args": (
        """Run options of the scheduler: {"KEY": "VALUE"} or ["KEY=VALUE"]. `run_options` lists them."""
    ),
    "secret": """Secrets, masked in all output: ["NAME"] from the server's environment, ["NAME=@FILE"].""",
    "each": (
        """Run once for each value; several: each combination: ["lr=1e-3,3e-4", "seed=1..3"] or """
        """["@runs.csv"]. A name is a flag of the component, or a {NAME} placeholder in its arguments."""
    ),
    "set": """Change flags of the component or of its program: {"lr": 0.1, "debug": true}.""",
    "tag": """Tags: {"sweep": "lr"} or ["sweep=lr"]; `list` takes patterns such as lr*.""",
    "notify": """Targets: ["https://..."] to post JSON to, ["cmd:PROGRAM ARGS"], or ["none"].""",
    "metric": """Metrics in the logs (the last match): ["loss"], or with a pattern: ["loss:=total (.+)"].""",
    "sort": """Sort by a parameter, a metric, run, state, duration, memory, cpu or gpu; -NAME: descending.""",
    "best": """Show only the succeeded run with the smallest value of this metric; -NAME: the largest one.""",
    "lines": "At most this many: the last lines or events, the newest applications, the first runs.",
    "on_stall": "With `stall`: report (default), restart or cancel.",
    "env_file": """Files with a line NAME=VALUE for each environment variable: ["job.env"].""",
    "zip": "With `each`: pair the values in order instead of combining all.",
    "at_once": "With `each`: at most this many runs at a time (0: all; default on this machine: 1).",
    "after": (
        """Start after these have succeeded: ["APP"], ended: ["APP:any"], or failed: ["APP:failed"]."""
    ),
    "retry_on": (
        """Retry only these failures: ["3", "100-110", "SIGKILL", "out-of-memory", "node", """
        """"preemption", "image", "log:REGEX"]."""
    ),
    "preflight": (
        """Checks on each node before the program: ["gpu", "disk:SIZE", "collective", "cmd:COMMAND"]."""
    ),
    "until": "Only lines before this time; same format as `since`.",
    "once": "Submit at most once under this name; if it exists, its handle is returned instead.",
    "handles": """A list: handles, app ids or prefixes of them, names, or @last: ["@last"].""",
    "output": "The file (default: APP_ID.html).",
    "action": "first, hold or release.",
}
"""Descriptions of arguments whose flag is described for a shell."""

HINTS = {
    "unknown_run_option": "all options: the tool `run_options`",
    "unknown_component": "all components: the tool `components`",
    "unknown_application": "all applications: the tool `list`",
    "missing_secret": "give their names as the argument `secret`",
}
"""Codes of errors whose next step is a tool, and that step."""

CURSOR = {"type": "string", "description": "Continue an earlier answer: a cursor from its `more`."}


def check_allowed(groups: Iterable[str]) -> frozenset[str]:
    """Checks the groups given to `--allow`.

    Raises:
        UsageError: a group does not exist.
    """
    for group in groups:
        if group not in ALLOWED:
            raise UsageError(
                f"--allow takes {', '.join(ALLOWED)}, got `{group}`",
                hint=did_you_mean(group, ALLOWED, "without the flag, the server is read-only"),
            )
    return frozenset(groups)


def offered(allowed: frozenset[str]) -> dict[str, Tool]:
    """Returns the tools that may be used."""
    return {name: tool for name, tool in TOOLS.items() if not tool.group or tool.group in allowed}


class Parameter(NamedTuple):
    """An argument of a tool.

    Attributes:
        name: its name.
        flag: the flag of the command; empty for a positional argument.
        kind: ``boolean``, ``array``, ``object``, ``pairs`` (array or object), ``texts`` (string or array),
            ``integer`` or ``string``.
        help: its purpose.
        required: whether it is required.
    """

    name: str
    flag: str
    kind: str
    help: str
    required: bool


def parameters(tool: Tool) -> dict[str, Parameter]:
    """Returns the arguments of a tool by name, from the declaration of its command."""
    known = {found.name: found for found in map(_parameter, load(tool.command).params)}
    required = {name.removesuffix("!") for name in tool.flags.split() if name.endswith("!")}
    names = [name.removesuffix("!") for name in tool.flags.split()]
    return {name: known[name]._replace(required=name in required) for name in names}


def _parameter(declared: Any) -> Parameter:
    flags = [flag for flag in declared.opts if flag.startswith("--")] or declared.opts
    flag = ""
    if declared.param_type_name == "option":
        flag = flags[0]
    several = bool(getattr(declared, "multiple", False)) or declared.nargs == -1
    kind = "string"
    if getattr(declared, "is_flag", False):
        kind = "boolean"
    if several:
        kind = "array"
    kind = _KINDS.get(declared.metavar, kind)
    name = flag.lstrip("-").replace("-", "_") or declared.name
    name = _NAMES.get(name, name)
    return Parameter(name, flag, kind, _HELP.get(name) or getattr(declared, "help", None) or "", False)


def schema(tool: Tool) -> Object:
    """Returns the JSON Schema of the arguments of a tool."""
    found = parameters(tool)
    properties: Object = {}
    for name, parameter in found.items():
        kind: Object = {"type": parameter.kind}
        if parameter.kind == "array":
            kind = _LIST
        elif parameter.kind == "pairs":
            kind = {"anyOf": [_LIST, {"type": "object"}]}
        elif parameter.kind == "texts":
            kind = {"anyOf": [{"type": "string"}, _LIST]}
        properties[name] = {**kind, "description": parameter.help}
        if name in tool.defaults:
            properties[name]["default"] = tool.defaults[name]
    if not tool.group and tool.kind != "text":
        properties["cursor"] = CURSOR
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name, parameter in found.items() if parameter.required],
        "additionalProperties": False,
    }


def command_line(name: str, tool: Tool, arguments: Data) -> list[str]:
    """Returns the command line of a call.

    Raises:
        UsageError: an argument is unknown, missing or of the wrong type.
    """
    found = parameters(tool)
    arguments = _with_other_names(arguments, found)
    for given in arguments:
        if given not in found:
            raise _unknown_argument(name, given, found)
    flags: list[str] = []
    words: list[str] = []
    for parameter in found.values():
        value = arguments.get(parameter.name, tool.defaults.get(parameter.name))
        if value is None or value == "" or value == []:
            if parameter.required:
                message = f"`{name}` requires the argument `{parameter.name}`"
                raise UsageError(message, hint=parameter.help, code="missing_argument")
            continue
        values = _texts(name, parameter, value)
        if not parameter.flag:
            words += values
        elif parameter.kind == "boolean":
            flags += [parameter.flag] * bool(value)
        else:
            flags += [f"{parameter.flag}={text}" for text in values]
    if words and words[0].startswith("-"):
        raise _flag_in_arguments(name, tool, words[0].partition("=")[0])
    if "--help" in tool.fixed:
        return [tool.command, "--json", words[0], "--help"]
    separator = ["--"] if tool.command != "run" else []  # the arguments after a component are its own
    return [tool.command, *tool.fixed, *flags, *separator, *words]


def _unknown_argument(name: str, given: str, found: Mapping[str, Parameter]) -> UsageError:
    meant = [own for own in found if given in _OTHER_NAMES.get(own, "").split()]
    hint = did_you_mean(given, found, f"arguments: {', '.join(found)}")
    if meant:
        hint = f"did you mean `{meant[0]}`?"
    return UsageError(f"`{name}` has no argument `{given}`", hint=hint, code="unknown_flag")


def _flag_in_arguments(name: str, tool: Tool, flag: str) -> UsageError:
    """Returns the error about a flag of the command in place of a name or a component."""
    hint = f"arguments: {', '.join(parameters(tool))}"
    if argument := argument_of(tool, flag):
        hint = f"give it as the argument `{argument}`"
    return UsageError(f"`{name}` takes a name, got the flag `{flag}`", hint=hint, facts={"flag": flag})


def argument_of(tool: Tool, flag: str) -> str:
    """Returns the argument of a tool for a flag of its command; empty without one."""
    own = parameters(tool)
    named = (_parameter(declared).name for declared in load(tool.command).params if flag in declared.opts)
    return next((name for name in named if name in own), "")


def for_agent(tool: Tool, error: Object) -> Object:
    """Returns the error of a command with the arguments of its tool for flags, and tools for commands."""
    argument = argument_of(tool, error.get("flag", ""))
    if "option" in error:
        argument = "scheduler_args"
    hint = HINTS.get(error["code"], error.get("hint"))
    if argument and error["code"] == "unknown_flag":  # after the component
        hint = f"give it as the argument `{argument}`"
    elif error["code"] in HINTS and "did_you_mean" in error:
        hint = f"did you mean `{error['did_you_mean']}`?   {hint}"
    answer = {**error, "hint": hint}
    if argument:
        answer["argument"] = argument
    return answer


def _with_other_names(arguments: Data, found: Mapping[str, Parameter]) -> Data:
    """Returns the arguments of a call, with a single application or component where the tool takes it."""
    renamed = dict(arguments)
    rest = renamed.get("arguments", [])
    for other in ("component", "name"):
        if other in renamed and other not in found and "arguments" in found and isinstance(rest, list):
            renamed["arguments"] = [renamed.pop(other), *rest]
    for other in ("handle", "target"):
        if other not in renamed or other in found:
            continue
        if "handle" in found:
            renamed.setdefault("handle", renamed.pop(other))
        elif "handles" in found:
            renamed.setdefault("handles", [renamed.pop(other)])
    return renamed


def _texts(name: str, parameter: Parameter, value: Any) -> list[str]:
    """Returns the value of an argument as texts."""
    shape, expected = _TAKES[parameter.kind]
    try:
        check(value, shape, parameter.name)
    except ValueError:
        message = f"`{parameter.name}` of `{name}` takes {expected}, got {value!r}"
        raise UsageError(message, hint=parameter.help, code="invalid_value") from None
    if isinstance(value, dict):
        return [f"{key}={value_text(item)}" for key, item in value.items()]
    if parameter.kind == "boolean":
        return []
    items = [value]
    if isinstance(value, list):
        items = value
    if parameter.kind == "texts":
        return [",".join(map(str, items))]
    return [str(item) for item in items]


_LIST: Object = {"type": "array", "items": {"type": "string"}}

_TAKES: dict[str, tuple[Shape, str]] = {
    "boolean": (bool, "true or false"),
    "array": ([(str, float)], "a list of strings"),
    "object": (dict, "an object with a value for each name"),
    "pairs": (([(str, float)], dict), "an object, or a list of strings"),
    "texts": ((str, float, [(str, float)]), "a string, or a list of strings"),
    "integer": ((int, str), "a whole number"),
    "string": ((str, float), "a string"),
}
"""Kind of argument -> the shape of its value, and its description."""
