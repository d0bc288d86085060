"""What `torchx run --dryrun` prints: the application, and the request that would be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchx_cli.masking import mask, mask_text, secret_values
from torchx_cli.output import emit
from torchx_cli.plain import to_plain

if TYPE_CHECKING:
    from torchx.specs.dryrun import AppDryRunInfo


def print_dryrun(info: AppDryRunInfo[Any], form: str) -> None:
    """Prints a request on stdout, secrets masked.

    Args:
        info: what would be sent.
        form: text, json or yaml.
    """
    data = as_data(info)
    if form != "text":
        emit(data, form)
        return
    import yaml

    secrets = secret_values(info.app)
    app = yaml.safe_dump(data["app"], sort_keys=False, allow_unicode=True)
    print(f"=== APPLICATION ===\n{app}\n=== SCHEDULER REQUEST ===\n{mask_text(repr(info), secrets).rstrip()}")


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
