"""Output of `torchx run --dryrun`: the application and the scheduler request."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx.printable import has_controls, printable
from torchx.specs.app import Manifests
from torchx.specs.serialize import app_to_dict
from torchx_cli.terminal.display import show_code
from torchx_cli.terminal.masking import mask, mask_text, remember, secret_names
from torchx_cli.terminal.output import data_text, is_terminal, note, say, yaml_text
from torchx_cli.terminal.plain import to_plain

if TYPE_CHECKING:
    from torchx.json_limits import Object
    from torchx.specs.app import AnyDryRunInfo

LONGEST = 10_000
"""Maximum length of a value before it is shortened in text output."""


def print_dryrun(info: AnyDryRunInfo, form: str, *, full: bool = False) -> None:
    """Prints a request on stdout with secrets masked, except manifests as YAML, which are unmasked.

    Args:
        info: the request.
        form: text, json or yaml.
        full: also print the content of files that belong to the request, as text.
    """
    if form == "yaml" and isinstance(info.request, Manifests):
        # masked manifests would be unusable; always UTF-8, as other tools expect
        text = repr(info)
        if is_terminal(sys.stdout) and has_controls(text):
            text = printable(text)
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        if shown := secret_names(info.app):
            note(f"note: the output is not masked and may contain secrets: {', '.join(shown)}")
        return
    if form != "text":
        text = data_text(as_data(info), form)
        if is_terminal(sys.stdout):  # elsewhere programs read it
            show_code(text, form, sys.stdout)
        else:
            say(text, end="")
        return
    remember(() if info.app is None else info.app.roles)
    app = yaml_text(mask(_app_data(info)))
    request = mask_text(_shown(info, full))
    language = "yaml"
    if request.startswith("#!"):
        language = "bash"
    say("=== APPLICATION ===")
    show_code(app, "yaml", sys.stdout)
    say("\n=== SCHEDULER REQUEST ===")
    show_code(request.rstrip(), language, sys.stdout)


def _shown(info: AnyDryRunInfo, full: bool) -> str:
    """Returns a request as text; values are masked first, while their names are known."""
    request: Any = mask(info.request)
    if isinstance(info.request, Manifests):
        request = replace(request, manifests=_shortened(request.manifests))
    if full:
        return info._fmt(request)
    return info._brief(request)


def _shortened(data: Any) -> Any:
    """Returns plain data with long strings, such as packed files, shortened."""
    if isinstance(data, dict):
        return {key: _shortened(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_shortened(value) for value in data]
    if isinstance(data, str) and len(data) > LONGEST:
        return f"{data[:40]}… ({len(data):,} characters)"
    return data


def as_data(info: AnyDryRunInfo) -> Object:
    """Returns a request as plain data with secrets masked.

    Keys: scheduler; cfg, the run options; app, the application; request, the scheduler request; notes,
    about requested features that the scheduler does not support.
    """
    data = {
        "scheduler": info.scheduler,
        "cfg": to_plain(info.cfg),
        "app": _app_data(info),
        "request": to_plain(info.request),
        "notes": list(info.notes),
    }
    remember(() if info.app is None else info.app.roles)
    masked: Object = mask(data)
    return masked


def _app_data(info: AnyDryRunInfo) -> Object | None:
    if info.app is None:
        return None
    return app_to_dict(info.app, strict=False)
