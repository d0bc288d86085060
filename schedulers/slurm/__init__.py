"""Runs applications as jobs of a Slurm cluster: ``slurm``."""
