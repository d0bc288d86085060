"""The scheduler ``ssh``: replicas run on a list of hosts in turn, supervised from this machine.

Supervision, retries by cause, time limits, stalls, policies of other packages, logs, records and all commands
are those of local jobs: for each replica, this machine starts a small agent, which is this file as a program.
It holds the ssh connection on which the replica runs, and closes it to end the replica: a replica never
outlives its connection, whatever happens to this machine.
"""

from __future__ import annotations

import itertools
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

# --- the agent: it starts with each replica, so it comes before the imports of torchx ---------------------

# Runs on the host. Standard input carries this text, then a line with the number of a signal for each notice.
# Its end ends the replica. In a separate session, one signal reaches all processes of the replica. A notice
# is for those that handle its signal, as it would end the others.
REMOTE = """\
{exports}
cd {folder} || exit 1
exec 3<&0
setsid {command} </dev/null 3<&- &
replica=$!
exec 2>/dev/null
notify() {{
    for process in $(ps -o pid= -s $replica); do
        caught=$(sed -n 's/^SigCgt:[[:space:]]*0*//p' /proc/$process/status)
        [ $((0x0$caught >> ($1 - 1) & 1)) = 0 ] || kill -$1 $process
    done
}}
{{
    while read -r number; do notify "$number"; done <&3
    kill -TERM -$replica
    sleep {grace}
    kill -KILL -$replica
}} >/dev/null &
wait $replica
status=$?
kill -KILL -$replica
exit $status
"""


