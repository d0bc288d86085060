"""`torchx lint`: check the components of a file without running them."""

from __future__ import annotations

import sys
from typing import Annotated

from torchx.errors import StateError
from torchx.lazy import lazy_imports
from torchx_cli.flags import Json, Output, argument
from torchx_cli.terminal.output import counted, emit, output_format, paint, say

with lazy_imports:
    from torchx.discovery.find import lint


def lint_(
    target: Annotated[
        str, argument(metavar="PATH[:FN]", help="A file, folder or module, or one function of a file.")
    ],
    output: Output = "",
    json: Json = False,
) -> int:
    """Check components: argument types, return types and conflicting flags.

    The exit code is 1 if there are problems, or no components.
    """
    form = output_format(output, json)
    report = lint.lint(target)
    if not report.checked:
        hint = "a component is a function with the return type AppDef"
        raise StateError(f"{target} has no components", hint=hint, code="unknown_component")
    if form != "text":
        problems = [
            {
                "path": message.path,
                "line": message.line,
                "char": message.char,
                "name": message.name,
                "severity": message.severity,
                "description": message.description,
            }
            for message in report.messages
        ]
        emit({"checked": report.checked, "fine": report.fine, "problems": problems}, form)
        if problems:
            return 1
        return 0
    for message in report.messages:
        say(str(message))
    verdict = _verdict(len(report.messages), report.faulty, report.fine)
    say(paint(verdict, "bad" if report.messages else "good", sys.stdout))
    if report.messages:
        return 1
    return 0


def _verdict(problems: int, faulty: int, fine: int) -> str:
    """Returns the summary line.

    >>> _verdict(2, 1, 3)
    '2 problems in 1 component; 3 components are fine'
    """
    fine_ones = f"{counted(fine, 'component')} {'is' if fine == 1 else 'are'} fine"
    if not problems:
        return fine_ones
    return f"{counted(problems, 'problem')} in {counted(faulty, 'component')}; {fine_ones}"
