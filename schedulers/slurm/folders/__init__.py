"""The folders of a Slurm job: how they are found, and the files in them."""
