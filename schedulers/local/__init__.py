"""Runs applications as processes of this machine: ``local_cwd`` and ``local_dir``."""
