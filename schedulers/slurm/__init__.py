"""The ``slurm`` scheduler: runs applications as jobs of a Slurm cluster."""
