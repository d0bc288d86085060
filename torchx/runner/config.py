"""The documented name of the functions for `.torchxconfig`; they live in `torchx.config.api`."""

from torchx.config.api import apply as apply
from torchx.config.api import dump as dump
from torchx.config.api import find_configs as find_configs
from torchx.config.api import get_config as get_config
from torchx.config.api import get_configs as get_configs
from torchx.config.api import load as load
from torchx.config.api import load_sections as load_sections
