"""`torchx schema`: print the JSON Schemas of the output of the commands."""

from __future__ import annotations

from typing import Annotated

from torchx.errors import UsageError
from torchx.suggestions import did_you_mean
from torchx_cli.door import feature, has_others
from torchx_cli.flags import Json, Output, argument
from torchx_cli.schemas.build import schemas
from torchx_cli.terminal.output import emit, output_format


def schema_(
    command: Annotated[
        list[str] | None,
        argument(metavar="[COMMAND]", help="A command, such as `status` or `config show`, or `error`."),
    ] = None,
    output: Output = "",
    json: Json = False,
) -> None:
    """Print the JSON Schema of the output of a command with -o json.

    Without COMMAND, prints an object with the schemas of all commands, and of `error`: the output of a
    command that failed. Existing keys keep their meaning; new ones may be added.
    """
    form = output_format(output, json)
    known = schemas()
    if has_others():
        feature("features.shown").add_rows(known)
    name = " ".join(command or ())
    below = {each: schema for each, schema in known.items() if each.startswith(f"{name} ") or not name}
    if name not in known and not below:
        raise UsageError(
            f"the command `{name}` has no JSON output",
            hint=did_you_mean(name, known, f"commands: {', '.join(known)}"),
            code="unknown_command",
            facts={"given": name},
        )
    emit(known.get(name, below), "yaml" if form == "yaml" else "json")
