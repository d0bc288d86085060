"""The torchx command line: the only code that prints, exits or installs signal handlers."""
