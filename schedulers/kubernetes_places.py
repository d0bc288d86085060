"""Which cluster an application was submitted to, where its handle does not tell: a note on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from torchx.errors import TorchxError
from torchx.specs.run_options import CfgVal

_KEPT = ("context", "kubeconfig")


def remember(app_id: str, cfg: Mapping[str, CfgVal]) -> None:
    """Notes the options by which the cluster was found; nothing when it is the usual one."""
    told = {key: str(cfg[key]) for key in _KEPT if cfg.get(key)}
    if not told:
        return
    with suppress(OSError, TorchxError):  # it runs: a convenience must not turn that into an error
        path = _note(app_id)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if "kubeconfig" in told:
            told["kubeconfig"] = str(Path(told["kubeconfig"]).expanduser().absolute())
        path.write_text(json.dumps(told), encoding="utf-8")


def recall(app_id: str) -> dict[str, CfgVal]:
    """Returns the options that were noted for an application; none when nothing was."""
    try:
        found = json.loads(_note(app_id).read_text(encoding="utf-8"))
    except (OSError, ValueError, TorchxError):
        return {}
    return {key: str(found[key]) for key in _KEPT if key in found} if isinstance(found, dict) else {}


def forget(app_id: str) -> None:
    """Removes the note of an application."""
    with suppress(OSError, TorchxError):
        _note(app_id).unlink()


def _note(app_id: str) -> Path:
    from urllib.parse import quote

    from torchx.specs.home import TORCHX_HOME

    return TORCHX_HOME() / "kubernetes" / f"{quote(app_id, safe=':')}.json"
