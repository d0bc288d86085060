"""`torchx doctor`: check the engines and suggest fixes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.errors import AbsentError, PluginError, TorchxError, UsageError
from torchx.lazy import lazy_imports
from torchx.printable import one_line
from torchx.scheduling.findings import Finding, Verdict
from torchx.version import __version__
from torchx_cli.door import feature, has_others
from torchx_cli.flags import Json, OneScheduler, Output
from torchx_cli.placeholder import REPAIR, foreign_distributions
from torchx_cli.session import session_of
from torchx_cli.terminal.output import Row, emit, is_terminal, output_format, paint, say, wrap

with lazy_imports:
    from torchx.runner import background
    from torchx.scheduling import gpu_findings
    from torchx_cli.terminal import drawing

if TYPE_CHECKING:
    from torchx.runner.api import Runner

MEANING = {"ok": "good", "none": "dim", "wrong": "bad"}


def doctor_(
    ctx: typer.Context,
    scheduler: OneScheduler = "",
    gpus: Annotated[
        bool,
        typer.Option("--gpus", help="Check only this machine's GPUs: memory, defects, leases."),
    ] = False,
    output: Output = "",
    json: Json = False,
) -> None:
    """Check the engines: reachability, version, features, problems and fixes.

    Also lists your background processes: why they run, for which applications, and how much memory they
    use. A missing engine is a problem only if you name it. The exit code is 1 if there are problems.
    """
    form = output_format(output, json)
    if gpus and scheduler:
        raise UsageError(f"--gpus checks this machine, not {scheduler}", hint="leave one of them out")
    with session_of(ctx).runner(check_home=False) as runner:
        if gpus:
            results = {"GPUs": gpu_findings.diagnose(os.environ)}
        elif scheduler:
            results = {scheduler: list(_diagnose(runner, scheduler))}
        else:
            results = {"installation": _installation()}
            results |= _engines(runner)
            results["background processes"] = background.findings()
            if has_others():
                results |= feature("features.shown").checks()
    verdicts = [finding.verdict for findings in results.values() for finding in findings]
    wrong = Verdict.WRONG in verdicts or (scheduler and verdicts[:1] == [Verdict.ABSENT])
    if form != "text":
        emit(
            {name: [_as_data(finding) for finding in findings] for name, findings in results.items()},
            form,
            hide=True,
        )
    else:
        for name, findings in results.items():
            say(paint(name, "bold", sys.stdout))
            _print_findings(findings)
    if wrong:
        raise typer.Exit(1)


def _installation() -> list[Finding]:
    if others := foreign_distributions():
        text = f"{' and '.join(others)} and torchx-cli have files of the same names"
        return [Finding("distributions", Verdict.WRONG, text, REPAIR)]
    return [Finding("distributions", Verdict.GOOD, f"torchx-cli {__version__}")]


def _engines(runner: Runner) -> dict[str, list[Finding]]:
    names = runner.scheduler_backends()
    # local_dir has the same requirements as local_cwd
    return {name: list(_diagnose(runner, name)) for name in names if name != "local_dir"}


def _diagnose(runner: Runner, name: str) -> Iterable[Finding]:
    try:
        return list(runner.diagnose(name))
    except PluginError as error:
        return [Finding("plugin", Verdict.WRONG, error.message, error.hint or "")]
    except UsageError:
        raise
    except AbsentError as error:
        return [Finding("engine", Verdict.ABSENT, error.message, error.hint or "")]
    except (TorchxError, NotImplementedError, ImportError) as error:
        hint = error.hint if isinstance(error, TorchxError) else ""
        return [Finding("engine", Verdict.WRONG, str(error).splitlines()[0], hint or "")]


def _print_findings(findings: Sequence[Finding]) -> None:
    shown = [(finding, finding.hint if finding.verdict.value != "ok" else "") for finding in findings]
    if is_terminal(sys.stdout):
        rows: list[Row] = [
            [
                (finding.verdict.value, MEANING[finding.verdict.value]),
                finding.what,
                one_line(finding.detail) + (f"\n{hint}" if hint else ""),
            ]
            for finding, hint in shown
        ]
        drawing.print_table(rows, indent=2)
        return
    width = max((len(finding.what) for finding in findings), default=0)
    for finding, hint in shown:
        say(
            f"  {finding.verdict.value:<5}  {finding.what:<{width}}  {one_line(finding.detail)}".rstrip(),
            hide=True,
        )
        if hint:
            say(wrap(hint, sys.stdout, " " * (width + 11)), hide=True)


def _as_data(finding: Finding) -> dict[str, str | None]:
    return {
        "what": finding.what,
        "verdict": finding.verdict.value,
        "detail": finding.detail,
        "hint": finding.hint or None,
    }
