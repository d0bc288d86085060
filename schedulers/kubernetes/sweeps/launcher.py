"""The start of a run in its pod: a shell or Python reads the arguments and variables of its index.

All pods of a Job have one template. The fields in which the runs differ are in Secrets, which each pod mounts
as a folder of small files with a line for each run. The program of the role, a shell or Python, reads its
line and then executes itself with the arguments of the run.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from torchx.json_limits import Data
from torchx.lazy import lazy_imports
from torchx.schedulers.kubernetes.manifests.attempt_number import is_python, is_shell
from torchx.schedulers.kubernetes.manifests.escaping import INDEX_VARIABLE, escaped
from torchx.schedulers.kubernetes.names import CANCELLED_CODE

with lazy_imports:
    import shlex

FOLDER = "/torchx/runs"
"""The mounted folder."""
CANCELLED = "cancelled"
"""The file with the indexes of cancelled runs, or ``all``."""
BLOCK = 100
"""Lines of a file: a shell reads those before its own."""
NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
"""A name of a variable that a shell can set."""

_SHELL = f"""_torchx_i=${INDEX_VARIABLE}; _torchx_c=; _torchx_n='
'
IFS= read -r _torchx_c <{FOLDER}/{CANCELLED}
case " $_torchx_c " in *" $_torchx_i "*|*" all "*) exit {CANCELLED_CODE};; esac
_torchx_k=$((_torchx_i / {BLOCK})); _torchx_r=$((_torchx_i % {BLOCK})); _torchx_l=
while IFS= read -r _torchx_l && [ "$_torchx_r" -gt 0 ]
do _torchx_r=$((_torchx_r - 1)); done <{FOLDER}/$_torchx_k
eval "$_torchx_l"; exec "$0" "$@\""""
_PYTHON = f"""import json, os, sys
i = int(os.environ['{INDEX_VARIABLE}'])
text = lambda name: open('{FOLDER}/' + name, encoding='utf-8').read()
if {{str(i), 'all'}} & set(text('{CANCELLED}').split()): sys.exit({CANCELLED_CODE})
variables, arguments = json.loads(text(str(i // {BLOCK})).split(chr(10))[i % {BLOCK}])
os.environ.update(variables); os.execvp(sys.argv[1], sys.argv[1:] + arguments)"""

_NEWLINE = "'\"$_torchx_n\"'"
"""A line end within a quoted text."""


class RunFields(NamedTuple):
    """The fields of a run that other runs do not share.

    Attributes:
        args: its arguments.
        env: the variables that are not the same in all runs.
    """

    args: Sequence[str]
    env: Mapping[str, str]


def can_launch(entrypoint: str) -> bool:
    """Returns True if a program can read the arguments of a run: a shell or Python.

    >>> can_launch("/bin/bash"), can_launch("python3"), can_launch("train")
    (True, True, False)
    """
    program = PurePosixPath(entrypoint).name
    return is_shell(program) or is_python(program)


def arguments(entrypoint: str) -> list[str]:
    """Returns the arguments before those of the attempt number, escaped for a manifest."""
    if is_python(PurePosixPath(entrypoint).name):
        return ["-ISc", escaped(_PYTHON), escaped(entrypoint)]
    return ["-c", escaped(_SHELL), escaped(entrypoint)]


def own_arguments(args: Sequence[Any]) -> Sequence[Any]:
    """Returns the arguments of a container without those of :func:`arguments`.

    >>> own_arguments([*arguments("sh"), "-c"]), own_arguments(["-c", "true"])
    (['-c'], ['-c', 'true'])
    """
    if args[1:2] and args[1] in (escaped(_SHELL), escaped(_PYTHON)):
        return args[3:]
    return args


def encoded(text: str) -> str:
    """Returns a file as the value of a Secret."""
    return base64.b64encode(text.encode()).decode()


def fields_in(data: Data, entrypoint: str, index: int) -> RunFields | None:
    r"""Returns the fields of a run in the data of a Secret, or None if it is in another one or damaged.

    >>> fields = RunFields(["it's", "a\nb", ""], {"SEED": "1;"})
    >>> [data] = [{name: encoded(text)} for name, text in files("sh", [fields])]
    >>> fields_in(data, "sh", 0) == fields, fields_in(data, "sh", 1)
    (True, None)
    """
    try:
        text = base64.b64decode(data[str(index // BLOCK)]).decode()
        line = text.split("\n")[index % BLOCK]
        if is_python(PurePosixPath(entrypoint).name):
            env, args = json.loads(line)
            return RunFields([str(arg) for arg in args], {str(name): str(env[name]) for name in env})
        words = shlex.split(line.replace(_NEWLINE, "\n"))
        start = words.index("$@") + 1
    except (KeyError, IndexError, ValueError, TypeError, AttributeError, RecursionError):
        return None
    pairs = (word.removesuffix(";").partition("=") for word in words[1 : start - 3 : 2])
    return RunFields(words[start:], {name: value for name, _, value in pairs})


def files(entrypoint: str, runs: Iterable[RunFields]) -> Iterator[tuple[str, str]]:
    """Yields the names and contents of the files, in which a run has the line of its index."""
    if is_python(PurePosixPath(entrypoint).name):
        write = _python_line
    else:
        write = _shell_line
    held: list[str] = []
    number = 0
    for run in runs:
        held.append(write(run) + "\n")
        if len(held) == BLOCK:
            yield str(number), "".join(held)
            number, held = number + 1, []
    if held:
        yield str(number), "".join(held)


def _python_line(run: RunFields) -> str:
    return json.dumps([dict(run.env), list(run.args)])


def _shell_line(run: RunFields) -> str:
    """Returns commands that set the variables and append the arguments.

    >>> _shell_line(RunFields(["it's", "a\\nb"], {"SEED": "1"}))
    'export SEED=\\'1\\'; set -- "$@" \\'it\\'\\\\\\'\\'s\\' \\'a\\'"$_torchx_n"\\'b\\''
    """
    parts = [f"export {name}={_quoted(value)};" for name, value in run.env.items()]
    return " ".join([*parts, 'set -- "$@"', *map(_quoted, run.args)])


def _quoted(text: str) -> str:
    quoted = text.replace("'", "'\\''").replace("\n", _NEWLINE)
    return f"'{quoted}'"
