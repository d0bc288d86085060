"""Schedulers that run applications as processes on this machine: ``local_cwd`` and ``local_dir``."""
