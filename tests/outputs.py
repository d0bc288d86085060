"""Checks that the JSON output of any command in any test has the documented form.

The forms are those of `torchx schema`, without further keys: a key that is not described fails too.
"""

from __future__ import annotations

import functools
import io
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from jsonschema import Draft202012Validator

from torchx_cli.completion import complete
from torchx_cli.main import requested_format
from torchx_cli.schemas.build import schemas

LARGEST = 200_000
"""Characters of an output that are checked: a longer one takes seconds, and has the same keys again."""

Main = Callable[[Sequence[str] | None], int]


all_schemas = functools.cache(schemas)


@functools.cache
def validator(name: str) -> Draft202012Validator:
    """The schema of a command, without further keys."""
    schema = json.loads(json.dumps(all_schemas()[name]))
    for definition in schema.get("$defs", {}).values():
        definition["additionalProperties"] = False
    return Draft202012Validator(schema)


def check(words: Sequence[str], output: str) -> None:
    """Checks the output of a command line, if it is JSON.

    Raises:
        AssertionError: the output does not have the form of the schema.
    """
    parsed = complete.parse(words) if requested_format(words) == "json" else None
    if parsed is None or len(output) > LARGEST:
        return
    name, line = parsed
    if line.given & {"help", "show"} or (name == "report" and "output" in line.given):
        return  # a help text, the source of a component, a path
    lines = name in ("log", "events") or (name == "stacks" and "watch" in line.given)
    documents = output.splitlines() if lines else [output] if output else []
    for document in documents:
        data = json.loads(document)
        kind = "error" if isinstance(data, dict) and list(data) == ["error"] else name
        wrong = next(validator(kind).iter_errors(data), None)
        assert wrong is None, f"{' '.join(words)}: {wrong and wrong.message}, at {wrong and wrong.json_path}"


class Tee:
    """Writes to a stream and keeps the text."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.texts = stream, io.StringIO()

    def write(self, text: str) -> int:
        self.texts.write(text)
        return int(self.stream.write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def checked(main: Main) -> Main:
    """The same function; it checks what the command prints."""

    @functools.wraps(main)
    def run(argv: Sequence[str] | None = None) -> int:
        words = list(sys.argv[1:] if argv is None else argv)
        if requested_format(words) != "json" or sys.stdout.isatty():  # a terminal shows it with colours
            return main(argv)
        tee = Tee(sys.stdout)
        sys.stdout = tee  # type: ignore[assignment]
        try:
            code = main(argv)
        finally:
            if sys.stdout is tee:  # type: ignore[comparison-overlap]
                sys.stdout = tee.stream
        check(words, tee.texts.getvalue())
        return code

    return run
