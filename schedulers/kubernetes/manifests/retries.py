"""The rules of retries that a Job can apply itself."""

from __future__ import annotations

from torchx.exit_codes import PREFLIGHT_FAILED
from torchx.schedulers.kubernetes.api.objects import Object
from torchx.schedulers.kubernetes.names import CONTAINER
from torchx.scheduling.retry_rules import RetryRules, exit_codes_of
from torchx.specs.run_options import RunOptions


def job_rules(cfg: RunOptions) -> list[Object]:
    """Returns the rules of a Job that ends a replica without another attempt, from exit codes and signals."""
    rules = RetryRules.of(cfg)
    never = [code for rule in rules.never for code in exit_codes_of([rule]) or ()]
    if cfg.get("preflight") and "preflight" in rules.never:
        never.append(PREFLIGHT_FAILED)
    only = exit_codes_of(rules.on)
    found = []
    for operator, codes in (("In", never), ("NotIn", only)):
        if codes:
            on = {"containerName": CONTAINER, "operator": operator, "values": sorted(set(codes))}
            found.append({"action": "FailIndex", "onExitCodes": on})
    return found


def needs_lines(cfg: RunOptions) -> bool:
    """Returns True if run options have rules that a Job cannot apply itself."""
    rules = RetryRules.of(cfg)
    never = rules.never if cfg.get("no_retry_on") is not None else ()
    return exit_codes_of(rules.on) is None or exit_codes_of(never) is None
