"""Results of an application, under a key in a folder that another program reads."""

from torchx.runtime.tracking.api import FsspecResultTracker as FsspecResultTracker
from torchx.runtime.tracking.api import ResultTracker as ResultTracker
