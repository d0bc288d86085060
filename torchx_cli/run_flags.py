"""The flags of `torchx run` and `torchx rerun` by feature: tables that import none of the features."""

from __future__ import annotations

from torchx.command_line import FlagRow
from torchx.printable import table
from torchx_cli.flags import CFG, FOLD, SHOW, name_of


def _rows(text: str) -> list[FlagRow]:
    """Returns the flags of a table: their group, then a line ``SPELLINGS METAVAR: HELP`` for each.

    A flag with ``*`` may be repeated.
    """
    group, *lines = text.strip().split("\n")
    rows = []
    for line in lines:
        head, _, help = line.partition(": ")
        parts = head.removesuffix(" *").split()
        spellings = " ".join(part for part in parts if part.startswith("-"))
        metavar = " ".join(parts).removeprefix(spellings).strip()
        rows.append(FlagRow(spellings, metavar, help, group, head.endswith("*")))
    return rows


_CHANGES = _rows("""
Program and files
--set FLAG=VALUE *: Change a flag of the component, or else of its program (repeatable).
--as-it-was: Use the recorded source, restored from git.
--failed: Rerun only the failed and cancelled runs of a sweep.
""")
_VARIABLES = _rows("""
Program and files
--env NAME[=VALUE] *: Set an environment variable; without =VALUE, copy it from this shell (repeatable).
--env-file PATH *: Set the variables listed in a file, one NAME=VALUE a line (repeatable).
--secret NAME[=@FILE] *: Set a secret from this shell or from a file; it is masked in all output \
(repeatable).
""")
_FOLLOWED = _rows(f"""
Attached or not
-d --detach: Return once it is submitted; the application keeps running.
--wait: Wait until the application ends (local schedulers always do).
--log: Wait, and stream the logs (local schedulers always do).
--fold: {FOLD}
--show A,B: {SHOW}
""")
_SWEEPS = _rows("""
Sweeps and order
--each NAME=VALUES *: Run once for each value: lr=1e-3,3e-4, seed=1..3, or @runs.csv (repeatable: each \
combination). NAME is a flag of the component, or a {NAME} placeholder in its arguments.
--zip: With --each: pair the values in order instead of combining all.
--at-once N: With --each: at most N runs at a time (0: all; default: 1 on this machine, else all).
--after APP[:ok|any|failed] *: Start after this application has succeeded (default), ended or failed; if \
it ends otherwise, start nothing (repeatable: wait for all).
""")
_QUEUE = _rows("""
Scheduler
--avoid-bad-nodes: Do not use the nodes that torchx nodes lists.
--priority N: Priority in this machine's queue; higher starts first.
--no-queue: Fail if the resources are not free, instead of queueing.
""")
_FAILURES = _rows("""
Failures and stalls
--retry-on CAUSE,... *: Retry only these failures: exit codes (3, 100-110), signals (SIGKILL), \
out-of-memory, node, preemption, image, log:REGEX in the last lines (repeatable; default: any).
--no-retry-on CAUSE,... *: Never retry these failures; "none" clears the list (default: usage-error, \
import-error, syntax-error, disk-full, preflight, setup-once).
--stall TIME: Report replicas that print nothing for this long, e.g. 10m.
--on-stall ACTION: With --stall: report (default), restart or cancel.
--progress-regex REGEX: Log lines that count as progress; the first group is the step: 'step (\\d+)'.
--straggler STEPS: Report ranks that are slower than the others by this many steps, e.g. 20.
--preflight CHECK *: Run checks on each node or container before the program starts: gpu[:SIZE], \
disk[:SIZE], collective[:TIME], 'cmd:COMMAND' (repeatable).
""")
_LIMITS = _rows("""
Time limits and checkpoints
--time-limit TIME: End the application after this time, e.g. 24h.
--warn-before TIME[:SIGNAL]: Send SIGUSR1 (or SIGNAL) this long before the time limit.
--requeue A,B: Restart the application after: time-limit[:N] (N times, default 20), preempted, node.
--checkpoint-dir PATH: Keep checkpoints in this folder across all runs; programs read \
$TORCHX_CHECKPOINT_DIR.
""")
_NOTIFIED = _rows("""
Notifications
--notify TARGET *: Post JSON to this URL, or run cmd:PROGRAM ARGS, e.g. 'cmd:notify-send {name} {state}' \
(repeatable); "none" disables the configured targets.
--notify-on A,B: On end, failure, stall, straggler (default: all but failure).
""")
_RECORDED = _rows("""
Record
--name NAME: Name of the application (default: the component names it).
--tag NAME[=VALUE] *: Tag the run, to find and compare it: sweep=lr (repeatable).
--note TEXT: Add a note to the run.
--once NAME: Submit at most once under NAME; if it exists, attach to it instead.
""")
_PRINTED = _rows("""
Output
--dryrun [=full]: Print the scheduler request and submit nothing; --dryrun=full also prints the job's \
files.
-o --output FORMAT: text (default), json, or with --dryrun yaml.
--json: Print a JSON object instead of the handle.
""")
_PLACE = _rows(f"""
Scheduler
-s --scheduler NAME: The scheduler (default: local_cwd).
-cfg K=V,... *: {CFG}
""")
_OTHER_PLACE = _rows(f"""
Scheduler
-s --scheduler NAME: Another scheduler (default: the same).
-cfg K=V,... *: {CFG}
""")

_OPTIONS = table("""
no_queue: no_wait
progress_regex: progress
requeue: requeue_on
warn_before: notice
""")
RULES = {_OPTIONS.get(name_of(row), name_of(row)): row for row in (*_QUEUE, *_FAILURES, *_LIMITS)}
"""Run option -> its flag. These are the options of the policies and of the queue."""

RUN = (*_VARIABLES, *_PLACE, *_FOLLOWED, *_SWEEPS, *RULES.values(), *_NOTIFIED, *_RECORDED, *_PRINTED)
RERUN = (*_CHANGES, *_VARIABLES, *_OTHER_PLACE, *_FOLLOWED, *_NOTIFIED, *_RECORDED, *_PRINTED)
"""The flags of the commands, in the order of their help pages."""
