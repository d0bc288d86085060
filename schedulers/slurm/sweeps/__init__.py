"""Runs of a sweep as tasks of Slurm job arrays."""
