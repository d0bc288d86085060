"""Public module of the local schedulers."""

from __future__ import annotations

from torchx.compat.local import COMBINED_LOG, STDERR_LOG, STDOUT_LOG, AppId, LocalOpts, Opts  # noqa: F401
from torchx.compat.local import LocalApp as _LocalAppDef  # noqa: F401
from torchx.compat.local import LocalScheduler as LocalScheduler
from torchx.compat.logs import LogIterator  # noqa: F401
from torchx.schedulers.local.images import CWDImageProvider as CWDImageProvider
from torchx.schedulers.local.images import ImageProvider as ImageProvider
from torchx.schedulers.local.images import LocalDirectoryImageProvider as LocalDirectoryImageProvider
from torchx.schedulers.local.request import PopenRequest as PopenRequest
from torchx.schedulers.local.request import ReplicaParam as ReplicaParam
from torchx.schedulers.local.scheduler import create_cwd_scheduler as create_cwd_scheduler
from torchx.schedulers.local.scheduler import create_dir_scheduler as create_dir_scheduler
from torchx.schedulers.local.scheduler import create_scheduler as create_scheduler
