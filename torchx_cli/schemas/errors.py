"""The stable codes of errors in JSON output."""

from __future__ import annotations

_TABLE = """\
unknown_command: the command does not exist
unknown_flag: the command or component has no such flag or argument
ambiguous_flag: an abbreviated flag has several meanings
repeated_flag: a flag with one value is given twice
conflicting_flags: the flags or arguments cannot be combined
missing_argument: a required argument or flag is not given
missing_value: a flag is given without its value
invalid_value: a flag or argument has a value of the wrong form
unexpected_argument: an argument, or the value of a switch, that nothing takes
usage: another mistake in the request, on any machine
name_in_use: the name of `--once` belongs to an application with other arguments
invalid_handle: the text is neither a handle nor a name of an application
unknown_application: the application does not exist; all engines have answered
ambiguous_name: several applications have this name, or ids with this beginning
part_of_job: the id names a part: a role, a run of a sweep, or a step of a Slurm job
unknown_role: the application has no such role
unknown_run: the sweep has no run of this number
unknown_replica: the role has no such replica
not_running: the replica is not running
not_ended: the application has not ended
not_confirmed: the command needs a confirmation on a terminal, or `--yes`
not_allowed: the server for agents was started without `--allow` for this tool
not_owner: the application belongs to another user
not_repeatable: the record is too incomplete to submit the application again
missing_script: the script of a role does not exist on this machine
missing_secret: the record lacks the values of secrets: provide them with `--secret`
not_recorded: the source of the application is not on record
damaged_record: the record of the application is damaged
newer_record: the record was written by a newer version of torchx
other_session: the application belongs to another session of the Python API
application_failed: the application did not succeed (Python API)
unknown_component: the component, its file or its module does not exist
invalid_component: the function is not a valid component
component_failed: the code of the component has failed
unknown_resource: no named resource has this name
unknown_workspace: the folder or URL of the workspace does not exist
workspace_too_large: the workspace exceeds `workspace_limit_mb`
invalid_mount: the options of a mount are invalid
invalid_overlay: an overlay does not fit its request, or changes a protected field
invalid_yaml: a YAML file is invalid or too large
invalid_config: a configuration file is invalid
not_found: a file or folder to copy does not exist
no_files: the files of the replica were removed with it
invalid_archive: the files to copy are not a valid archive, or would leave the target
unknown_context: no context has this name
config_not_found: `$TORCHXCONFIG` names a file that does not exist
unknown_scheduler: no scheduler has this name
unknown_run_option: the scheduler has no such run option
invalid_run_option: a run option has an invalid value
missing_run_option: a required run option is not set
not_supported: the scheduler does not have this ability
engine_absent: this machine has no such engine, and none is configured
engine_unreachable: the engine does not answer; try again later
engine_error: the engine has rejected a request, or a program of it has failed
access_denied: the engine rejects the credentials, or they cannot be obtained
insufficient_resources: fewer GPUs or CPUs, or less memory, are free than requested
process_limit: this user may not start another process or thread
unknown_image: the engine does not have the image and cannot pull it
missing_package: a Python package is not installed
plugin_failed: a plugin cannot be loaded or created
unknown_tracker: the tracker does not exist, or none is configured
unknown_run: no tracked run has this id
already_exists: the file or application exists already
state: another state of the machine or the engine prevents it
file_error: a file or folder cannot be used: `errno` names the error
interrupted: Ctrl-C, or a signal with the same effect
broken_pipe: the reader of an output has closed it
error: an error from a plugin that gives it no code
internal: a bug in torchx or a plugin; for a traceback: `torchx --debug`
"""

CODES = {code: meaning for code, _, meaning in (line.partition(": ") for line in _TABLE.splitlines())}
"""Code -> the cause. Codes keep their meaning; new ones may be added."""
