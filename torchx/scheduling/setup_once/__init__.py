"""The run option ``setup_once``: a command that prepares a node once, before the programs on it start."""
