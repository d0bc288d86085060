"""Configuration of a project and of a user: `.torchxconfig`."""

from torchx.config.files import CONFIG_FILE as CONFIG_FILE
from torchx.config.files import ConfigNotFoundError as ConfigNotFoundError
from torchx.config.files import find_files as find_files
from torchx.config.ini import ConfigError as ConfigError
from torchx.config.ini import Origin as Origin
from torchx.config.ini import Setting as Setting
from torchx.config.ini import shown_path as shown_path
from torchx.config.model import Config as Config
from torchx.config.model import Entry as Entry
from torchx.config.model import load_config as load_config
from torchx.config.options import Option as Option
from torchx.config.options import scheduler_options as scheduler_options
