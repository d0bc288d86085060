"""The former place of colours for terminals."""

from torchx.cli.colors import BLUE as BLUE
from torchx.cli.colors import ENDC as ENDC
from torchx.cli.colors import GRAY as GRAY
from torchx.cli.colors import GREEN as GREEN
from torchx.cli.colors import ORANGE as ORANGE
