"""The documented name of the scheduler interface."""

from torchx.scheduling.base import DescribeAppResponse as DescribeAppResponse
from torchx.scheduling.base import Glances as Glances
from torchx.scheduling.base import Kills as Kills
from torchx.scheduling.base import ListAppResponse as ListAppResponse
from torchx.scheduling.base import LogChunks as LogChunks
from torchx.scheduling.base import Scheduler as Scheduler
from torchx.scheduling.base import Waits as Waits
from torchx.scheduling.base import filter_regex as filter_regex
from torchx.scheduling.base import split_lines as split_lines
from torchx.scheduling.logs import LogChunk as LogChunk
from torchx.scheduling.logs import LogQuery as LogQuery
from torchx.scheduling.logs import Stream as Stream
from torchx.specs.app import AppDef as AppDef
from torchx.specs.app import Role as Role
from torchx.specs.dryrun import AppDryRunInfo as AppDryRunInfo
from torchx.specs.run_options import CfgVal as CfgVal
from torchx.specs.run_options import runopts as runopts
from torchx.specs.structured_opts import StructuredOpts as StructuredOpts
