"""Public import path of the base class of plugin commands; the program itself is ``torchx_cli``."""
