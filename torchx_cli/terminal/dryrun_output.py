"""What `torchx run --dryrun` prints: the application, and the request that would be sent."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchx.printable import has_controls, printable
from torchx.specs.dryrun import Manifests
from torchx_cli.terminal.masking import mask, mask_text, secret_names, secret_values
from torchx_cli.terminal.output import emit, is_terminal, note, say, yaml_text
from torchx_cli.terminal.plain import to_plain

if TYPE_CHECKING:
    from torchx.specs.dryrun import AppDryRunInfo


LONGEST = 10_000
"""Characters of a single value that is shown to people as it is."""


def print_dryrun(info: AppDryRunInfo[Any], form: str) -> None:
    """Prints a request on stdout, secrets masked; as it is where YAML is what the engine's own tool takes.

    Args:
        info: what would be sent.
        form: text, json or yaml.
    """
    if form == "yaml" and isinstance(info.request, Manifests):
        # a masked one could not be used elsewhere; in UTF-8 whatever the terminal speaks, as its readers want
        text = repr(info)
        if is_terminal(sys.stdout) and has_controls(text):
            text = printable(text)
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        if shown := secret_names(info.app):
            note(f"note: this is all that would be sent, also what may be secret: {', '.join(shown)}")
        return
    data = as_data(info)
    if form != "text":
        emit(data, form)
        return
    secrets = secret_values(info.app)
    app = yaml_text(data["app"])
    request = mask_text(_shown(info, secrets), secrets)
    say(f"=== APPLICATION ===\n{app}\n=== SCHEDULER REQUEST ===\n{request.rstrip()}")


def _shown(info: AppDryRunInfo[Any], secrets: Iterable[str]) -> str:
    """A request as text; the single values are masked first: there the names are known."""
    request: Any = mask(info.request, secrets)
    if isinstance(info.request, Manifests):
        request = replace(request, manifests=_shortened(request.manifests))
    return info._fmt(request)


def _shortened(data: Any) -> Any:
    """Plain data without texts that nobody reads, such as packed files."""
    if isinstance(data, dict):
        return {key: _shortened(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_shortened(value) for value in data]
    if isinstance(data, str) and len(data) > LONGEST:
        return f"{data[:40]}… ({len(data):,} characters)"
    return data


def as_data(info: AppDryRunInfo[Any]) -> dict[str, Any]:
    """Returns a request as plain data, secrets masked.

    The keys: scheduler; cfg, the run options; app, the application; request, what the scheduler would
    send; notes, what the scheduler will not do of what was asked for.
    """
    from torchx.specs.serialize import app_to_dict

    data = {
        "scheduler": info._scheduler,
        "cfg": to_plain(info.cfg),
        "app": None if info.app is None else app_to_dict(info.app, strict=False),
        "request": to_plain(info.request),
        "notes": list(info.notes),
    }
    masked: dict[str, Any] = mask(data, secret_values(info.app))
    return masked
