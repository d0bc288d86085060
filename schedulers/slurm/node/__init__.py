"""Files that run on the nodes of a Slurm job, without torchx; submission copies them to its folder."""
