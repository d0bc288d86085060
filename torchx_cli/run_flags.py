"""The flags of `torchx run` and `torchx rerun` by feature: a table that imports none of the features."""

from __future__ import annotations

from torchx.features import Flag
from torchx_cli.flags import ATTACHED, FAILURES, FOLD, LIMITS, NOTIFY, OUTPUT, PLACE, RECORD, SHOW, SWEEP

FOLLOWED = (
    Flag("-d --detach", "", "Return once it is submitted; the application keeps running.", ATTACHED),
    Flag("--wait", "", "Wait until the application ends (local schedulers always do).", ATTACHED),
    Flag("--log", "", "Wait, and stream the logs (local schedulers always do).", ATTACHED),
    Flag("--fold", "", FOLD, ATTACHED),
    Flag("--show", "A,B", SHOW, ATTACHED),
)
SWEEPS = (
    Flag(
        "--each",
        "NAME=VALUES",
        "Run once for each value: lr=1e-3,3e-4, seed=1..3, or @runs.csv (repeatable: each "
        "combination). NAME is a flag of the component, or a {NAME} placeholder in its arguments.",
        SWEEP,
        repeats=True,
    ),
    Flag("--zip", "", "With --each: pair the values in order instead of combining all.", SWEEP),
    Flag(
        "--at-once",
        "N",
        "With --each: at most N runs at a time (0: all; default: 1 on this machine, else all).",
        SWEEP,
    ),
    Flag(
        "--after",
        "APP[:ok|any|failed]",
        "Start after this application has succeeded (default), ended or failed; if it "
        "ends otherwise, start nothing (repeatable: wait for all).",
        SWEEP,
        repeats=True,
    ),
)
RULES = (
    Flag("--avoid-bad-nodes", "", "Do not use the nodes that torchx nodes lists.", PLACE),
    Flag("--priority", "N", "Priority in this machine's queue; higher starts first.", PLACE),
    Flag("--no-queue", "", "Fail if the resources are not free, instead of queueing.", PLACE),
    Flag(
        "--retry-on",
        "CAUSE,...",
        "Retry only these failures: exit codes (3, 100-110), signals (SIGKILL), out-of-memory, node, "
        "preemption, image, log:REGEX in the last lines (repeatable; default: any).",
        FAILURES,
        repeats=True,
    ),
    Flag(
        "--no-retry-on",
        "CAUSE,...",
        'Never retry these failures; "none" clears the list '
        "(default: usage-error, import-error, syntax-error, disk-full, preflight, setup-once).",
        FAILURES,
        repeats=True,
    ),
    Flag("--stall", "TIME", "Report replicas that print nothing for this long, e.g. 10m.", FAILURES),
    Flag("--on-stall", "ACTION", "With --stall: report (default), restart or cancel.", FAILURES),
    Flag(
        "--progress-regex",
        "REGEX",
        "Log lines that count as progress; the first group is the step: 'step (\\d+)'.",
        FAILURES,
    ),
    Flag(
        "--straggler",
        "STEPS",
        "Report ranks that are slower than the others by this many steps, e.g. 20.",
        FAILURES,
    ),
    Flag(
        "--preflight",
        "CHECK",
        "Run checks on each node or container before the program starts: gpu[:SIZE], disk[:SIZE], "
        "collective[:TIME], 'cmd:COMMAND' (repeatable).",
        FAILURES,
        repeats=True,
    ),
    Flag("--time-limit", "TIME", "End the application after this time, e.g. 24h.", LIMITS),
    Flag(
        "--warn-before",
        "TIME[:SIGNAL]",
        "Send SIGUSR1 (or SIGNAL) this long before the time limit.",
        LIMITS,
    ),
    Flag(
        "--requeue",
        "A,B",
        "Restart the application after: time-limit[:N] (N times, default 20), preempted, node.",
        LIMITS,
    ),
    Flag(
        "--checkpoint-dir",
        "PATH",
        "Keep checkpoints in this folder across all runs; programs read $TORCHX_CHECKPOINT_DIR.",
        LIMITS,
    ),
)
"""Flags that set run options: those of the policies and of the queue."""

RECORDED = (
    Flag(
        "--notify",
        "TARGET",
        "Post JSON to this URL, or run cmd:PROGRAM ARGS, e.g. 'cmd:notify-send {name} {state}' "
        '(repeatable); "none" disables the configured targets.',
        NOTIFY,
        repeats=True,
    ),
    Flag("--notify-on", "A,B", "On end, failure, stall, straggler (default: all but failure).", NOTIFY),
    Flag("--name", "NAME", "Name of the application (default: the component names it).", RECORD),
    Flag(
        "--tag",
        "NAME[=VALUE]",
        "Tag the run, to find and compare it: sweep=lr (repeatable).",
        RECORD,
        repeats=True,
    ),
    Flag("--note", "TEXT", "Add a note to the run.", RECORD),
    Flag("--once", "NAME", "Submit at most once under NAME; if it exists, attach to it instead.", RECORD),
    Flag(
        "--dryrun",
        "[=full]",
        "Print the scheduler request and submit nothing; --dryrun=full also prints the job's files.",
        OUTPUT,
    ),
    Flag("-o --output", "FORMAT", "text (default), json, or with --dryrun yaml.", OUTPUT),
    Flag("--json", "", "Print a JSON object instead of the handle.", OUTPUT),
)
