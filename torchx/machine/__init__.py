"""This machine: its processes, ports, GPUs and file locks."""
