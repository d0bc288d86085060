"""Names of the environment variables that this project reads or sets, and of metadata that it adds."""

from __future__ import annotations

TORCHX_HOME = "TORCHX_HOME"
"""The state home: job records, logs, caches. Default: ``~/.torchx``."""

TORCHXCONFIG = "TORCHXCONFIG"
"""The only configuration file to read; empty for none at all."""

TORCHX_JOB_ID = "TORCHX_JOB_ID"
"""Set in every replica: the handle of its application."""

TORCHX_REPLICA = "TORCHX_REPLICA"
"""Set in every replica: its name, ``role/id``."""

TORCHX_ATTEMPT = "TORCHX_ATTEMPT"
"""Set in every replica: the number of its attempt, from 1. It is absent on Kubernetes if a role with retries
starts neither a shell nor Python."""

TORCHX_HEARTBEAT = "TORCHX_HEARTBEAT"
"""Set in the replicas of applications with ``stall``: where heartbeats are written, ``OFFSET:FILE``."""

TORCHX_RUN = "TORCHX_RUN"
"""Set in every replica: the number of the run, from 1."""

TORCHX_SWEEP_RUN = "TORCHX_SWEEP_RUN"
"""Set in every replica of a sweep: the number of its run in the sweep, from 1."""

TORCHX_ENDS_AT = "TORCHX_ENDS_AT"
"""Set in every replica with a time limit: the end of the run, in epoch seconds. It is absent on Kubernetes if
the role starts neither a shell nor Python."""

TORCHX_NOTICE = "TORCHX_NOTICE"
"""Set in every replica with a notice: the seconds before the end of the run, and the signal, as in
``300:USR1``."""

TORCHX_CHECKPOINT_DIR = "TORCHX_CHECKPOINT_DIR"
"""Set in every replica that has a folder for checkpoints: the same one in all attempts and runs."""

TORCHX_PARENT_RUN_ID = "TORCHX_PARENT_RUN_ID"
"""Set in every replica when the run was given a parent."""

TORCHX_INTERNAL_SESSION_ID = "TORCHX_INTERNAL_SESSION_ID"
"""Set in every replica: groups the jobs of one launching process."""

TORCHX_TRACKERS = "TORCHX_TRACKERS"
"""Set in every replica: the names of the trackers, separated by commas."""

TORCHX_IMAGE = "TORCHX_IMAGE"
"""Set in every container: the image it was started from."""

TORCHX_RANK0_HOST = "TORCHX_RANK0_HOST"
"""Set in every replica on local engines: the host of replica 0 of the first role."""

TORCHX_CONTEXT_NAME = "TORCHX_CONTEXT_NAME"
"""The launcher: ``cli_run`` under ``torchx run``."""

TORCHX_CUSTOM_NAMED_RESOURCES = "TORCHX_CUSTOM_NAMED_RESOURCES"
"""A module whose ``NAMED_RESOURCES`` are added to the named resources."""

TORCHX_PLUGINS_SOURCE = "TORCHX_PLUGINS_SOURCE"
"""The sources of plugins, a bit mask: 1 namespace packages, 2 entry points. Default: 3."""

TORCHX_PROVENANCE = "TORCHX_PROVENANCE"
"""``0`` to record no source, packages and machine at a submission."""

TORCHX_CONTEXT = "TORCHX_CONTEXT"
"""The context of the command line: the other machine on which it runs."""

TORCHX_CONTEXT_PREFIX = "TORCHX_CONTEXT_PREFIX"
"""Set for a command that runs on another machine: the name of the context, which its handles begin with."""

LOGLEVEL = "LOGLEVEL"
"""The level of this project's own log messages."""

TORCHX_EVENTS = "TORCHX_EVENTS"
"""The destination of the runner's events: ``null`` (the default), ``console``, or a plugin's handler."""

TORCHRUN_PREFIX = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "[${role_name}${rank}]:"}
"""A variable with which torchrun begins each line with the rank in the application, instead of the rank on
the node."""

REPLICA_DEFAULTS = {**TORCHRUN_PREFIX, "PYTHONFAULTHANDLER": "1"}
"""Set in every replica unless its role sets them: the prefix of lines, and a handler with which Python prints
the stacks of all threads if a signal such as SIGABRT ends it."""

# TorchX's names of some of them
ENV_TORCHXCONFIG = TORCHXCONFIG
ENV_TORCHX_IMAGE = TORCHX_IMAGE
ENV_TORCHX_INTERNAL_SESSION_ID = TORCHX_INTERNAL_SESSION_ID
ENV_TORCHX_JOB_ID = TORCHX_JOB_ID
ENV_TORCHX_PARENT_RUN_ID = TORCHX_PARENT_RUN_ID
ENV_TORCHX_TRACKERS = TORCHX_TRACKERS

COMMAND_LINE = "torchx/command"
"""Key in the metadata of an application: the command line that submitted it, with secrets masked."""
COMMAND_NAMES = "torchx/command_names"
"""Key in the metadata of an application: its component and flags without values, for engines whose records
other users can read."""
SOURCE = "torchx/source"
"""Key in the metadata of an application: the commit and the branch that it was submitted from."""
TAG = "torchx/tag."
"""Prefix of the keys of tags in the metadata of an application."""
NOTE = "torchx/note"
"""Key in the metadata of an application: its note."""
RUN = "torchx/run"
"""Key in the metadata of an application: its id as a run of a sweep; some engines give it another id."""
ONCE = "torchx/once"
"""Key in the metadata of an application: the name that ``--once`` gave to its submission."""
SERVICE = "torchx/service"
"""Key in the metadata of a role: the probe, the time limit and the weight of a service."""
FEATURE = "torchx/feature."
"""Prefix of the keys of features in the metadata of an application, each with the values of its flags."""
POLICIES = "policies"
"""The run option with the policies of other packages, and their key in records."""

AFTER = "torchx/after"
"""Key in the metadata of a role: the roles that must be ready before it starts."""