def agent(target: Mapping[str, Any], command: Iterable[str]) -> int:
    """Runs a replica on its host and returns its exit code, or 128 + N for signal N."""
    names = {*target["names"], *(name for name in os.environ if name.startswith("TORCHX_"))}
    sent = {name: os.environ[name] for name in names - {*target["local"]} if name in os.environ}
    text = REMOTE.format(
        exports="\n".join(f"export {name}={shlex.quote(value)}" for name, value in sorted(sent.items())),
        folder=shlex.quote(target["folder"]),
        command=shlex.join(command),
        grace=target["grace"],
    ).encode()
    # dd reads exactly the text, so that only the end of standard input remains
    take = shlex.join(["sh", "-c", 'eval "$(dd bs=1 count=$0 2>/dev/null)"', str(len(text))])
    options = ["-T", "-oBatchMode=yes", "-oConnectTimeout=10", "-oServerAliveInterval=15"]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # inherited by ssh, which has to return the result
    ssh = subprocess.Popen(["ssh", *options, *target["ssh"], take], stdin=subprocess.PIPE)
    assert ssh.stdin is not None
    descriptor = ssh.stdin.fileno()
    try:
        ssh.stdin.write(text)
        ssh.stdin.flush()
    except BrokenPipeError:
        return ssh.wait()

    def notify(number: int, _: object) -> None:
        os.write(descriptor, b"%d\n" % number)

    def disconnect(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(descriptor)

    if target["notice"]:
        signal.signal(target["notice"], notify)
    signal.signal(signal.SIGTERM, disconnect)
    return ssh.wait()


if __name__ == "__main__":
    status = agent(json.loads(sys.argv[1]), sys.argv[2:])
    if 128 < status <= 128 + signal.SIGRTMAX:
        # a replica ended by a signal: this process ends in the same way
        signal.signal(status - 128, signal.SIG_DFL) if status - 128 != signal.SIGKILL else None
        os.kill(os.getpid(), status - 128)
    sys.stdout.flush()
    os._exit(status)

# --- the scheduler -----------------------------------------------------------------------------------

from torchx import settings
from torchx.errors import UsageError
from torchx.machine.ports import port_variable
from torchx.schedulers.api import AppUsage
from torchx.schedulers.image_providers import ImageProvider
from torchx.schedulers.local.request import ReplicaParam
from torchx.schedulers.local_scheduler import LocalScheduler
from torchx.scheduling.limits import LimitRule
from torchx.specs import AppDef, CfgVal, Role, runopts

RESERVE = 2.0
"""Seconds of the grace period reserved for the result to return after a host has killed the replica."""


OF_THIS_MACHINE = (
    *("auto_set_cuda_visible_devices", "prepend_cwd", "preflight", "setup_once", "workspace_limit_mb"),
    *("no_wait", "priority", "reserve"),
)
"""The run options of local jobs that concern the processes, the files or the resources of this machine."""


class SshScheduler(LocalScheduler):
    """Starts each replica on one of a list of hosts.

    Args:
        session_name: the session part of its handles.
    """

    attaches_by_default = on_this_machine = plans_workspaces = runs_services = knows_hosts = False
    waits_in_queue = False
    execute = None  # type: ignore[assignment]  # it would run the program on this machine

    def __init__(self, session_name: str) -> None:
        super().__init__(session_name, Hosts, backend="ssh")

    def _run_opts(self) -> runopts:
        opts = runopts()
        opts.update({name: option for name, option in super()._run_opts() if name not in OF_THIS_MACHINE})
        opts.add("hosts", type_=list[str], required=True, help="hosts, used in turn: [user@]host,…")
        opts.add("remote_dir", type_=str, default=".", help="working directory on the hosts")
        opts.add("ssh_options", type_=dict[str, str], help="options of ssh: Port:2222,IdentityFile:/my/key")
        return opts

    def usage(self, app_id: str) -> AppUsage | None:
        """Returns no measurements: here, those of ssh would be taken for those of the replicas."""
        return

    def _validate(self, app: AppDef, scheduler: str, cfg: Mapping[str, CfgVal]) -> None:
        super()._validate(app, scheduler, cfg)
        if LimitRule.of(cfg).signal == "TERM":
            raise UsageError("the notice of ssh cannot be TERM, which ends a replica", hint="e.g. 5m:USR1")
        for host in _texts(cfg["hosts"]):
            if host.startswith("-") or not host.isprintable() or " " in host:
                raise UsageError(f"`{host}` in the run option `hosts` is not a host")


class Hosts(ImageProvider):
    """Replaces any image by a folder on the hosts, and the program of a role by an agent.

    Args:
        cfg: the run options.
    """

    def __init__(self, cfg: Mapping[str, CfgVal]) -> None:
        self._cfg = cfg
        self._first, *_ = hosts = _texts(cfg["hosts"])
        self._next = itertools.cycle(hosts)

    def fetch(self, image: str) -> str:
        """Returns the folder on the hosts; nothing is copied."""
        return str(self._cfg["remote_dir"])

    def get_replica_param(self, img_root: str, role: Role, *files: str | None) -> ReplicaParam:
        """Returns the agent of a replica; it sends the environment over the connection, not as arguments."""
        env = {port_variable(name): str(port) for name, port in role.port_map.items()}
        env |= {settings.TORCHX_RANK0_HOST: self._first.rpartition("@")[2], **role.env}
        options = self._cfg.get("ssh_options")
        rule = LimitRule.of(self._cfg)
        local = [settings.TORCHX_HOME, settings.TORCHX_HEARTBEAT]
        if not rule.checkpoint_dir:
            local.append(settings.TORCHX_CHECKPOINT_DIR)  # a folder of the record, on this machine
        target = {
            "ssh": [f"-o{key}={value}" for key, value in dict(options or {}).items()] + [next(self._next)],
            "folder": img_root,
            "grace": max(0.0, float(str(self._cfg["grace_period"])) - RESERVE),
            "names": list(env),
            "local": local,
            "notice": signal.Signals[f"SIG{rule.signal}"] if rule.notice else 0,
        }
        # -I -S: it needs the standard library only, and no search for site packages
        args = [sys.executable, "-I", "-S", __file__, json.dumps(target), role.entrypoint, *role.args]
        return ReplicaParam(args, env, *files)


def create_scheduler(session_name: str, **kwargs: Any) -> SshScheduler:
    """Returns the scheduler ``ssh``."""
    return SshScheduler(session_name)


def _texts(value: CfgVal) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
