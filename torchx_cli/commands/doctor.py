"""`torchx doctor`: check the engines and suggest fixes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from torchx.printable import one_line
from torchx_cli.flags import Json, Output
from torchx_cli.session import session_of
from torchx_cli.terminal.output import emit, output_format, paint, say, wrap

if TYPE_CHECKING:
    from torchx.runner.api import Runner
    from torchx.scheduling.findings import Finding

MEANING = {"ok": "good", "none": "dim", "wrong": "bad"}


def doctor_(
    ctx: typer.Context,
    scheduler: Annotated[
        str,
        typer.Argument(metavar="[SCHEDULER]", show_default=False, help="Only this scheduler (default: all)."),
    ] = "",
    output: Output = "",
    json: Json = False,
) -> None:
    """Check the engines: reachability, version, features, problems and fixes.

    A missing engine is a problem only if it is given by name. The exit code is 1 if there are problems.
    """
    from torchx.scheduling.findings import Verdict

    form = output_format(output, json)
    with session_of(ctx).runner(check_home=False) as runner:
        names = [scheduler] if scheduler else _distinct(runner.scheduler_backends())
        results = {name: list(_diagnose(runner, name)) for name in names}
    wrong = any(finding.verdict is Verdict.WRONG for findings in results.values() for finding in findings)
    if scheduler and results[scheduler] and results[scheduler][0].verdict is Verdict.ABSENT:
        wrong = True
    if form != "text":
        emit(
            {name: [_as_data(finding) for finding in findings] for name, findings in results.items()},
            form,
            hide=True,
        )
    else:
        for name, findings in results.items():
            say(paint(name, "bold", sys.stdout))
            for finding in findings:
                _print_finding(finding, max(len(item.what) for item in findings))
    if wrong:
        raise typer.Exit(1)


def _distinct(names: Iterable[str]) -> list[str]:
    return [name for name in names if name != "local_dir"]  # same requirements as local_cwd


def _diagnose(runner: Runner, name: str) -> Iterable[Finding]:
    from torchx.errors import AbsentError, PluginError, TorchxError, UsageError
    from torchx.scheduling.findings import Finding, Verdict

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


def _print_finding(finding: Finding, width: int) -> None:
    verdict = paint(f"{finding.verdict.value:<5}", MEANING[finding.verdict.value], sys.stdout)
    detail = one_line(finding.detail)
    say(f"  {verdict}  {finding.what:<{width}}  {detail}".rstrip(), hide=True)
    if finding.hint and finding.verdict.value != "ok":
        say(paint(wrap(finding.hint, sys.stdout, " " * (width + 11)), "dim", sys.stdout), hide=True)


def _as_data(finding: Finding) -> dict[str, str | None]:
    return {
        "what": finding.what,
        "verdict": finding.verdict.value,
        "detail": finding.detail,
        "hint": finding.hint or None,
    }
