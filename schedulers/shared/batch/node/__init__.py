"""Files that run on the nodes of a batch job, without torchx; submission copies them to its folder."""
