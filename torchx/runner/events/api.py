"""The former place of the type of events."""

from torchx.runner.events import SourceType as SourceType
from torchx.runner.events import TorchxEvent as TorchxEvent
