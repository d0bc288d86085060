"""Leases of this machine's resources, for all its users: GPUs, processors and memory.

A lease is a name that the kernel gives to one process at a time and releases when that process ends.
"""
