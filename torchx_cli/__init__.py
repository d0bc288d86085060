"""The command line of torchx: the only code that prints, exits or installs signal handlers."""
