"""The documented name of the scheduler interface."""

from torchx.logs import LogChunk as LogChunk
from torchx.logs import LogQuery as LogQuery
from torchx.logs import Stream as Stream
from torchx.scheduler import DescribeAppResponse as DescribeAppResponse
from torchx.scheduler import Glances as Glances
from torchx.scheduler import Kills as Kills
from torchx.scheduler import ListAppResponse as ListAppResponse
from torchx.scheduler import LogChunks as LogChunks
from torchx.scheduler import Scheduler as Scheduler
from torchx.scheduler import Waits as Waits
from torchx.scheduler import filter_regex as filter_regex
from torchx.scheduler import split_lines as split_lines
from torchx.specs.app import AppDef as AppDef
from torchx.specs.app import Role as Role
from torchx.specs.dryrun import AppDryRunInfo as AppDryRunInfo
from torchx.specs.run_options import CfgVal as CfgVal
from torchx.specs.run_options import runopts as runopts
from torchx.specs.structured_opts import StructuredOpts as StructuredOpts
